"""Describes the facts of a padding proof in words: what padding contains, and which fills are written there."""

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Fact
from compiler.proof.facts.interval import Interval

LOWEST = -3.4e38
"""Below this a fill is the lowest float32."""


class Kind(enum.Enum):
    """What lies in the padding of a node's output, or what became of the node; the value is for people."""

    NONE = "no padding"
    CONSTANT = "a known constant in the padding"
    FINITE = "finite numbers in the padding"
    ANYTHING = "anything in the padding, NaN possible"
    INSERTED = "inserted by padding"
    REFUSED = "refused"
    UNKNOWN = "not derived: it depends on what was refused"


def kind_of(facts: Sequence[Fact]) -> Kind:
    """Return the kind of the weakest padding content among some values' facts."""
    contents = [fact.padding(axis) for fact in facts for axis in fact.padded]
    if not contents:
        return Kind.NONE
    if all(content.is_constant for content in contents):
        return Kind.CONSTANT
    return Kind.FINITE if all(content.is_finite for content in contents) else Kind.ANYTHING


def padding_words(fact: Fact) -> str:
    """Describe what the padding of a value contains, per axis where axes differ."""
    if fact.is_number:
        return "a size"
    if not fact.padded:
        return "no padding"
    words = {axis: _content_words(fact.padding(axis)) for axis in fact.padded}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"axis {axis}: {text}" for axis, text in words.items())


def _content_words(content: Interval) -> str:
    if content.is_zero:
        return "zero"
    if content.is_constant:
        return f"constant {number_text(content.low)}"
    if content.is_finite:
        return "finite"
    return "anything, NaN possible" if content.nan else "infinity possible"


def shape_text(value: ir.Value) -> str:
    """Return a value's shape as text, e.g. `[batch, time, 80]`, with `?` where a size is unknown."""
    dims = graphs.dims_of(value)
    if dims is None:
        return "[?]"
    return f"[{', '.join('?' if getattr(dim, 'is_Dummy', False) else str(dim) for dim in dims)}]"


def need_words(need: Mapping[str, Any], names: Sequence[str]) -> str:
    """Describe a rewrite that a certificate's record requires; `names` are the node's inputs."""
    if "fill" in need:
        return f"padding of {names[need['fill']]} (axis {need['axis']}) := {number_text(float(need['value']))}"
    if "clamp" in need:
        return f"indices {names[need['clamp']]} clamped to {need['low']}..{need['high']}"
    return f"written in another form: {need['rewrite'].replace('_', ' ')}"


def number_text(value: float) -> str:
    """Return a fill value as text; the lowest and the highest number of float32 are written as words."""
    if math.isfinite(value) and abs(value) >= -LOWEST:
        return "lowest" if value < 0 else "highest"
    return f"{value:g}"
