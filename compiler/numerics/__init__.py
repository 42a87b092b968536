"""Which nodes compute in half precision or in integers, and how that is written down."""
