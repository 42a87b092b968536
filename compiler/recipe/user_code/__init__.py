"""Finds, calls and reads the user's code and data that a recipe names; reports their faults as the user's."""
