"""What the passes to 8-bit numbers have in common: layers, recordings, choices, and how they are written down."""
