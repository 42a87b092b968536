"""Defines frozen records of a build, from which its reports are made: stages, gates, rounding and drift."""
