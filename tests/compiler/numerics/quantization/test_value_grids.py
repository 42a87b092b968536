"""Grids of every value: shared where numbers are moved or carried, from what streams show, no further than is read."""

import numpy as np
import pytest

from compiler.errors import DataError, Refused
from compiler.graph.stages import Lowered, State
from compiler.numerics.quantization.value_grids import HEADROOM, grids_of_values, shared_grids
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import prepare_static
from tests.kit.calibration import with_streams
from tests.kit.graphs import BATCH, parse
from tests.kit.quantization import speech


def one_row() -> Lowered:
    """The graph of `tests.kit.quantization` for one row."""
    ((_, _, graph),) = prepare_static(OnnxStatic(), speech(), {BATCH: (1,)}).graphs
    return graph


def small(body: str, outputs: str = "float[1,4] y") -> Lowered:
    return Lowered("net", parse(f"(float[1,4] x) => ({outputs}) {{ {body} }}", {}), data_outputs=("y",))


def row(*numbers: float) -> dict[str, np.ndarray]:
    return {"x": np.array([numbers], np.float32)}


def test_what_is_moved_and_both_ends_of_a_state_share_a_grid() -> None:
    together = {name: each for each in shared_grids(one_row()) for name in each.values}
    assert together["past"] is together["next_past"] is together["keys"] is together["r"]
    assert together["context"] is together["next_context"] is together["mixed"]
    assert together["past"] is not together["context"], "the zero that fills both is no value of theirs"
    assert together["lit"] is together["rows"] is not together["slid"]
    assert together["scores"].score_axes == {"scores_filled": 2}


def test_ranges_are_those_of_the_streams_with_room_where_codes_are_long() -> None:
    graph = with_streams(small("d = Add(x, x)  y = Relu(d)"), [row(-1, 0, 1, 2), row(-3, 0, 0, 0)])
    grids, ranges = grids_of_values(graph, 16)
    assert (grids["d"].low, grids["d"].high) == pytest.approx((-6 * HEADROOM, 4 * HEADROOM), rel=1e-3)
    assert (grids["y"].zero_point, grids["y"].type) == (0, "uint16")
    assert {each.tensor for each in ranges} == {"x", "d", "y"}
    short, _ = grids_of_values(graph, 8)
    assert short["d"].type == "uint8" and short["d"].high <= 4.01


def test_scores_end_where_a_softmax_sees_no_difference() -> None:
    body = """hidden = Constant<value = float {-3.0e38}>()  limit = Constant<value = float {0.0}>()
        seen = Greater(x, limit)  filled = Where(seen, x, hidden)  y = Softmax(filled)"""
    graph = with_streams(small(body), [row(1, 2, -5, 4), row(3, 3, 3, 3)])
    for bits, reach in ((8, 13.5), (16, 19.1)):
        grids, _ = grids_of_values(graph, bits)
        room = HEADROOM if bits == 16 else 1.0
        assert grids["filled"].low == pytest.approx((4 - reach) * room, abs=0.1)
        assert np.exp(-reach) < grids["y"].scale / 2, "what is hidden has the code of 0"


def test_a_mask_that_is_added_is_cut_off_where_half_precision_ends() -> None:
    graph = with_streams(small("y = Add(x, x)"), [row(-3e38, 0, 0, 1)])
    grids, _ = grids_of_values(graph, 16)
    assert grids["x"].low == pytest.approx(-65504 * HEADROOM, rel=1e-3)


def test_padding_leaves_no_trace() -> None:
    graph = one_row()
    grids, _ = grids_of_values(graph, 8)
    assert all(np.isfinite([grid.low, grid.high]).all() for grid in grids.values())


def test_without_data_it_refuses() -> None:
    with pytest.raises(Refused, match=r"expected data\.calibration to measure on, got none"):
        grids_of_values(small("y = Relu(x)"), 8)
    with pytest.raises(DataError, match="expected numbers in x on the calibration streams, got no calls"):
        grids_of_values(with_streams(small("y = Relu(x)")), 8)


def test_padding_alone_is_no_range() -> None:
    with pytest.raises(DataError, match="got padding alone"):
        grids_of_values(with_streams(small("y = Relu(x)"), [row(*[np.nan] * 4)]), 8)


def test_a_state_that_is_moved_alone_has_the_range_of_what_is_put_into_it() -> None:
    model = parse(
        "(float[1,4] x, float[1,4] kept) => (float[1,4] y, float[1,4] next) { next = Identity(x) y = Relu(kept) }"
    )
    lowered = Lowered("net", model, states=(State("kept", "next", None),), data_outputs=("y",))
    grids, _ = grids_of_values(with_streams(lowered, [row(0, 0, 0, 7), row(0, 0, 0, -2)]), 16)
    assert grids["kept"] == grids["x"] == grids["next"]
    assert grids["kept"].high == pytest.approx(7 * HEADROOM, rel=1e-3)
