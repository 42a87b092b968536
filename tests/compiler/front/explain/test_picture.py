"""The picture: well-formed, escaped, one shape per node in the right colour, still readable when the graph is large."""

import xml.etree.ElementTree as ET
from pathlib import Path

from compiler.front.explain.explanation import explain
from compiler.front.explain.picture import STYLES, picture, write_picture
from compiler.front.explain.words import Kind
from compiler.passes.pad_axes import PadAxes
from tests.compiler.front.explain.test_explanation import SOFTMAX, explained, refused
from tests.kit.offline import offline

SVG = "{http://www.w3.org/2000/svg}"


def shapes(page: str) -> dict[str, ET.Element]:
    """The groups of nodes by the first line of their tooltips."""
    found = [each for each in ET.fromstring(page).iter(f"{SVG}g") if "node" in str(each.get("class"))]
    return {str(each.findtext(f"{SVG}title")).split(":")[0]: each for each in found}


def fill(shape: ET.Element) -> str:
    (box,) = shape.findall(f"{SVG}rect")
    return str(box.get("style"))


def test_every_node_has_one_shape_in_its_colour() -> None:
    found = explained(offline(SOFTMAX))
    shown = shapes(picture(found))
    assert set(shown) == {box.name for box in found.boxes}
    assert fill(shown["scores_matmul"]) == STYLES[Kind.ANYTHING]
    assert fill(shown["scores_filled_node"]) == STYLES[Kind.INSERTED]
    assert "stroke-width" in STYLES[Kind.INSERTED]


def test_refused_nodes_are_black_and_what_follows_is_open() -> None:
    shown = shapes(picture(refused()))
    assert fill(shown["found_nonzero"]) == STYLES[Kind.REFUSED]
    assert fill(shown["y_neg"]) == STYLES[Kind.UNKNOWN]
    assert "refused" in str(shown["found_nonzero"].get("class"))


def test_tooltips_hold_fact_rule_reason_and_source() -> None:
    tooltip = str(shapes(picture(explained(offline(SOFTMAX))))["y_softmax"].findtext(f"{SVG}title"))
    for words in ("Softmax", "rule ", "tiny.py:3 in forward", ":= ", "rows(batch)"):
        assert words in tooltip


def test_legend_names_every_colour() -> None:
    page = picture(explained(offline(SOFTMAX)))
    assert all(kind.value in page for kind in Kind)


def test_names_are_escaped() -> None:
    lowered = offline(SOFTMAX)
    for node in lowered.model.graph:
        node.name = f"<script>alert('{node.name}')</script>\x07&"
    page = picture(explain(lowered, [PadAxes()]))
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#x27;y_softmax&#x27;)&lt;/script&gt;?&amp;" in page
    ET.fromstring(page)


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = picture(refused())
    links = [
        value for each in ET.fromstring(page).iter() for key, value in each.items() if key.endswith(("href", "src"))
    ]
    assert all(link.startswith("#n") for link in links)
    assert "url(" not in page and "@import" not in page


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    found = explained(offline(SOFTMAX))
    write_picture(found, tmp_path / "p.html")
    assert (tmp_path / "p.html").read_text() == picture(found)
