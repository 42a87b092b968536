"""The checker knows what a record may take for granted; everything else it draws, infinities and NaN included."""

import copy
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.graph import model as graphs
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import copy_of
from tests.kit.offline import offline

Proof = dict[str, Any]


def proved(text: str, weights: dict[str, np.ndarray] | None = None) -> tuple[onnx.ModelProto, onnx.ModelProto, Proof]:
    """A graph before and after padding, and its certificate."""
    origin = offline(text, weights)
    outcome = PadAxes().apply(copy_of(origin))
    graphs.infer_shapes(origin.model)
    before, after = (ir.serde.serialize_model(each.model) for each in (origin, outcome.lowered))
    return before, after, copy.deepcopy(dict(outcome.records[0]))


LARGEST = "(float[batch,time,4] x, int64[1] k) => (float[batch,1,4] y) { y = ReduceMax(x, k) }"
ALONG = {"k": np.array([1], np.int64)}


def test_what_kernels_leave_open_may_be_assumed() -> None:
    assert check(*proved(LARGEST, ALONG)) == 1


def test_an_assumption_that_the_certificate_does_not_speak_of_is_rejected() -> None:
    before, after, proof = proved(LARGEST, ALONG)
    proof["assumes"] = proof["assumes"][:1]
    with pytest.raises(Rejected, match="does not say so"):
        check(before, after, proof)


@pytest.mark.parametrize("what", ["no NaN", "finite", "small"])
def test_nothing_is_assumed_of_operators_that_can_do_without(what: str) -> None:
    before, after, proof = proved("(float[batch,time,4] x) => (float[batch,time,4] y) { y = Softmax<axis = 1>(x) }")
    (record,) = proof["records"]
    record["assumes"] = [[0, what]]
    proof["assumes"].append(f"{what} in {record['node']!r}")
    with pytest.raises(Rejected, match="assumes"):
        check(before, after, proof)


@pytest.mark.parametrize("low", [-1.0, -(2.0**40)])
def test_an_input_has_no_bounds(low: float) -> None:
    before, after, proof = proved("(float[batch,time,4] x) => (float[batch,time,4] y) { y = Softmax<axis = 1>(x) }")
    (record,) = proof["records"]
    record["in"][0]["contents"][0] = [[], low, -low, False]
    with pytest.raises(Rejected, match="may hold anything in region"):
        check(before, after, proof)


SEARCH = "(float[batch,time,4] x) => (int64[batch,4] y) { l = Neg(x)  y = ArgMax<axis = 1, keepdims = 0>(l) }"


def test_a_finite_fill_below_infinities_is_rejected() -> None:
    before, after, proof = proved(SEARCH)
    assert check(before, after, proof, seeds=2) == 2
    (padding,) = [each for each in after.graph.initializer if "padding" in each.name] or [
        node.attribute[0].t for node in after.graph.node if node.op_type == "Constant" and "padding" in node.output[0]
    ]
    lowest = np.finfo(np.float32).min
    padding.CopyFrom(onnx.numpy_helper.from_array(np.array(lowest, np.float32), padding.name))
    for record in proof["records"]:
        for need in record["needs"]:
            need["value"] = float(lowest)
    with pytest.raises(Rejected, match="differs from the row alone"):
        check(before, after, proof, seeds=40)


def test_padding_that_is_infinite_with_a_bound_on_it_is_rejected() -> None:
    before, after, proof = proved(SEARCH)
    proof["records"][0]["out"][0]["contents"][0] = [[], -1e9, 1e9, False]
    with pytest.raises(Rejected, match="does not lie within"):
        check(before, after, proof, seeds=4)
