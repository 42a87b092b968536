"""Writes the message of a failed parity gate: the nodes to blame, their errors, their source, and a reproducer."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from compiler.build.culprits.records import Culprit, Findings
from compiler.build.culprits.reproducer import write_reproducer
from compiler.build.culprits.search import BEYOND, Advance, find_culprits
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from compiler.recipe.gates import Tolerance

SHOWN = 4
"""Further nodes of a section that are named."""

TOLD = 200
"""Characters of an error that ends the search."""


def explained(
    error: GateFailed,
    before: Lowered,
    after: Lowered,
    steps: Sequence[OriginalCall],
    limits: Tolerance,
    folder: Path | None,
    *,
    optimize: bool = False,
    advance: Advance = lambda done, total: None,
) -> GateFailed:
    """Return a gate's error extended by the nodes to blame, after writing a reproducer.

    Args:
        error: the error, with stage, tensor and difference.
        before: the graph that passes the gate.
        after: the graph that fails it.
        steps: the original's calls, in order.
        limits: tolerance of the gate.
        folder: folder of the reproducer; None for none.
        optimize: whether the runtime may rewrite `after`.
        advance: called with the number of finished runs of the search, and their total.
    """
    stage, graph = error.place.stage, after.graph
    try:
        culprits = find_culprits(before, after, steps, limits, optimize=optimize, advance=advance)
    except Exception as other:  # noqa: BLE001  (whatever the search meets: the gate has failed, and that is to be said)
        told = " ".join(f"{type(other).__name__}: {other}".split())[:TOLD]
        return _with_words(error, f"the search for the nodes to blame ended with {told}", error.place)
    if culprits is None:
        return error
    if not culprits.culprits:
        return _with_words(error, _spread_words(culprits), error.place)
    said = culprit_words(culprits)
    if folder is not None:
        said += f"; seen alone by python {write_reproducer(culprits, folder, stage, BEYOND)}"
    return _with_words(error, said, dataclasses.replace(culprits.culprits[0].place(), stage=stage, graph=graph))


def _with_words(error: GateFailed, words: str, place: Location) -> GateFailed:
    return GateFailed(f"{error.message}; {words}", cure=error.cure, place=place, findings=error.findings)


def culprit_words(found: Findings) -> str:
    """Return the culprits, and how certain they are, as text."""
    count = len(found.culprits)
    noun = "node is" if count == 1 else "nodes are"
    named = "; ".join(_culprit_words(culprit, found) for culprit in found.culprits)
    rest = (
        "without it the gate holds"
        if count == 1 and found.left <= 1.0
        else "without them the gate holds, and not without any fewer"
        if found.left <= 1.0
        else f"without {'it' if count == 1 else 'them'} the rest still takes {found.left:.2g} times the limit"
    )
    return f"{count} {noun} to blame of {found.sections} compared: {named}; {rest}"


def _culprit_words(culprit: Culprit, found: Findings) -> str:
    local, last = culprit.local, -1
    where = culprit.place()
    size = (
        "numbers that are not finite"
        if local.error == float("inf")
        else f"an error of its own of {local.relative:.2g} (relative, root mean square)"
    )
    by_rounding = (
        f"{local.beyond:.2g} times what rounding explains"
        if found.beyond and local.beyond != float("inf")
        else "more than rounding explains"
        if found.beyond
        else "all of it by rounding, so it must not be rounded like that"
    )
    ranges = f"{local.tensor} {culprit.before[last]} before, {culprit.after[last]} after"
    others = [f"{node.op_type} {node.name}" for node in culprit.nodes if node is not culprit.node]
    beside = f", with {', '.join(others[:SHOWN])}{' ...' if len(others) > SHOWN else ''}" if others else ""
    line = where.source.split(": ")[0] or "no source line"
    return f"{where.op} {where.node} ({line}{beside}) has {size}, {by_rounding}: {ranges}"


def _spread_words(found: Findings) -> str:
    """Return text for an error that has no culprits but comes from many nodes."""
    if found.worst is None:
        return (
            "every node is right on right inputs: the difference arises where states are handed on, or in the runtime"
        )
    parts = ", ".join(
        f"{part.node.op_type} {part.node.name} {100 * part.share:.0f} %"
        if part.share is not None
        else str(part.node.name)
        for part in found.parts
    )
    return (
        f"no single node is to blame: {found.differing} of {found.sections} compared round a little, each by at most "
        f"{found.worst.beyond:.2g} times what rounding explains, and it adds up (largest parts of the error: {parts})"
    )
