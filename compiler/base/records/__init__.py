"""Frozen records of a build, of which reports are made: stages, gates, rounding and drift."""
