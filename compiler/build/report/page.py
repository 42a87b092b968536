"""Writes the HTML report of a build as one page: comparisons, errors, drift, rounding and costs.

The page loads nothing and runs nothing: tables, inline SVG and one style sheet. It holds measured times, so it stands
outside the bundle, whose bytes are the same in every build.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from compiler.base.records.build_report import BuildReport, StageReport
from compiler.base.records.compression import Cut
from compiler.base.records.findings import most_urgent_first
from compiler.base.records.precision import Pin, TensorRange
from compiler.base.records.searches import HEADS
from compiler.base.records.target_rows import COLUMNS, target_rows
from compiler.build.report.charts import compression_chart, drift_chart, histogram_chart, share_bar
from compiler.build.report.files import GENERATOR
from compiler.build.report.graph_drawing import drawn, escaped, group_boxes
from compiler.build.report.page_figures import GraphFigures, Precision
from compiler.build.report.style import CSS
from runtime_lite.format.atomic_file import replace_file

ROWS = 40
"""Rows of a long table that are shown at once; the others are folded away."""


def write_page(report: BuildReport, figures: Mapping[str, Sequence[GraphFigures]], path: Path) -> None:
    """Write the page; readers see the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(report_page(report, figures).encode())


def report_page(report: BuildReport, figures: Mapping[str, Sequence[GraphFigures]]) -> str:
    """Return the HTML page, well-formed as XML too.

    Args:
        report: the build's report.
        figures: figures per graph, by target; without them the page has no histograms and no maps.
    """
    name = report.bundle.rstrip("/").rsplit("/", 1)[-1]
    body = _body(report, figures.get(report.target, ()))
    if report.targets:
        body = [*_verdict(report), *_targets(report), *_ratios(report)]
        for target in report.targets:
            body += [f"<h1>{escaped(target.target)}</h1>", *_body(target, figures.get(target.target, ()))]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"/>{GENERATOR}',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{escaped(name)}: build</title><style>{CSS}</style></head><body>",
            f"<h1>{escaped(name)}{escaped(_headline(report))}</h1>",
            f'<p class="soft">built from <code>{escaped(report.recipe)}</code></p>',
            *body,
            "</body></html>\n",
        ]
    )


def _headline(report: BuildReport) -> str:
    """Return the gate that failed, and by how much; empty for other builds."""
    if report.failure is None:
        return ""
    failed = next((each for each in report.gates if each.holds is False), None)
    if failed is None:
        return f" failed in {report.failure.place['stage']}" if report.failure.place.get("stage") else " failed"
    by = ""
    if failed.measured is not None and failed.limit is not None:
        by = f": {_number(failed.measured, '.3g')} where {_number(failed.limit, '.3g')} is the limit"
    return f" failed {failed.gate}{by}"


def _body(report: BuildReport, figures: Sequence[GraphFigures]) -> list[str]:
    """Return the sections of the page for one target."""
    sections = [
        ("Gates", _gates(report)),
        ("Parity by stage", _stages(report)),
        ("Drift over chained calls", _drift(report)),
        ("Tensors that differ most", _histograms(figures)),
        ("Precision", _precision(report, figures)),
        ("Channels taken out", _compression(report)),
        ("Passes", _passes(report)),
        ("Forms", _forms(report)),
        ("Size and speed against the original", _costs(report, figures)),
        ("Engines", _engines(report)),
    ]
    written = [f"<h2>{escaped(title)}</h2>\n{content}" for title, lines in sections if (content := "\n".join(lines))]
    return [*_verdict(report), _tiles(report, figures), *written]


def _targets(report: BuildReport) -> Iterator[str]:
    yield "<h2>Targets</h2>"
    yield table(COLUMNS, [tuple(map(escaped, row.cells())) for row in target_rows(report)])


def _ratios(report: BuildReport) -> Iterator[str]:
    rows = [
        [escaped(row.graph), escaped(row.sizes), escaped(row.target), escaped(row.against)]
        + [f"{figure:.2f}" for figure in (row.median, row.low, row.high)]
        for row in report.ratios
    ]
    if rows:
        yield "<h2>Targets side by side</h2>"
        yield table(("graph", "sizes", "target", "of the time of", "[median]", "[10th]", "[90th]"), rows)


