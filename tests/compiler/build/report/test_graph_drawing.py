"""graph_drawing: small graphs node by node, large ones in groups, in the colours of the kinds."""

import xml.etree.ElementTree as ET

from compiler.build.report.graph_drawing import GROUP_ABOVE, Box, drawn, escaped, group_boxes
from compiler.front.explain.words import Kind

SVG = "{http://www.w3.org/2000/svg}"


def chain(count: int) -> list[Box]:
    """A long chain with a side branch at every tenth node, of which every hundredth is inserted."""
    boxes = [Box("x", "input", Kind.ANYTHING, "", True, ("x",), (), ("v0",))]
    for at in range(1, count):
        kind = Kind.INSERTED if at % 100 == 0 else Kind.FINITE
        side = (f"v{at - 10}",) if at % 10 == 0 and at > 10 else ()
        boxes.append(Box(f"n{at}", "Add", kind, "finite", True, (f"n{at}",), (f"v{at - 1}", *side), (f"v{at}",)))
    return boxes


def test_small_graphs_are_drawn_node_by_node() -> None:
    groups, edges, hidden = group_boxes(chain(GROUP_ABOVE))
    assert (len(groups), hidden) == (GROUP_ABOVE, 0)
    assert all(start < end for start, end in edges)


def test_large_graphs_are_drawn_in_chains_of_one_kind_without_what_nothing_reaches() -> None:
    boxes = [*chain(2000), *(Box(f"s{at}", "Shape", Kind.NONE, "", False, (), (), ()) for at in range(7))]
    groups, edges, hidden = group_boxes(boxes)
    assert hidden == 7
    assert len(groups) < 600
    assert sum(len(group.boxes) for group in groups) == 2000
    assert all(len({box.kind for box in group.boxes}) == 1 for group in groups)
    assert all(start < end for start, end in edges)
    assert sum(group.kind is Kind.INSERTED for group in groups) == 19


def test_kinds_that_stand_alone_are_not_joined() -> None:
    groups, _, _ = group_boxes(chain(GROUP_ABOVE + 10), alone=(Kind.FINITE,))
    assert all(len(group.boxes) == 1 for group in groups)


def test_kinds_without_a_style_are_left_to_the_style_sheet() -> None:
    groups, edges, _ = group_boxes(chain(120))
    svg = ET.fromstring("".join(drawn(groups, edges, {Kind.FINITE: "fill:red"})))
    styles = {str(g.get("class")): g.findall(f"{SVG}rect")[0].get("style") for g in svg.iter(f"{SVG}g")}
    assert styles == {"node finite": "fill:red", "node inserted": None, "node anything": None}
    assert escaped("<a\x00") == "&lt;a?"
