"""The picture of a load is sound SVG with a mark per request, whatever came."""

import xml.etree.ElementTree
from collections import Counter

import pytest

from runtime_lite.load_test.arrivals import Arrival
from runtime_lite.load_test.findings import Served
from runtime_lite.load_test.picture import COLOURS, HEIGHT, LOST, MOST_POINTS, WIDTH, picture_of
from tests.runtime_lite.load_test.test_findings import SOFT, chunk
from tests.runtime_lite.serving.happenings import MS


def marks(svg: str) -> Counter[str]:
    """Circles by colour, and strokes of what was lost; everything must lie inside."""
    found: Counter[str] = Counter()
    for element in xml.etree.ElementTree.fromstring(svg).iter():
        tag = element.tag.rpartition("}")[2]
        for x, y in (("cx", "cy"), ("x1", "y1"), ("x2", "y2"), ("x", "y")):
            if x in element.attrib:
                assert 0 <= float(element.attrib[x]) <= WIDTH
                assert 0 <= float(element.attrib[y]) <= HEIGHT
        if tag == "circle":
            found[element.attrib["fill"]] += 1
        elif tag == "line" and element.attrib["stroke"] == LOST:
            found[LOST] += 1
    return found


def test_each_request_is_a_mark_in_the_colour_of_its_kind() -> None:
    burst = [Served(Arrival(5 * MS, "burst", 0, item, True), "done", "", 10_000 * MS, 5 * MS) for item in range(3)]
    served = [*(chunk(100 * item, item, 20) for item in range(7)), chunk(100, 9, 1, outcome="dropped"), *burst]
    svg = picture_of(served, SOFT, "a < b & c")
    assert marks(svg) == {COLOURS["stream"]: 7, COLOURS["burst"]: 3, LOST: 1}
    assert "stream: 7 of 8, target 100 ms" in svg
    assert "a &lt; b &amp; c" in svg


@pytest.mark.parametrize("served", [[], [chunk(0, 0, 0)], [chunk(0, 0, 5, outcome="refused")]])
def test_little_is_drawn_too(served: list[Served]) -> None:
    marks(picture_of(served, SOFT, "little"))


def test_a_long_load_stays_a_picture_of_bounded_size() -> None:
    served = [chunk(item, item, 3) for item in range(5 * MOST_POINTS)]
    assert marks(picture_of(served, SOFT, "long")).total() <= MOST_POINTS
