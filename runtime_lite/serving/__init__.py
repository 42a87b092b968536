"""Serves requests of many callers on one device: queues, schedules and batches them, and ends each one once."""
