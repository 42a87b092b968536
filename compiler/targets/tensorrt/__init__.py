"""TensorRT: what its parser and builder take, the plan of an engine, and the tools that ship with it."""
