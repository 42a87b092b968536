"""Windows and borders that count from the true end."""

import pytest

from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.graphs import ops_of
from tests.kit.offline import offline, verify_offline

AVERAGES = {
    "entries inside alone": "kernel_shape = [3], pads = [1, 1]",
    "every second": "kernel_shape = [3], pads = [1, 1], strides = [2]",
    "more behind": "kernel_shape = [4], pads = [1, 2]",
}


@pytest.mark.parametrize("attributes", AVERAGES.values(), ids=AVERAGES)
def test_averages_divide_by_the_share_that_is_valid(attributes: str) -> None:
    outcome = verify_offline(offline(graph(CHANNELS + f"y = AveragePool<{attributes}>(c)"), WEIGHTS), tolerance=1e-5)
    assert ops_of(outcome.lowered.model).count("AveragePool") == 2


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("amounts", ["0, 0, 0, 0, 0, 3", "0, 0, 2, 0, 0, 3", "0, 1, 2, 0, 1, 1"])
def test_borders_hold_what_the_valid_entries_hold(mode: str, amounts: str) -> None:
    body = CHANNELS + f'y = Pad<mode = "{mode}">(c, amounts)'
    text = graph(body).replace("int64[1] zero", f"int64[6] amounts = {{{amounts}}}, int64[1] zero")
    outcome = verify_offline(offline(text, WEIGHTS))
    assert "GatherND" in ops_of(outcome.lowered.model)


@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5])
def test_interpolation_holds_the_last_valid_entry(scale: float) -> None:
    body = CHANNELS + 'y = Resize<mode = "linear">(c, none, scales)'
    text = graph(body).replace(
        "int64[1] zero", f"float[0] none = {{}}, float[3] scales = {{1.0, 1.0, {scale}}}, int64[1] zero"
    )
    outcome = verify_offline(offline(text, WEIGHTS), tolerance=1e-5)
    assert "Resize" in ops_of(outcome.lowered.model)