# Tables


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table; columns in `[brackets]` hold numbers, cells are HTML."""
    kinds = [' class="n"' if column.startswith("[") else "" for column in columns]
    heads = "".join(f"<th{k}>{escaped(c.strip('[]'))}</th>" for k, c in zip(kinds, columns, strict=True))
    lines = ["".join(f"<td{k}>{c}</td>" for k, c in zip(kinds, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines[:ROWS])
    whole = f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    if len(lines) <= ROWS:
        return whole
    rest = "".join(f"<tr>{line}</tr>" for line in lines[ROWS:])
    return (
        f"{whole}<details><summary>{len(lines) - ROWS} more</summary>"
        f'<div class="wide"><table><tbody>{rest}</tbody></table></div></details>'
    )


def _db(value: float | None) -> str:
    return "exact" if value is None else f"{value:.1f}"


def _number(value: float | None, form: str = ".2e") -> str:
    return "" if value is None else f"{value:{form}}"


def _holds(*, holds: bool) -> str:
    return '<span class="good">holds</span>' if holds else '<span class="bad">FAILS</span>'


# Sections


def _verdict(report: BuildReport) -> Iterator[str]:
    """Yield how the build ended, and the location of a failure."""
    if report.failure is None:
        yield f'<p><span class="good">{escaped(report.verdict)}</span></p>'
        return
    where = ", ".join(f"{name} {value}" for name, value in report.failure.place.items())
    yield f'<p><span class="bad">{escaped(report.verdict)}</span> {escaped(where)}</p>'
    yield f"<p>{escaped(report.failure.message)}</p>"
    if report.failure.cure:
        yield f"<p>{escaped(report.failure.cure)}</p>"


def _gates(report: BuildReport) -> Iterator[str]:
    """Yield a table of every gate's findings."""
    if not report.gates:
        return
    rows = (
        (
            escaped(finding.gate),
            escaped(finding.graph),
            f'<span class="mono">{escaped(finding.subject)}</span>',
            _number(finding.measured, ".4g"),
            finding.limit_words,
            "" if finding.used is None else share_bar(finding.used),
            finding.verdict if finding.holds is None else _holds(holds=finding.holds),
            escaped(finding.detail),
        )
        for finding in most_urgent_first(report.gates)
    )
    yield table(("gate", "graph", "of", "[measured]", "[limit]", "used", "", "besides"), rows)


