"""lower_precision: half precision where nothing is lost, float32 islands where half precision overflows."""

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.calib.watched_streams import noise_between
from compiler.errors import GateFailed, RecipeError, Refused
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes.lower_precision import LowerPrecision
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.calibration import FixedCalibration, with_streams
from tests.kit.graphs import copy_of, feeds_of, parse, random_weights, streaming

WIDTH = 64


def stack(layers: int, massive: tuple[int, ...] = ()) -> Lowered:
    """Layers of product, Swish and product with a residual sum; some hold a hidden unit beyond half precision.

    Swish is not homogeneous, so no scale can be moved through it.
    """
    weights: dict[str, Array] = {}
    lines, x = [], "x"
    for i in range(layers):
        weights |= random_weights({f"w{i}": (WIDTH, WIDTH), f"v{i}": (WIDTH, WIDTH)}, seed=i)
        weights[f"w{i}"] /= 4
        weights[f"v{i}"] /= 4
        weights[f"b{i}"] = np.zeros(WIDTH, np.float32)
        if i in massive:
            weights[f"b{i}"][3], weights[f"v{i}"][3] = 98304.0, 0.0
        lines.append(
            f"h{i} = MatMul({x}, w{i}) g{i} = Add(h{i}, b{i}) s{i} = Sigmoid(g{i}) a{i} = Mul(g{i}, s{i}) "
            f"o{i} = MatMul(a{i}, v{i}) x{i} = Add({x}, o{i})"
        )
        x = f"x{i}"
    inputs = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items())
    text = f"(float[1,{WIDTH}] x, {inputs}) => (float[1,{WIDTH}] y) {{ {' '.join(lines)} y = Neg({x}) }}"
    return Lowered("stack", parse(text, weights))


def feeds(count: int, seed: int = 1) -> list[Feed]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((1, WIDTH), dtype=np.float32)} for _ in range(count)]


def float32_nodes(lowered: Lowered) -> set[str]:
    return {str(node.name) for node in lowered.model.graph
            if node.op_type != "Cast" and node.outputs[0].dtype == ir.DataType.FLOAT}  # fmt: skip


def test_nothing_stays_where_nothing_is_lost() -> None:
    outcome = LowerPrecision().apply(with_streams(stack(3), feeds(4)))
    assert float32_nodes(outcome.lowered) == set() and outcome.precision == ()
    assert outcome.rewritten == outcome.matched == 19
    check_between_passes(outcome.lowered)
    onnx.checker.check_model(ir.serde.serialize_model(outcome.lowered.model), full_check=True)


def test_islands_are_where_it_overflows_and_need_not_touch() -> None:
    before = with_streams(stack(6, massive=(1, 4)), feeds(4))
    outcome = LowerPrecision().apply(before)
    layers = {name[1] for name in float32_nodes(outcome.lowered)}
    assert layers == {"1", "4"} and len(float32_nodes(outcome.lowered)) <= 8
    assert max(noise_between(before, outcome.lowered, [feeds(4, seed=9)]).values()) < 1e-5
    assert {pin.tensor for pin in outcome.precision} <= {"g1", "a1", "g4", "a4"}


def test_noise_is_bought_back_until_the_figure_holds() -> None:
    before = with_streams(stack(2), feeds(3))
    loose = LowerPrecision(sqnr_db=30.0).apply(before)
    tight = LowerPrecision(sqnr_db=72.0).apply(before)
    assert len(float32_nodes(loose.lowered)) < len(float32_nodes(tight.lowered))
    assert max(noise_between(before, tight.lowered, [feeds(3)]).values()) <= 10**-7.2


def test_what_cannot_be_kept_fails_the_gate() -> None:
    lowered = dataclasses.replace(stack(1), calibration=FixedCalibration([feeds(2)], lambda _: 0.5))
    with pytest.raises(GateFailed, match="on the calibration data, got"):
        LowerPrecision().apply(lowered)


def test_the_users_pins_stay() -> None:
    outcome = LowerPrecision(float32=("op:Sigmoid",)).apply(with_streams(stack(2), feeds(2)))
    assert {"s0_sigmoid", "s1_sigmoid"} <= float32_nodes(outcome.lowered)
    with pytest.raises(RecipeError, match="fits a node"):
        LowerPrecision(float32=("op:Softmax",)).apply(with_streams(stack(2), feeds(2)))


def test_streams_with_padding_keep_their_states() -> None:
    origin = streaming()
    lowered = WindowStates().apply(PadAxes().apply(copy_of(origin)).lowered).lowered
    before = with_streams(lowered, feeds_of(origin, 6))
    outcome = LowerPrecision().apply(before)
    check_between_passes(outcome.lowered)
    kinds = {value.name: value.dtype for value in outcome.lowered.model.graph.inputs}
    assert kinds["x"] == ir.DataType.FLOAT and kinds["real_length"] == ir.DataType.INT64
    assert max(noise_between(before, outcome.lowered, [feeds_of(origin, 12, seed=3)]).values()) < 1e-5


def test_bfloat16_loses_bits_and_does_not_overflow() -> None:
    before = with_streams(stack(2, massive=(1,)), feeds(3))
    outcome = LowerPrecision(type="bfloat16", sqnr_db=30.0).apply(before)
    assert float32_nodes(outcome.lowered) == set()


@pytest.mark.parametrize("options", [{"type": "float8"}, {"headroom": 0.5}])
def test_wrong_options_are_answered(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="expected"):
        LowerPrecision(**options)  # type: ignore[arg-type]


def test_without_data_there_is_nothing_to_measure_on() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        LowerPrecision().apply(stack(1))
    two = dataclasses.replace(with_streams(stack(1), feeds(1)), first_call=stack(1).model)
    with pytest.raises(Refused, match="first call"):
        LowerPrecision().apply(two)
