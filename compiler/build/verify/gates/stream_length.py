"""Reports after how many calls of a stream a count passes the end of a lookup table; this fails no build."""

from compiler.base.records.findings import Finding
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.stream_length import counts_of, lookups_by_counts, shortest, words_of
from compiler.graph.runners.stream import Advance
from compiler.recipe.record import Recipe


def _check(shipped: Shipped, advance: Advance) -> Checked:
    lookups = lookups_by_counts(shipped.graph.lowered)
    findings = [
        Finding("stream_length", shipped.name, each.node, each.calls, holds=True, detail=words_of(each))
        for each in lookups
    ]
    least = shortest(lookups)
    detail = "" if least is None else f"streams of {least} calls, then a table ends"
    return Checked(findings, detail, {"stream_length": {each.node: words_of(each) for each in lookups}})


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    return bool(counts_of(shipped.graph.lowered))


STREAM_LENGTH = Gate("stream_length", _check, promised=lambda recipe, graph: (), wanted=_wanted)
"""Looks at graphs with counts; a recipe asks for nothing."""
