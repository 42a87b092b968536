"""Which nodes broke parity: searched, confirmed, explained, and shown alone."""
