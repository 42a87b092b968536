"""Serves requests of many callers on one device: queued, scheduled, batched, and each ended exactly once."""
