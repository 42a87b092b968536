"""Serves requests of many callers on one device: they are queued, scheduled and batched, and each ends once."""
