"""Draws the results of a load test: the latency of each request over time, and the distribution of latencies."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runtime_lite.load_test.arrivals import NS_PER_S, Kind
from runtime_lite.load_test.findings import Served

WIDTH, HEIGHT, MARGIN, GAP = 900, 340, 56, 60
PANEL, TALL = (WIDTH - 2 * MARGIN - GAP) / 2, HEIGHT - 2 * MARGIN
LEFT, RIGHT, BOTTOM = MARGIN, MARGIN + PANEL + GAP, HEIGHT - MARGIN

COLOURS: dict[Kind, str] = {"stream": "#0072b2", "utterance": "#e69f00", "burst": "#009e73"}
"""Colours that colour-blind readers can distinguish (Okabe and Ito)."""

LOST, GRID = "#d55e00", "#ddd"
MOST_POINTS, MOST_STEPS = 6000, 200
LOWEST = -1
"""Power of ten, in ms, at which the scale of latencies begins."""


def picture_of(served: Sequence[Served], soft_ms: Mapping[Kind, float], title: str) -> str:
    """Return an SVG: on the left latency over the time of arrival, on the right the share answered within a latency."""
    scale = _scale_of(served)
    font = 'font-family="sans-serif" font-size="12"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, title, 'font-size="14" font-weight="bold"'),
        *_frame(scale),
        *_points(served, scale),
    ]
    for number, kind in enumerate(kind for kind in COLOURS if any(request.arrival.kind == kind for request in served)):
        of_kind = [request for request in served if request.arrival.kind == kind]
        lines += _curve(of_kind, COLOURS[kind], scale)
        lines += _target(soft_ms[kind], COLOURS[kind], scale)
        done = sum(request.outcome == "done" for request in of_kind)
        label = f"{kind}: {done} of {len(of_kind)}, target {soft_ms[kind]:g} ms"
        lines.append(_text(LEFT + 250 * number, HEIGHT - 12, label, f'fill="{COLOURS[kind]}"'))
    return "\n".join([*lines, "</svg>", ""])


@dataclass(frozen=True)
class _Scale:
    """Ends of the axes: of latency, logarithmic, as a power of ten of ms; of time in seconds."""

    highest: int
    seconds: float

    def latency(self, ms: float) -> float:
        """Return the position of a latency on its axis, from 0 to 1."""
        return (math.log10(max(ms, 10.0**LOWEST)) - LOWEST) / (self.highest - LOWEST)


def _scale_of(served: Sequence[Served]) -> _Scale:
    most_ms = max((each.latency_ms for each in served if each.outcome == "done"), default=1.0)
    seconds = max((each.arrival.at for each in served), default=0) / NS_PER_S
    return _Scale(max(0, math.ceil(math.log10(max(most_ms, 1.0)))), seconds or 1.0)


def _frame(scale: _Scale) -> Iterator[str]:
    """Yield the grid, the numbers and the headings of both panels."""
    for power in range(LOWEST, scale.highest + 1):
        number, share = f"{10.0**power:g}", scale.latency(10.0**power)
        yield from _rung(LEFT, share, number)
        yield _line(RIGHT + PANEL * share, MARGIN, RIGHT + PANEL * share, BOTTOM, f'stroke="{GRID}"')
        yield _text(RIGHT + PANEL * share, BOTTOM + 16, number, 'text-anchor="middle"')
    for quarter in range(5):
        yield _text(
            LEFT + PANEL * quarter / 4, BOTTOM + 16, f"{scale.seconds * quarter / 4:.3g}", 'text-anchor="middle"'
        )
        yield from _rung(RIGHT, quarter / 4, f"{quarter * 25} %")
    yield _text(LEFT, MARGIN - 10, "latency in ms over the time of arrival in s")
    yield _text(RIGHT, MARGIN - 10, "answered within a latency in ms")


def _rung(left: float, share: float, number: str) -> Iterator[str]:
    """Yield a horizontal line of a panel, with its number."""
    y = BOTTOM - TALL * share
    yield _line(left, y, left + PANEL, y, f'stroke="{GRID}"')
    yield _text(left - 6, y + 4, number, 'text-anchor="end"')


def _points(served: Sequence[Served], scale: _Scale) -> Iterator[str]:
    """Yield a dot for each answer and a stroke at the top for each request without one, at most `MOST_POINTS`."""
    for each in served[:: max(1, math.ceil(len(served) / MOST_POINTS))]:
        x = LEFT + PANEL * each.arrival.at / NS_PER_S / scale.seconds
        if each.outcome == "done":
            y = BOTTOM - TALL * scale.latency(each.latency_ms)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.5" fill="{COLOURS[each.arrival.kind]}"/>'
        else:
            yield _line(x, MARGIN, x, MARGIN + 8, f'stroke="{LOST}"')


def _curve(served: Sequence[Served], colour: str, scale: _Scale) -> Iterator[str]:
    """Yield the curve of the share of requests answered within a latency; it ends below 100 % if some are not."""
    times = sorted(each.latency_ms for each in served if each.outcome == "done")
    places = [*range(0, len(times), max(1, len(times) // MOST_STEPS)), len(times) - 1] if times else []
    path = " ".join(
        f"{RIGHT + PANEL * scale.latency(times[at]):.1f},{BOTTOM - TALL * (at + 1) / len(served):.1f}" for at in places
    )
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _target(ms: float, colour: str, scale: _Scale) -> Iterator[str]:
    """Yield a dashed line at the soft target, if it is within the scale."""
    if ms <= 10.0**scale.highest:
        x = RIGHT + PANEL * scale.latency(ms)
        yield _line(x, MARGIN, x, BOTTOM, f'stroke="{colour}" stroke-dasharray="4 3"')


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(words)}</text>'
