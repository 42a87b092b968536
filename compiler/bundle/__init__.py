"""What ships: a folder written at once or not at all, compared, finished, and proved again from its own files."""
