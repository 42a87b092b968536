"""Derives facts about the padded program, and proves padding and batching by a table of rules."""
