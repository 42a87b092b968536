"""Which nodes compute in half precision: what overflows, what rounding costs, the cheapest choice, and its writing."""
