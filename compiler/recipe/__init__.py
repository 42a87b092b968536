"""YAML in, one frozen record out; every message says the line. Callables and streams that a recipe names."""
