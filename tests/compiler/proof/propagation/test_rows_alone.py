"""The batch, proved of a whole graph."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import Refused
from compiler.graph.stages import Array, Lowered
from compiler.proof.propagation.rows_alone import AFTER, prove_rows
from tests.kit.graphs import BATCH, parse, random_weights

W8: dict[str, Array] = {"w8": np.full((4, 4), 3, np.int8), "s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)}


def lowered(body: str) -> Lowered:
    text = f"""(float[{BATCH},3,4] x, int8[4,4] w8, float s, uint8 z, float[4,4] w)
    => (float[{BATCH},3,4] y) <int64[1] last = {{-1}}> {{ {body} }}"""
    return Lowered("tiny", parse(text, W8 | random_weights({"w": (4, 4)})), batch_axis=BATCH)


STATIC = "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = MatMul(d, w)"
PER_TOKEN = (
    "a = Abs(x)  m = ReduceMax<keepdims = 1>(a, last)  v = Div(x, m)  q = QuantizeLinear(v, s, z)  "
    "i = MatMulInteger(q, w8, z)  f = Cast<to = 1>(i)  y = Mul(f, m)"
)
PER_TENSOR = "q, t, p = DynamicQuantizeLinear(x)  i = MatMulInteger(q, w8, p)  f = Cast<to = 1>(i)  y = Mul(f, t)"


@pytest.mark.parametrize("body", [STATIC, PER_TOKEN])
def test_scales_that_are_fixed_or_of_a_token_keep_rows_apart(body: str) -> None:
    graph = lowered(body)
    certificate = prove_rows(graph)
    proto = ir.serde.serialize_model(graph.model)
    assert certificate[AFTER] and check(proto, proto, certificate) == len(certificate["records"]) >= 3


def test_a_scale_of_the_whole_batch_is_refused_with_its_node() -> None:
    with pytest.raises(Refused, match="DynamicQuantizeLinear") as refused:
        prove_rows(lowered(PER_TENSOR))
    assert refused.value.place.node == "q_dynamicquantizelinear"


def test_an_output_with_its_batch_elsewhere_is_refused() -> None:
    with pytest.raises(Refused, match="batch in front"):
        prove_rows(lowered("y = Transpose<perm = [1, 0, 2]>(x)"))


def test_the_checker_rejects_the_claim_for_a_graph_that_mixes_rows() -> None:
    honest, mixing = lowered("m = Abs(x)  y = Mul(x, m)"), lowered("m = ReduceMax<axes = [0]>(x)  y = Mul(x, m)")
    proto = ir.serde.serialize_model(mixing.model)
    with pytest.raises(Rejected):
        check(proto, proto, prove_rows(honest))
