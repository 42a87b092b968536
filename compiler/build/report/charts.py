"""Draws the charts of a build's HTML report as inline SVG; the page's style sheet sets colours and fonts."""

import math
from collections.abc import Iterator, Sequence

from compiler.base.records.compression import Compression, Point
from compiler.base.records.drift_curves import DriftCurve
from compiler.build.report.graph_drawing import escaped
from compiler.build.report.page_figures import TensorHistogram
from compiler.calib.noise import SILENT_DB

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 14, 34
"""Pixels around the plot: numbers on the left, names on the right."""

LINES = 5
"""Curves with a name and a colour of their own; the others are drawn pale."""

LEAST = 1e-12
"""An error below this is drawn as this: a logarithm has no place for zero."""


def drift_chart(curves: Sequence[DriftCurve]) -> str:
    """Return a chart of errors over chained calls on a logarithmic scale, with names at the fastest growing."""
    shown = sorted(curves, key=lambda curve: -curve.growth)
    tops = [max(max(_finite(curve.errors), default=LEAST), LEAST) for curve in curves]
    bottoms = [max(min((e for e in _finite(curve.errors) if e > LEAST), default=LEAST), LEAST) for curve in curves]
    high = math.ceil(math.log10(max(tops)) + 1e-9)
    low = max(min(math.floor(math.log10(min(bottoms))), high - 1), high - 8)
    steps = max(curve.steps for curve in curves)
    lines = [_open("drift", "error over chained calls")]
    for exponent in range(low, high + 1):
        y = _y(exponent, low, high)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{10.0**exponent:.0e}</text>')
    for part in range(5):
        x = LEFT + (WIDTH - LEFT - RIGHT) * part / 4
        lines.append(f'<text class="tick middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{steps * part // 4}</text>')
    warm = LEFT + (WIDTH - LEFT - RIGHT) * shown[0].warm / steps
    if shown[0].warm:
        lines.append(f'<line class="mark" x1="{warm:.1f}" x2="{warm:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        lines.append(f'<text class="tick" x="{warm + 4:.1f}" y="{HEIGHT - BOTTOM - 6}">caches full</text>')
    labels: list[float] = []
    for number, curve in reversed(list(enumerate(shown))):
        named = number < LINES
        points = [
            (_x(index, len(curve.errors)), _y(_log(error), low, high)) for index, error in enumerate(curve.errors)
        ]
        style = f"curve c{number}" if named else "curve pale"
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        title = f"{curve.tensor}: {curve.early:.3g} in the first half, {curve.late:.3g} in the second"
        lines.append(f'<polyline class="{style}" points="{path}"><title>{escaped(title)}</title></polyline>')
    for number, curve in enumerate(shown[:LINES]):
        y = _apart(_y(_log(curve.errors[-1]), low, high) + 4, labels)
        labels.append(y)
        words = f"{_short(curve.tensor, 15)} {curve.growth:.2f}"
        lines.append(f'<text class="name c{number}" x="{WIDTH - RIGHT + 8}" y="{y:.1f}">{escaped(words)}</text>')
    return "\n".join([*lines, "</svg>"])


def _finite(numbers: Sequence[float]) -> list[float]:
    return [each for each in numbers if math.isfinite(each)]


def _log(error: float) -> float:
    return math.log10(min(max(error, LEAST), 1e30))


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (index + 0.5) / count


def _y(exponent: float, low: int, high: int) -> float:
    share = min(max((exponent - low) / (high - low), 0.0), 1.0)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _apart(y: float, taken: Sequence[float]) -> float:
    """Return the nearest height to `y` at which a label covers no other."""
    tried = sorted((y + 15 * step for step in range(-LINES, LINES + 1)), key=lambda each: abs(each - y))
    return next((each for each in tried if all(abs(each - other) >= 14 for other in taken)), y)


def compression_chart(compression: Compression) -> str:
    """Return a chart of what results lose, in dB, by the time that is left; the choice is marked, predicted and not."""
    measured = compression.measured
    points = [point for point in compression.predicted if point.noise_db < SILENT_DB]
    shown = [point.noise_db for point in (*points, measured) if math.isfinite(point.noise_db)]
    low, high = math.floor(min(shown, default=0.0) / 10), math.ceil(max(shown, default=10.0) / 10)
    high = max(high, low + 1)
    left = min(point.time for point in (*compression.predicted, measured))
    first = min(math.floor(10 * left) / 10, 0.9)

    def place(point: Point) -> tuple[float, float]:
        share = min(max((point.time - first) / (1.0 - first), 0.0), 1.0)
        return LEFT + (WIDTH - LEFT - RIGHT) * share, _y(point.noise_db / 10, low, high)

    lines = [_open("drift", "signal to noise of the results by the time of a call")]
    for tens in range(low, high + 1):
        y = _y(tens, low, high)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{10 * tens} dB</text>')
    for tenth in range(round(10 * first), 11):
        x, _ = place(Point(tenth / 10, 0.0))
        lines.append(f'<text class="tick middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{tenth / 10:.1f}</text>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
    lines.append(f'<polyline class="curve c0" points="{path}"><title>predicted</title></polyline>')
    for words, point in (("predicted", compression.predicted[-1]), ("measured", measured)):
        x, y = place(point)
        lines.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{words}</title></circle>')
    x, y = place(measured)
    words = f"{measured.time:.2f} of the time, {measured.noise_db:.1f} dB"
    lines.append(f'<text class="name c0" x="{x + 8:.1f}" y="{max(y - 6, TOP + 8):.1f}">{escaped(words)}</text>')
    return "\n".join([*lines, "</svg>"])


def histogram_chart(histogram: TensorHistogram) -> str:
    """Return a histogram of the reference as an area and of the bundle as a line, heights as square roots."""
    width, height, bottom = 360, 120, 18
    top = max(max(histogram.reference), max(histogram.shipped), 1)
    count = len(histogram.reference)

    def outline(counts: Sequence[int]) -> Iterator[str]:
        for bin_number, number in enumerate(counts):
            y = height - bottom - (height - bottom - 4) * math.sqrt(number / top)
            yield f"{width * bin_number / count:.1f},{y:.1f}"
            yield f"{width * (bin_number + 1) / count:.1f},{y:.1f}"

    base = height - bottom
    area = " ".join([f"0,{base}", *outline(histogram.reference), f"{width},{base}"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="histogram" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escaped(histogram.tensor)}: reference and shipped</title>"
        f'<polygon class="reference" points="{area}"/>'
        f'<polyline class="shipped" points="{" ".join(outline(histogram.shipped))}"/>'
        f'<line class="grid" x1="0" x2="{width}" y1="{base}" y2="{base}"/>'
        f'<text class="tick" x="0" y="{height - 4}">{histogram.low:.3g}</text>'
        f'<text class="tick end" x="{width}" y="{height - 4}">{histogram.high:.3g}</text></svg>'
    )


def share_bar(share: float) -> str:
    """Return the used share of a limit as a bar of 120 pixels, full where it is exceeded."""
    width = 120 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 120.0
    style = "used" if share <= 1.0 else "used over"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" viewBox="0 0 120 10" role="img">'
        f"<title>{100 * share:.3g} % of the limit</title>"
        f'<rect class="rest" width="120" height="10" rx="3"/>'
        f'<rect class="{style}" width="{max(width, 1.0):.1f}" height="10" rx="3"/></svg>'
    )


def _open(style: str, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{style}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escaped(title)}</title>"
    )


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
