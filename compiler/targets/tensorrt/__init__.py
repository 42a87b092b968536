"""TensorRT target: the limits of its parser and builder, the plan of an engine, and the tools that ship with it."""
