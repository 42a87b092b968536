"""Size expressions as nodes give the numbers that the expressions give."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import expression, symbol
from compiler.graph.runners.session import run_model
from compiler.proof.padding.arithmetic import Arithmetic
from tests.kit.graphs import parse

SIZES = [
    "time", "time + 3", "2*time - 1", "floor((time - 3)/2) + 1", "Max(1, time - 4)", "Min(9, 2*time)", "Mod(time, 3)",
    "time*(time + 1)/2", "time**2", "floor((2*time + 1)/3) - floor(time/2)", "7",
]  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_every_length_gives_the_value_of_the_expression(text: str) -> None:
    model = parse("(int64[n] time) => (int64[n] time_out) { time_out = Identity(time) }")
    size = expression(text)
    value = Arithmetic(graphs.Inserter(model, "test"), {"time": model.graph.inputs[0]}).value(size)
    model.graph.outputs[0] = ir.val("out", ir.DataType.INT64)
    model.graph.append(ir.node("Add", [value, model.graph.inputs[0]], outputs=[model.graph.outputs[0]]))
    lengths = np.arange(1, 20)
    wanted = [int(n) if isinstance(size, int) else int(size.subs(symbol("time"), int(n))) for n in lengths]
    if isinstance(size, int):
        wanted = [size] * len(lengths)
    np.testing.assert_array_equal(run_model(model, {"time": lengths})["out"] - lengths, wanted)


def test_other_functions_are_refused() -> None:
    model = parse("(int64[n] time) => (int64[n] y) { y = Identity(time) }")
    arithmetic = Arithmetic(graphs.Inserter(model, "test"), {"time": model.graph.inputs[0]})
    with pytest.raises(Refused, match="cannot be computed"):
        arithmetic.value(symbol("elsewhere"))
