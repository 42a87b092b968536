"""Prints an explanation as tables and plain text, readable in a log without colour, at any width."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from compiler.front.explain.explanation import Explanation, Link, ReachedNode, ShownAxis, ShownRefusal

LONGEST_CHAIN = 16
"""Longer ways to a refused node are cut in the middle."""

SHORTEST_SOURCE = 40
"""Source lines are not cut below this; narrow terminals get several lines per node."""


def print_explanation(explanation: Explanation, console: Console, *, every_node: bool = False) -> None:
    """Print an explanation: its heading, its axes, and the proof or the refusals.

    Args:
        explanation: the proof or the refusals.
        console: the console to print to.
        every_node: print all judged nodes with their facts, and chains unabridged.
    """
    console.print(_heading(explanation))
    for part in (_axis_table(explanation), *_body(explanation, console.width, every_node=every_node)):
        if part is not None:
            console.print()
            console.print(part)


def _heading(explanation: Explanation) -> Text:
    if explanation.refusals:
        count = len(explanation.refusals)
        return Text(f"{explanation.graph}: refused in {count} place{'s' if count > 1 else ''}")
    if explanation.replayed is None:
        return Text(f"{explanation.graph}: nothing is padded")
    if explanation.rejected:
        return Text(f"{explanation.graph}: the certificate does not hold: {explanation.rejected}")
    return Text(f"{explanation.graph}: proved; certificate replayed: holds ({explanation.replayed} steps)")


def _body(explanation: Explanation, width: int, *, every_node: bool) -> Iterable[RenderableType | None]:
    if explanation.refusals:
        count = len(explanation.refusals)
        for at, refusal in enumerate(explanation.refusals, start=1):
            yield _refusal(refusal, f"{at} of {count}", width, every_node=every_node)
    else:
        yield _inserted_table(explanation.steps)
        yield _output_table(explanation)
        yield _assumptions(explanation)
    if every_node:
        yield _node_table(explanation.steps)
    yield _numbers(explanation)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*map(escape, cells))


def _axis_table(explanation: Explanation) -> Table | None:
    table = _table("Axes", "axis", "part", "inputs", "lengths", "shortest", "longest")
    for axis in explanation.axes:
        _row(table, axis.name, axis.side, "\n".join(axis.inputs), axis.length_input, *_limits(axis))
    if explanation.batch is not None:
        _row(table, explanation.batch, "rows", "", "", "", "")
    for name in explanation.free:
        _row(table, name, "one size for all rows", "", "", "", "")
    return table if table.row_count else None


def _limits(axis: ShownAxis) -> tuple[str, str]:
    if axis.minimum is None:
        return "", ""
    return str(axis.minimum), "any" if axis.maximum is None else str(axis.maximum)


def _inserted_table(steps: Sequence[ReachedNode]) -> RenderableType:
    table = _table("Inserted", "node", "op", "what", "why", "source")
    for step in steps:
        if step.inserted:
            _row(table, step.node, step.op, "\n".join(step.inserted), step.reason, _line(step.source))
    return table if table.row_count else Text("Inserted: nothing; no node lets padding be seen")


def _line(source: str) -> str:
    """Return file, line and function of a source location, without the line's code."""
    return source.split(": ", 1)[0]


def _output_table(explanation: Explanation) -> RenderableType:
    table = _table("Outputs", "output", "shape")
    for name, shape in explanation.outputs:
        _row(table, name, shape)
    return Group(table, Text("a name in a size is the slots of the whole; of a row, the same size of its true length"))


def _assumptions(explanation: Explanation) -> RenderableType | None:
    if not explanation.assumes:
        return None
    return Group(Text("Taken for granted", style="bold"), *map(Text, explanation.assumes))


def _node_table(steps: Sequence[ReachedNode]) -> Table:
    table = _table("Every node", "node", "op", "rule", "in", "out", "why", "source")
    for step in steps:
        facts = ("\n".join(f"{name}: {fact}" for name, fact in part) for part in (step.given, step.results))
        why = "\n".join((step.reason, *step.inserted))
        _row(table, step.node, step.op, step.rule, *facts, why, step.source)
    return table


def _refusal(refusal: ShownRefusal, count: str, width: int, *, every_node: bool) -> RenderableType:
    place = refusal.place
    what = " ".join(part for part in (place.op, place.node or place.tensor) if part) or "the graph"
    axis = f" (axis {place.axis})" if place.axis else ""
    stage = f" by {place.stage}" if place.stage and not place.node else ""
    parts: list[RenderableType] = [Text(f"Refused {count}: {what}{axis}{stage}", style="bold")]
    if refusal.chain:
        links: list[Link | None] = list(refusal.chain)
        gone = len(links) - LONGEST_CHAIN
        if gone > 0 and not every_node:
            links[LONGEST_CHAIN // 2 : LONGEST_CHAIN // 2 + gone] = [None]
        parts.append(_chain_table([_link_cells(link, refusal, gone) for link in links], width))
    elif place.source:
        parts.append(Text(f"source: {place.source}"))
    parts.append(Text(f"reason: {refusal.reason}"))
    parts.append(Text(f"what to do: {refusal.cure}"))
    return Group(*parts)


def _link_cells(link: Link | None, refusal: ShownRefusal, gone: int) -> tuple[str, ...]:
    if link is None:
        return "", f"... {gone} nodes ...", "", "", ""
    arrow = "=>" if link is refusal.chain[-1] else "->" if link is not refusal.chain[0] else ""
    return arrow, link.node, link.op, link.padding, link.source


def _chain_table(rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return the table of a chain of nodes, one line per node where possible: sources are shortened to the width."""
    titles = ("", "node", "op", "in its padding", "source")
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    taken = sum(max(len(row[at]) for row in (titles, *rows)) + 2 for at in range(len(titles) - 1))
    left = max(width - taken, SHORTEST_SOURCE)
    for row in rows:
        _row(table, *row[:-1], row[-1] if len(row[-1]) <= left else f"{row[-1][: left - 3]}...")
    return table


def _numbers(explanation: Explanation) -> Text:
    counts = explanation.counts
    if explanation.refusals:
        return Text(f"{counts.judged} of {counts.nodes} nodes judged up to here")
    if explanation.replayed is None:
        return Text("no axis is padded and there is no batch: the graph stays as it is")
    rows = "independent" if explanation.rows_independent else "not claimed to be independent: there is no batch axis"
    return Text(
        f"{counts.judged} of {counts.nodes} nodes judged, {counts.inserted} nodes inserted, "
        f"{counts.fills} fills over {counts.masks} shared masks; rows are {rows}"
    )
