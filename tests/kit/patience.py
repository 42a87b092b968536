"""How long a test waits for what must come."""

PATIENCE_S = 300.0
"""Seconds until a wait for an event, a thread or a process is given up: no bar for speed, only an end to a hang, so
that a test holds on a machine that is slow or busy."""