def _tiles(report: BuildReport, figures: Sequence[GraphFigures]) -> str:
    tiles: list[tuple[str, str]] = []
    shares = [(finding.used, finding) for finding in report.gates if finding.used is not None]
    if shares:
        share, closest = max(shares, key=lambda pair: pair[0])
        user = closest.subject or closest.graph or "the bundle"
        words = f"of the limit of {closest.gate} used by {user}, the closest of {len(shares)}"
        tiles.append((f"{100 * share:.3g} %", words))
    curves = [curve for group in report.drift.values() for curve in group]
    if curves:
        worst = max(curves, key=lambda curve: curve.growth)
        tiles.append((f"{worst.growth:.2f} times", f"growth of the error of {worst.tensor} over {worst.steps} calls"))
    weights = sum(graph_figures.original.weight_bytes for graph_figures in figures)
    if report.sizes:
        graphs = sum(_graph_bytes(report, graph_figures.graph) for graph_figures in figures)
        against = f", its graphs {100 * graphs / weights:.0f} % of the original's weights" if weights else ""
        tiles.append((f"{sum(report.sizes.values()) / 1e6:.1f} MB", f"bundle{against}"))
    for graph_figures in figures:
        speed = next((row for row in report.speed if row.graph == graph_figures.graph), None)
        if speed is not None and graph_figures.original.p50_ms:
            ratio = graph_figures.original.p50_ms / speed.p50_ms
            tiles.append(
                (
                    f"{speed.p50_ms:.2f} ms",
                    f"a call of {graph_figures.graph}; the original takes {ratio:.2f} times that",
                )
            )
    cells = "".join(f'<div class="tile"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in tiles)
    return f'<div class="tiles">{cells}</div>'


def _share(value: float, limit: float) -> float:
    return value / limit if limit and not math.isnan(value) else math.inf


def _stages(report: BuildReport) -> Iterator[str]:
    rows = [
        (
            escaped(stage.graph),
            escaped(stage.stage),
            _number(stage.max_abs),
            _number(stage.limit),
            share_bar(_share(stage.max_abs, stage.limit)),
            _db(stage.sqnr_db),
            "cached" if stage.cached else f"{stage.seconds:.2f}",
        )
        for stage in report.stages
        if stage.max_abs is not None and stage.limit is not None
    ]
    if rows:
        yield '<p class="soft">After every pass, and as it ships: the tensor that uses most of its limit.</p>'
        yield table(["graph", "stage", "[max abs]", "[limit]", "used", "[SQNR dB]", "[seconds]"], rows)


def _drift(report: BuildReport) -> Iterator[str]:
    for graph, curves in report.drift.items():
        if not curves:
            continue
        yield (
            f'<p class="soft">{escaped(graph)}: root mean square of the error over {curves[0].steps} chained calls; '
            f"the number behind a name is the second half over the first.</p>"
        )
        yield drift_chart(curves)


def _histograms(figures: Sequence[GraphFigures]) -> Iterator[str]:
    for entry in figures:
        if not entry.histograms:
            continue
        yield (
            f'<p class="legend"><span>{escaped(entry.graph)}</span><span><i class="swatch right"></i>reference</span>'
            f'<span><i class="swatch got"></i>shipped</span>'
            f'<span class="soft">heights on a square-root scale</span></p>'
        )
        yield '<div class="histograms">'
        for shown in entry.histograms:
            yield (
                f'<figure><figcaption><span class="mono">{escaped(shown.tensor)}</span><br/>'
                f'<span class="soft">SQNR {_db(shown.sqnr_db)} dB, max abs {shown.max_abs:.2e}'
                f"{'<br/>' + escaped(shown.source) if shown.source else ''}</span></figcaption>"
                f"{histogram_chart(shown)}</figure>"
            )
        yield "</div>"


def _precision(report: BuildReport, figures: Sequence[GraphFigures]) -> Iterator[str]:
    for graph_figures in figures:
        groups, edges, hidden = group_boxes(graph_figures.boxes, (Precision.PINNED,))
        counts = {
            kind: sum(box.kind is kind and box.op != "input" for box in graph_figures.boxes) for kind in Precision
        }
        legend = "".join(
            f'<span><i class="swatch {kind.name.lower()}"></i>{escaped(kind.value)}: {count}</span>'
            for kind, count in counts.items()
            if count
        )
        yield f"<h3>{escaped(graph_figures.graph)}</h3>"
        yield f'<p class="legend">{legend}</p>'
        folded = f"; chains of one kind are one box, {hidden} nodes of sizes are left out" if hidden else ""
        yield f'<p class="soft">What ships, node by node; a tooltip has types, ranges and source lines{folded}.</p>'
        anchor = f"zoom-{graph_figures.graph}"
        yield (
            f'<input type="checkbox" class="zoom" id="{escaped(anchor)}"/>'
            f'<label for="{escaped(anchor)}">at full size</label>'
        )
        yield f'<div class="map">{chr(10).join(drawn(groups, edges, {}))}</div>'
    records = [(stage, record) for stage in report.stages for record in stage.precision]
    pins = [(stage, record) for stage, record in records if isinstance(record, Pin)]
    ranges = [(stage, record) for stage, record in records if isinstance(record, TensorRange)]
    if pins:
        yield f"<h3>{len(pins)} nodes kept precise</h3>"
        yield table(["pass", "node", "why", "[value]", "[cost]", "source"], (_pin_row(*pin) for pin in pins))
    if ranges:
        yield f"<h3>{len(ranges)} ranges of quantised tensors</h3>"
        ordered = sorted(ranges, key=lambda pair: -pair[1].clipped)
        columns = ["pass", "tensor", "[low]", "[high]", "chosen by", "[clipped %]", "[scales]", "type"]
        yield table(columns, (_range_row(*chosen_range) for chosen_range in ordered))


def _pin_row(stage: StageReport, pin: Pin) -> tuple[str, ...]:
    cost = "" if pin.cost is None else f"{pin.cost:.3g} {pin.cost_unit}"
    node = f'{escaped(pin.op)} <span class="mono">{escaped(pin.node)}</span>'
    source = f'<span class="mono">{escaped(pin.source)}</span>'
    return escaped(stage.stage), node, escaped(pin.reason), _number(pin.value, ".4g"), escaped(cost), source


def _range_row(stage: StageReport, found: TensorRange) -> tuple[str, ...]:
    return (
        escaped(stage.stage),
        f'<span class="mono">{escaped(found.tensor)}</span>',
        f"{found.low:.4g}",
        f"{found.high:.4g}",
        escaped(found.method),
        f"{100 * found.clipped:.3g}",
        str(found.channels),
        escaped(found.type),
    )


def _compression(report: BuildReport) -> Iterator[str]:
    """Yield the picture of what was given up for time, and a table of the products that it was taken of."""
    for stage in report.stages:
        if stage.compression is None:
            continue
        yield f"<h3>{escaped(stage.graph)}</h3>"
        yield f'<p class="soft">{escaped(stage.detail)}. The line is what the choice predicts on its way.</p>'
        yield compression_chart(stage.compression)
        columns = [
            "product",
            "[channels]",
            "[left]",
            "[saves ms]",
            "[alone dB]",
            "[fitted dB]",
            "[results dB]",
            "source",
        ]
        yield table(columns, map(_cut_row, stage.compression.cuts))
        if (training := stage.compression.training) is not None:
            minutes = f"{training.seconds / 60:.1f} minutes"
            yield f'<p class="soft">Answers on streams that nothing was trained on, {minutes}.</p>'
            rows = ((str(update), f"{distance:.4g}") for update, distance in training.curve)
            yield table(["[updates]", f"[apart, {training.unit}]"], rows)


def _cut_row(cut: Cut) -> tuple[str, ...]:
    shares = ("" if db is None else f"{db:.1f}" for db in (cut.alone_db, cut.fitted_db, cut.noise_db))
    name, source = (f'<span class="mono">{escaped(text)}</span>' for text in (cut.node, cut.source))
    return name, str(cut.before), str(cut.after), f"{cut.saved_ms:.3f}", *shares, source


def _passes(report: BuildReport) -> Iterator[str]:
    rows = []
    for stage in report.stages:
        if not (stage.matched or stage.rewritten or stage.refused):
            continue
        reasons = list(dict.fromkeys(stage.refused))
        listed = "".join(f"<li>{escaped(reason)}</li>" for reason in reasons)
        refused = f"<details><summary>{len(stage.refused)}</summary><ul>{listed}</ul></details>" if reasons else "0"
        rows.append(
            (
                escaped(stage.graph),
                escaped(stage.stage),
                str(stage.matched),
                str(stage.rewritten),
                refused,
                escaped(stage.detail),
            )
        )
    if rows:
        yield table(["graph", "pass", "[matched]", "[rewritten]", "refused", ""], rows)


def _forms(report: BuildReport) -> Iterator[str]:
    """Yield tables of a search's measurements and of the forms that it has kept."""
    for search in report.searches:
        yield (
            f'<p class="soft">{escaped(search.graph)}: time with a form to that without it, measured in '
            f"{search.seconds:.0f} s on {escaped(search.machine)}</p>"
        )
        yield table(HEADS, [tuple(map(escaped, row)) for row in search.rows()])
    if report.forms:
        yield f"<p>The same on every machine: <code>{escaped(report.forms)}</code></p>"


def _costs(report: BuildReport, figures: Sequence[GraphFigures]) -> Iterator[str]:
    if figures:
        rows = [
            (
                escaped(graph_figures.graph),
                f"{graph_figures.original.weight_bytes / 1e6:.2f}",
                f"{_graph_bytes(report, graph_figures.graph) / 1e6:.2f}",
                str(graph_figures.original.nodes),
                str(graph_figures.nodes),
                f"{graph_figures.original.p50_ms:.3f}",
            )
            for graph_figures in figures
        ]
        columns = ["graph", "[original MB]", "[shipped MB]", "[original nodes]", "[shipped nodes]", "[original p50 ms]"]
        yield (
            '<p class="soft">The original is the graph as it was captured, in ONNX Runtime with its own optimisations, '
            "one row, one thread, caches full; sizes are those of its weights and of all files of the graph.</p>"
        )
        yield table(columns, rows)
    if report.speed:
        yield "<h3>One call of what ships</h3>"
        original = {graph_figures.graph: graph_figures.original.p50_ms for graph_figures in figures}
        yield table(
            ["graph", "sizes", "[threads]", "[p50 ms]", "[p95 ms]", "[original / shipped]"],
            (
                (
                    escaped(row.graph),
                    escaped(row.sizes),
                    str(row.threads),
                    f"{row.p50_ms:.3f}",
                    f"{row.p95_ms:.3f}",
                    f"{original[row.graph] / row.p50_ms:.2f}" if row.graph in original and row.p50_ms else "",
                )
                for row in report.speed
            ),
        )
    if report.sizes:
        total = sum(report.sizes.values())
        rows_of_files = [(f'<span class="mono">{escaped(n)}</span>', f"{b:,}") for n, b in sorted(report.sizes.items())]
        yield f"<details><summary>{len(report.sizes)} files, {total:,} bytes</summary>"
        yield table(["file", "[bytes]"], rows_of_files)
        yield "</details>"


def _graph_bytes(report: BuildReport, graph: str) -> int:
    prefix = f"graphs/{graph}."
    return sum(size for name, size in report.sizes.items() if name.startswith(prefix))


def _engines(report: BuildReport) -> Iterator[str]:
    rows = [
        (escaped(row.graph), escaped(row.status), escaped(row.words), escaped(row.reason)) for row in report.engines
    ]
    if rows:
        yield table(["graph", "in the bundle", "looked at", "why"], rows)
