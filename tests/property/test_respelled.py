"""What is proved of a graph hangs on no spelling of its operators."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import parse
from tests.property.respelled import OUTCOMES, compare, compare_as_files, compare_pair, compare_random, comparisons
from tests.property.respelling import Respelling
from tests.property.spelled_graphs import PAIRS, SPELLED, graph

OFTEN_MISREAD = (
    "first sizes", "sizes turned round", "every second size", "last frames of all axes",
    "newest and every other channel", "delayed", "valid max pool", "clip below", "triangle that says its diagonal",
    "layer norm without a bias", "same convolution in steps", "attention of any keys",
)  # fmt: skip


@pytest.mark.parametrize("name", OFTEN_MISREAD)
def test_the_same_is_proved_of_every_spelling(name: str) -> None:
    assert {compare(graph(SPELLED[name]), seed) for seed in range(2)} <= OUTCOMES


def test_windows_of_one_entry_are_proved_the_same_however_they_are_padded() -> None:
    assert compare_random(20048) == "accepted"


@pytest.mark.parametrize("name", ["last size", "delayed"])
def test_the_same_is_proved_of_a_file(name: str) -> None:
    assert compare_as_files(graph(SPELLED[name]), 0) in OUTCOMES


@pytest.mark.parametrize(("first", "body", "second", "other"), [pair[1:] for pair in PAIRS[4:7]])
def test_the_same_is_proved_of_other_operators(first: int, body: str, second: int, other: str) -> None:
    assert compare_pair(graph(body, opset=first), graph(other, opset=second)) == "accepted"


@pytest.mark.slow
def test_the_same_is_proved_of_many_spellings() -> None:
    assert {comparison() for _, comparison in comparisons(500, 1000)} <= OUTCOMES


def test_every_spelling_of_a_slice_is_drawn() -> None:
    drawn = set()
    for seed in range(24):
        model = parse(
            """(float[batch,time,8] x) => (float[a,time,8] y) <int64[1] zero = {0}, int64[1] end = {3}>
            { y = Slice(x, zero, end, zero) }"""
        )
        Respelling(model, np.random.default_rng(seed)).apply()
        (node,) = model.graph
        drawn.add((_shown(node, 2), *(_shown(node, at) for at in (3, 4))))
    assert {axes for _, axes, _ in drawn} >= {None, (0,), (-3,)}
    assert any(axes is not None and len(axes) == 3 for _, axes, _ in drawn)
    assert {steps for *_, steps in drawn} >= {None, (1,)}


def _shown(node: ir.Node, at: int) -> tuple[int, ...] | None:
    array = graphs.array_of(node.inputs[at]) if at < len(node.inputs) else None
    return None if array is None else tuple(array.tolist())
