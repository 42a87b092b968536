"""Defines the rule table: one entry per (domain, op, opset), read by every analysis; others are refused.

A rule looks at one node and the facts of its operands and answers with a verdict, or refuses. Padding asks what a node
needs, batching whether rows stay apart, state selection whether a node is pointwise along an axis.
"""

from compiler.proof.facts.registry import Table
from compiler.proof.rules import (
    attention,
    contraction,
    convolution,
    elementwise,
    joining,
    length,
    lookup,
    microsoft,
    movement,
    normalization,
    pooling,
    quantization,
    recurrence,
    reduction,
    refused,
    resizing,
    signal,
)

MODULES = (
    attention, contraction, convolution, elementwise, joining, length, lookup, microsoft, movement, normalization,
    pooling, quantization, recurrence, reduction, refused, resizing, signal,
)  # fmt: skip

RULES: Table = {key: rule for module in MODULES for key, rule in module.TABLE.items()}
"""The table. Whatever is not here is refused by name as soon as something tracked reaches it."""
