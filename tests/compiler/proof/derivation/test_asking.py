"""Of rows the new ones are asked for, of what they are mixed with all; nothing is asked for in front of a cache."""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.proof.derivation.asking import Asking
from compiler.proof.derivation.caching import Caches
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.written_sizes import Part, Parts
from tests.kit.whole_sequences import LONGEST, Drawing, whole_graph


def asked_for(drawing: Drawing) -> list[tuple[ir.Value, Parts]]:
    judging = Judging(whole_graph(drawing), "time", LONGEST)
    graph = ir.Graph([], [], nodes=[], opset_imports=dict(judging.model.graph.opset_imports))
    return Asking(judging, Caches(judging, graph, "past"), recent=0).in_order()


def parts_along(found: list[tuple[ir.Value, Parts]], value: ir.Value) -> set[Part]:
    return {part for each, parts in found if each is value for _, part in parts}


def test_rows_of_attention_are_new_and_its_columns_all_frames() -> None:
    found = asked_for(Drawing(positions="rotary", groups=1))
    weights = {each for each, _ in found if graphs.is_op(each.producer(), "Softmax")}
    assert weights
    for value in weights:
        ((_, rows), (_, columns)) = next(parts for each, parts in found if each is value)
        assert (rows, columns) == (Part.NEW, Part.ALL)


def test_what_a_cache_is_made_of_is_asked_for_anew() -> None:
    found = asked_for(Drawing(positions="rotary", groups=1))
    cached = {each for each, _ in found if parts_along(found, each) == {Part.ALL, Part.NEW} and made_anew(found, each)}
    assert sorted(str(each.dtype) for each in cached) == [
        "FLOAT",
        "FLOAT",
        "INT64",
    ]  # keys, values, and places by demand


def made_anew(found: list[tuple[ir.Value, Parts]], value: ir.Value) -> bool:
    """Whether what a value is made of is asked for in the frames of the call alone."""
    node = value.producer()
    assert node is not None
    return all(parts_along(found, each) <= {Part.NEW} for each in node.inputs if each is not None)


def test_operands_come_first() -> None:
    found = [each for each, _ in asked_for(Drawing(layers=2))]
    places = {value: at for at, value in enumerate(found)}
    for value in found:
        node = value.producer()
        assert node is not None
        assert all(places[each] < places[value] for each in node.inputs if each in places)
