"""Whether what is built is still what was handed over: one gate per file."""
