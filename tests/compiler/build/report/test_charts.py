"""report_charts: every curve and every bin is drawn inside its frame, whatever the numbers are."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from compiler.base.records.compression import Compression, Point
from compiler.base.records.drift_curves import DriftCurve
from compiler.build.report.charts import HEIGHT, WIDTH, compression_chart, drift_chart, histogram_chart, share_bar
from compiler.build.report.page_figures import TensorHistogram

SVG = "{http://www.w3.org/2000/svg}"


def curve(name: str, growth: float = 1.0, errors: tuple[float, ...] = (1e-4, 2e-4, 1e-4)) -> DriftCurve:
    return DriftCurve(name, True, 1000, 8, 1.0, 1e-4, growth * 1e-4, errors)


def points_of(svg: str) -> list[tuple[float, float]]:
    found = [element.get("points", "") for element in ET.fromstring(svg).iter()]
    return [(float(x), float(y)) for text in found for x, y in re.findall(r"([-\d.]+),([-\d.]+)", text)]


@pytest.mark.parametrize(
    "errors", [(0.0, 0.0), (1e-30, 1e30), (float("inf"), 1e-3), (1e-3,), (1e-9, 1e-3, 1e-6)], ids=str
)
def test_curves_stay_in_the_frame(errors: tuple[float, ...]) -> None:
    svg = drift_chart([curve("a", errors=errors), curve("b")])
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points_of(svg))
    ticks = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert len([tick for tick in ticks if tick is not None and "e" in tick and tick[0].isdigit()]) >= 2


def test_what_grows_most_is_named_and_labels_do_not_cover_each_other() -> None:
    svg = drift_chart([curve(f"state_{at}", growth=1.0 + at / 10) for at in range(9)])
    names = [text for text in ET.fromstring(svg).iter(f"{SVG}text") if "name" in str(text.get("class"))]
    assert [text.text for text in names] == [f"state_{at} {1.0 + at / 10:.2f}" for at in (8, 7, 6, 5, 4)]
    heights = sorted(float(str(text.get("y"))) for text in names)
    assert all(b - a >= 14 for a, b in itertools.pairwise(heights))
    assert svg.count("<polyline") == 9


def test_histograms_show_both_sides() -> None:
    svg = histogram_chart(TensorHistogram("<x>", "", -1.0, 2.0, (0, 4, 16), (1, 9, 0), 0.1, 20.0))
    assert "&lt;x&gt;" in svg
    assert {"-1", "2"} <= {text.text for text in ET.fromstring(svg).iter(f"{SVG}text")}
    assert min(y for _, y in points_of(svg)) == 4.0, "the fullest bin reaches the top"
    ET.fromstring(histogram_chart(TensorHistogram("x", "", 0.0, 1.0, (0,), (0,), 0.0, None)))


@pytest.mark.parametrize(
    ("share", "width", "over"), [(0.0, 1.0, False), (0.5, 60.0, False), (3.0, 120.0, True), (float("inf"), 120.0, True)]
)
def test_bars(share: float, width: float, over: bool) -> None:
    used = ET.fromstring(share_bar(share)).findall(f"{SVG}rect")[1]
    assert float(str(used.get("width"))) == width
    assert ("over" in str(used.get("class"))) is over


@pytest.mark.parametrize("measured", [Point(0.71, 18.2), Point(0.71, float("-inf")), Point(1.2, 300.0)], ids=str)
def test_what_was_given_up_for_time_stays_in_the_frame_and_the_choice_is_marked(measured: Point) -> None:
    way = (Point(1.0, 300.0), Point(0.95, 300.0), Point(0.9, 41.0), Point(0.7, 19.5))
    svg = compression_chart(Compression((), way, measured))
    assert len(points_of(svg)) == 2, "where nothing is lost yet there is no place on the scale"
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points_of(svg))
    dots = [(float(str(dot.get("cx"))), float(str(dot.get("cy")))) for dot in ET.fromstring(svg).iter(f"{SVG}circle")]
    assert len(dots) == 2 and dots[0] == points_of(svg)[-1]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in dots)
    assert f"{measured.time:.2f} of the time" in svg
