"""Finds, calls and reads the user's code and data that a recipe names; its faults are reported as the user's."""
