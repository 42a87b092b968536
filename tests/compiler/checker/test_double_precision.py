"""A row that is rounding alone is told from one that is not."""

import numpy as np
import onnx
import pytest

from compiler.checker.double_precision import in_double, is_rounding
from compiler.checker.graph import Array, Graph, Part

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
CANCELLED = "z = Add(x, large)  y = Sub(z, large)"


def part(body: str) -> Part:
    """A step y of x [2, 3] and one large number."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[2,3] x, float large) => (float y) {{ {body} }}")
    for at, node in enumerate(model.graph.node):
        node.name = f"node {at}"
    return Graph(model).part(["y"], {})


def given(*numbers: float, large: float = 1e9) -> dict[str, Array]:
    return {"x": np.resize(np.array(numbers, np.float32), (2, 3)), "large": np.array(large, np.float32)}


@pytest.mark.parametrize(
    ("body", "feeds", "expected"),
    [
        (CANCELLED, given(1.0, 2.0), True),
        (CANCELLED, given(1.0, 2.0, large=4.0), False),
        (CANCELLED, given(1.0, np.nan), False),
        (CANCELLED, given(1.0, 2.0, large=np.inf), False),
        ("z = Sub(x, large)  y = Softmax<axis = 1>(z)", given(0.0, large=1e30), False),
    ],
    ids=["what is lost beside a large number", "nothing is lost", "NaN", "infinities", "probabilities of a mask"],
)
def test_rounding_is_where_double_precision_gives_other_numbers(
    body: str, feeds: dict[str, Array], expected: bool
) -> None:
    step = part(body)
    assert is_rounding(step, feeds, step.run(feeds)) == expected


def test_rounding_in_one_output_excuses_no_other() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[2,3] x, float large) => (float y, float w) {{ {CANCELLED} w = Neg(x) }}"
    )
    for at, node in enumerate(model.graph.node):
        node.name = f"node {at}"
    step, feeds = Graph(model).part(["y", "w"], {}), given(1.0, 2.0)
    assert [is_rounding(step, feeds, step.run(feeds), at) for at in range(2)] == [True, False]


def test_a_step_without_a_kernel_in_double_precision_excuses_nothing() -> None:
    step = part("y = Add(x, large)")
    step.nodes[0].op_type = "NoSuchOperator"
    assert not is_rounding(step, given(0.0), [np.full((2, 3), 5.0)])


def test_weights_and_constants_are_in_double_precision() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (double[2] x) => (double[2] y) <float[2] w = {{1, 2}}> {{"
        " z = ConstantOfShape(s) s = Constant<value = int64[1] {2}>() t = Cast<to = 1>(x) u = Add(t, w) y = Add(u, z) }"
    )
    changed = in_double(model)
    assert changed.graph.initializer[0].data_type == onnx.TensorProto.DOUBLE
    assert [node.attribute[0].i for node in changed.graph.node if node.op_type == "Cast"] == [onnx.TensorProto.DOUBLE]
    filled = next(node for node in changed.graph.node if node.op_type == "ConstantOfShape")
    assert filled.attribute[0].t.data_type == onnx.TensorProto.DOUBLE
