"""Every legal spelling of an Expand and of a Tile gives the sizes that NumPy gives."""

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.operators.repeats import Expand, Tile, expand_of, tile_of
from tests.kit.graphs import node_named, parse


def expand(shape: str, target: str) -> Expand | None:
    kind = f"int64[{len(target.split(','))}]"
    text = f"(float[{shape}] x) => (float[a] y) <{kind} target = {{{target}}}> {{ y = Expand(x, target) }}"
    return expand_of(node_named(parse(text), "y"), graphs.integers_of)


SHAPES = [(3, 1), (1, 3), (1, 1), (1, 2, 1)]
TARGETS = [target for rank in (1, 2, 3) for target in itertools.product((1, 2, 3), repeat=rank)]


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_of_an_expand(shape: tuple[int, ...]) -> None:
    for target in TARGETS:
        try:
            result = np.broadcast_shapes(shape, target)
        except ValueError:
            continue
        view = expand(",".join(map(str, shape)), ", ".join(map(str, target)))
        assert view is not None and str(view.data.name) == "x" and str(view.target.name) == "target"
        assert view.of(shape) == result and len(view.sizes) == len(result) == len(shape) + view.added
        entries = [view.entry(axis) for axis in range(len(result))]
        assert entries == [*[None] * view.unnamed, *range(len(target))]
        assert [1 if at is None else target[at] for at in entries] == list(view.sizes)


def test_spellings_of_one_expand_ask_for_the_same_sizes() -> None:
    views = [expand("3, 1", target) for target in ("4", "1, 4")]
    assert [(view.sizes, view.added) for view in views if view is not None] == [((1, 4), 0)] * 2


def test_sizes_that_follow_from_lengths_or_are_unknown() -> None:
    text = "(float[time,1] x, int64[2] given, int64[k] any) => (float[a,b] y) { n = Shape<end = 1>(x)  OP }"
    model = parse(text.replace("OP", "y = Expand(x, n)"))
    view = expand_of(node_named(model, "y"), graphs.integers_of)
    time = graphs.symbol("time")
    assert view is not None and view.sizes == (1, time) and view.of((time, 1)) == (time, time)
    unknown = expand_of(node_named(parse(text.replace("OP", "y = Expand(x, given)")), "y"), graphs.integers_of)
    assert unknown is not None and unknown.sizes == (None, None) and unknown.of((3, 1)) == (3, None)
    assert expand_of(node_named(parse(text.replace("OP", "y = Expand(x, any)")), "y"), graphs.integers_of) is None
    assert expand_of(node_named(model, "n"), graphs.integers_of) is None and tile_of(None, graphs.integers_of) is None


def tile(text: str) -> Tile | None:
    model = parse(f"(float[time,2] x, int64[2] given) => (float[a,b] y) <int64[2] times = {{1, 3}}> {{ {text} }}")
    return tile_of(node_named(model, "y"), graphs.integers_of)


def test_repeats_of_a_tile() -> None:
    view = tile("y = Tile(x, times)")
    assert view is not None and view.repeats == view.known == (1, 3) and str(view.counts.name) == "times"
    assert (str(view.data.name), tile("y = Neg(x)")) == ("x", None)


def test_repeats_that_follow_from_lengths_or_are_unknown() -> None:
    view = tile("y = Tile(x, given)")
    assert view is not None and view.repeats == (None, None) and view.known is None
    computed = tile("n = Shape(x)  y = Tile(x, n)")
    assert computed is not None and computed.known == (graphs.symbol("time"), 2)


def test_operators_of_another_domain_are_none_of_these() -> None:
    x, sizes = ir.Value(name="x", shape=ir.Shape([1])), ir.Value(name="s", shape=ir.Shape([1]))
    assert expand_of(ir.node("Expand", [x, sizes], domain="com.acme"), graphs.integers_of) is None
    assert tile_of(ir.node("Tile", [x, sizes], domain="com.acme"), graphs.integers_of) is None
