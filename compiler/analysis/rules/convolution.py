"""Rules convolution: not written yet."""

from compiler.analysis.registry import Table

TABLE: Table = {}
