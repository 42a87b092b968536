"""freeze_axes: every bucketed axis gets one size."""

import pytest

from compiler.errors import Refused
from compiler.graph.spec import check_static
from compiler.graph.stages import Lowered
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.contract import check_meaning, check_padding, content_of, verify_untouched
from tests.kit.graphs import BATCH, copy_of, parse, streaming


@pytest.mark.parametrize("rows", [1, 3])
def test_every_dimension_becomes_a_number_and_the_meaning_stays(rows: int) -> None:
    origin = streaming()
    padded = WindowStates().apply(PadAxes().apply(copy_of(origin)).lowered).lowered
    frozen = FreezeAxes(((BATCH, rows),)).apply(copy_of(padded))
    check_static(frozen.lowered.model, "tiny")
    check_meaning(origin, frozen.lowered, 1e-5, 12, rows)
    if rows == 3:
        check_padding(frozen.lowered, 12)
    again = FreezeAxes(((BATCH, rows),)).apply(copy_of(frozen.lowered))
    assert again.rewritten == 0
    assert content_of(again.lowered) == content_of(frozen.lowered)


def test_axes_without_a_size_stay() -> None:
    lowered = Lowered("tiny", parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"))
    verify_untouched(FreezeAxes((("beam", 4),)), lowered)
    with pytest.raises(Refused, match="needs numbers"):
        check_static(lowered.model, "tiny")


def test_an_input_of_unknown_rank_stays_unknown() -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }")
    model.graph.inputs[0].shape = None
    FreezeAxes((("batch", 4),)).apply(Lowered("tiny", model))
    assert model.graph.inputs[0].shape is None
