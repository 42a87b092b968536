"""Chooses which nodes compute in half precision or on integers, and rewrites graphs accordingly."""
