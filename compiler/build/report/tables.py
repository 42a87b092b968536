"""Formats the report of a build as tables for the terminal."""

from collections.abc import Callable, Iterator

from rich.markup import escape
from rich.table import Table

from compiler.base.records.build_report import BuildReport
from compiler.base.records.findings import Finding, most_urgent_first
from compiler.base.records.precision import Pin
from compiler.base.records.searches import HEADS
from compiler.base.records.target_rows import COLUMNS, target_rows


def _table(title: str, *columns: str) -> Table:
    """Return a table whose first columns are text and whose columns in `[brackets]` are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        is_number = column.startswith("[")
        table.add_column(column.strip("[]"), justify="right" if is_number else "left", overflow="fold")
    return table


def _pass_table(report: BuildReport) -> Table | None:
    passes = [stage for stage in report.stages if stage.matched or stage.rewritten or stage.refused]
    table = _table("Passes", "graph", "pass", "[matched]", "[rewritten]", "[left as they are]")
    for stage in passes:
        counts = (stage.matched, stage.rewritten, len(stage.refused))
        table.add_row(escape(stage.graph), escape(stage.stage), *map(str, counts))
    if any(stage.refused for stage in passes):
        table.caption = "what a pass leaves as it is was proved and compared with the rest; --report says why"
        table.caption_justify = "left"
    return table if passes else None


SHOWN_PINS = 16
"""Pins that the terminal lists per pass; the report has all of them."""


def _pin_table(report: BuildReport) -> Table | None:
    """Return a table of the nodes that a pass kept in higher precision, the costliest first; None without any."""
    table = _table("Kept precise", "graph", "pass", "node", "operator", "why", "[costs]", "line")
    for stage in report.stages:
        pins = [record for record in stage.precision if isinstance(record, Pin)]
        for pin in sorted(pins, key=lambda pin: -(pin.cost or 0.0))[:SHOWN_PINS]:
            cost = "" if pin.cost is None else f"{pin.cost:.3g} {pin.cost_unit}"
            line = pin.source.split(": ")[0]
            cells = (stage.graph, stage.stage, pin.node, pin.op, f"{pin.kept}: {pin.reason}", cost, line)
            table.add_row(*map(escape, cells))
        if len(pins) > SHOWN_PINS:
            rest = f"and {len(pins) - SHOWN_PINS} more in the report"
            table.add_row(escape(stage.graph), escape(stage.stage), rest, "", "", "", "")
    return table if table.rows else None


def _cut_table(report: BuildReport) -> Table | None:
    """Return a table of the channels that were taken out, by product; None without any."""
    columns = ("[channels]", "[left]", "[saves ms]", "[alone dB]", "[fitted dB]", "[results dB]")
    table = _table("Channels taken out", "graph", "product", *columns, "line")
    for stage in report.stages:
        for cut in () if stage.compression is None else stage.compression.cuts:
            shares = ("" if db is None else f"{db:.1f}" for db in (cut.alone_db, cut.fitted_db, cut.noise_db))
            figures = (str(cut.before), str(cut.after), f"{cut.saved_ms:.3f}", *shares)
            table.add_row(*map(escape, (stage.graph, cut.node, *figures, cut.source.split(": ")[0])))
    table.caption = "alone and results: predicted of this cut, on the product's results and on the graph's"
    table.caption_justify = "left"
    return table if table.rows else None


def _search_table(report: BuildReport) -> Table | None:
    """Return a table of the measurements and choices of a search for forms; None without a search."""
    table = _table("Forms", *HEADS)
    for search in report.searches:
        for row in search.rows():
            table.add_row(*map(escape, row))
    if report.searches:
        seconds = sum(each.seconds for each in report.searches)
        table.caption = f"measured in {seconds:.0f} s on {escape(report.searches[0].machine)}"
        table.caption_justify = "left"
    return table if report.searches else None


SHOWN_FINDINGS = 12
"""Findings of one gate on one graph that the terminal lists; the report has all of them."""


def _gate_table(report: BuildReport) -> Table | None:
    """Return a table of every gate's findings, failures first, and of similar ones those closest to their limits."""
    table = _table("Gates", "gate", "graph", "of", "[measured]", "[limit]", "", "besides")
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in most_urgent_first(report.gates):
        groups.setdefault((finding.verdict, finding.gate, finding.graph), []).append(finding)
    for (verdict, gate, graph), group in groups.items():
        shown = sorted(group, key=lambda finding: -(finding.used or 0.0)) if len(group) > SHOWN_FINDINGS else group
        for finding in shown[:SHOWN_FINDINGS]:
            measured = "" if finding.measured is None else f"{finding.measured:.4g}"
            table.add_row(
                *map(escape, (gate, graph, finding.subject, measured, finding.limit_words, verdict, finding.detail))
            )
        if len(group) > SHOWN_FINDINGS:
            rest = f"and {len(group) - SHOWN_FINDINGS} more in the report"
            table.add_row(*map(escape, (gate, graph, rest, "", "", verdict, "")))
    return table if report.gates else None


def _size_table(report: BuildReport) -> Table | None:
    table = _table("Size", "file", "[bytes]")
    for name, size_bytes in sorted(report.sizes.items()):
        table.add_row(escape(name), f"{size_bytes:,}")
    table.add_row("total", f"{sum(report.sizes.values()):,}")
    return table if report.sizes else None


def _speed_table(report: BuildReport) -> Table | None:
    table = _table("Speed", "graph", "sizes", "[threads]", "[p50 ms]", "[p95 ms]")
    for row in report.speed:
        table.add_row(escape(row.graph), escape(row.sizes), str(row.threads), f"{row.p50_ms:.3f}", f"{row.p95_ms:.3f}")
    return table if report.speed else None


def _engine_table(report: BuildReport) -> Table | None:
    table = _table("Engines", "graph", "in the bundle", "looked at", "speed", "why")
    for row in report.engines:
        is_built = row.status == "built"
        state = row.status if is_built else row.status.upper()
        unknown = "a simulator's time" if row.reached == "simulated" else f"engine not {'run' if is_built else 'built'}"
        speed = "see above" if row.reached == "run" else f"not measured: {unknown}"
        table.add_row(escape(row.graph), state, escape(row.words), speed, escape(row.reason))
    return table if report.engines else None


def _ratio_table(report: BuildReport) -> Table | None:
    table = _table(
        "Targets side by side", "graph", "sizes", "target", "[of the time of]", "[median]", "[10th]", "[90th]"
    )
    for row in report.ratios:
        figures = (f"{figure:.2f}" for figure in (row.median, row.low, row.high))
        table.add_row(*map(escape, (row.graph, row.sizes, row.target, row.against)), *figures)
    return table if report.ratios else None


def _target_table(report: BuildReport) -> Table | None:
    table = _table("Targets", *COLUMNS)
    for row in target_rows(report):
        table.add_row(*map(escape, row.cells()))
    return table if table.rows else None


def tables_of(report: BuildReport) -> Iterator[Table]:
    """Yield tables of passes, forms, pins, gates, sizes, speed and engines; for several targets, a comparison."""
    of_one = (_pass_table, _cut_table, _search_table, _pin_table, _gate_table, _size_table, _speed_table, _engine_table)
    makers: tuple[Callable[[BuildReport], Table | None], ...] = (
        (_target_table, _ratio_table) if report.targets else of_one
    )
    yield from (table for make in makers if (table := make(report)) is not None)
