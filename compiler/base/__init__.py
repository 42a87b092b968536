"""Holds code that knows no graphs: build records, the stage cache, file contents, signals, suggestions of names."""
