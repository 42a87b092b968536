"""Runs a graph call by call: on padded batches of whole sequences, or on streams that carry their states."""
