"""What a padded step must agree with."""

import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest

from compiler.checker.compare import compare_output, require_no_better
from compiler.checker.graph import Rejected
from compiler.checker.slots import Layout, Lengths

LENGTHS = Lengths({"batch": 2, "time": 3}, [{"batch": 1, "time": 1}, {"batch": 1, "time": 2}])
AXES = {"0": [{"rows": "batch"}], "1": [{"frames": [["time", "left"]]}]}
FACT = {"axes": AXES, "contents": [[[], -9.0, 9.0, False], [[1], 0.0, 0.0, False]]}
ALONE = [np.array([[1.0]]), np.array([[2.0, 3.0]])]
GOOD = np.array([[1.0, 0.0, 0.0], [2.0, 3.0, 0.0]])


def layout(fact: Mapping[str, object] = FACT) -> Layout:
    return Layout(fact, ["batch", "time"], LENGTHS, "batch")


def test_rows_as_alone_with_the_stated_padding_agree() -> None:
    compare_output("step", layout(), GOOD, ALONE)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [((1, 1), 3.1, "row 1 differs"), ((0, 2), 1.0, r"region \[1\] of row 0"), ((1, 2), np.nan, "region")],
)
def test_what_differs_is_named(at: tuple[int, int], value: float, message: str) -> None:
    bad = GOOD.copy()
    bad[at] = value
    with pytest.raises(Rejected, match=message):
        compare_output("step", layout(), bad, ALONE)


def test_another_shape_is_rejected() -> None:
    with pytest.raises(Rejected, match="has shape"):
        compare_output("step", layout(), GOOD[:, :2], ALONE)


def test_positions_are_those_that_are_stated() -> None:
    counted = {"axes": AXES, "contents": [], "index": {"axis": 1, "offset": "0"}}
    alone = [np.array([[0.0]]), np.array([[0.0, 1.0]])]
    compare_output("step", layout(counted), np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), alone)
    with pytest.raises(Rejected, match="count positions"):
        compare_output("step", layout(counted), np.array([[0.0, 1.0, 9.0], [0.0, 1.0, 2.0]]), alone)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"axes": {}, "contents": []}, "axes"),
        ({**FACT, "number": True}, "is a number"),
        ({**FACT, "contents": [[[], -9.0, 8.0, False]]}, "at its producer"),
        ({**FACT, "index": {"axis": 1, "offset": "0"}}, "counts positions"),
    ],
)
def test_a_reader_claims_no_more_than_the_producer(claim: Mapping[str, object], message: str) -> None:
    require_no_better(dict(FACT), FACT, "record", 1)
    with pytest.raises(Rejected, match=message):
        require_no_better(claim, FACT, "record", 1)


def test_of_graph_inputs_nothing_is_known() -> None:
    given = {"axes": AXES, "contents": [], "is_input": True}
    require_no_better({**FACT, "contents": [[[1], "-inf", "inf", True]]}, given, "record", 1)
    with pytest.raises(Rejected, match="may hold anything"):
        require_no_better(FACT, given, "record", 1)


def test_weights_that_are_equal_are_compared_without_a_copy() -> None:
    wide = np.ones((512, 512), np.float32)
    fact = {"axes": {}, "contents": [[[], -9.0, 9.0, False]]}
    same = Layout(fact, [512, 512], LENGTHS, "batch")
    tracemalloc.start()
    try:
        compare_output("step", same, wide, [wide, wide.copy()])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * wide.nbytes, "in double precision each comparison has taken eight times as much"
