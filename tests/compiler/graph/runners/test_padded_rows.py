"""Rows of any lengths side by side: what is fed, what is cut, and what a frozen graph makes of them."""

import numpy as np
import pytest

from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.graph.runners.padded_rows import RowsRunner, Sizes
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import random_weights
from tests.kit.offline import offline

TEXT = """(float[batch,time,4] x, float[4,4] w) => (float[batch,s,4] y) <int64[1] one = {1}, int64[1] zero = {0},
 int64[1] end = {9223372036854775807}, int64[1] two = {2}>
 { h = MatMul(x, w) m = ReduceMean<keepdims = 1>(h, one) d = Sub(h, m) y = Slice(d, zero, end, one, two) }"""


def dynamic() -> Lowered:
    lowered = offline(TEXT, random_weights({"w": (4, 4)}))
    graphs.infer_shapes(lowered.model)
    return lowered


def rows(*lengths: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((1, length, 4)).astype(np.float32)} for length in lengths]


def runner(lowered: Lowered, sizes: Sizes | None = None, fill: float = 0.0) -> RowsRunner:
    model = graphs.clone(lowered.model)
    if sizes is not None:
        copy = Lowered("tiny", model, batch_axis="batch", padded_axes=lowered.padded_axes)
        FreezeAxes((("batch", sizes.rows), *sizes.slots.items())).apply(copy)
    return RowsRunner(lowered, open_session(graphs.serialized(model)), sizes, fill)


def test_rows_of_one_frozen_graph_answer_as_alone_whatever_fills_the_rest() -> None:
    feeds = rows(5, 3, 8)
    alone = [runner(dynamic()).step(feed)["y"] for feed in feeds]
    assert [each.shape for each in alone] == [(1, 3, 4), (1, 2, 4), (1, 4, 4)]
    padded = PadAxes().apply(dynamic()).lowered
    for fill in (0.0, np.nan, np.inf, 1e30):
        frozen = runner(padded, Sizes(4, {"time": 8}), fill)
        for wanted, got in zip(alone, frozen.run(feeds), strict=True):
            np.testing.assert_allclose(got["y"], wanted, atol=1e-6)


def test_a_padded_dynamic_graph_is_run_with_padding_to_look_at() -> None:
    padded = PadAxes().apply(dynamic()).lowered
    (feed,) = rows(5)
    wanted = runner(dynamic()).step(feed)["y"]
    np.testing.assert_allclose(runner(padded, fill=np.nan).step(feed)["y"], wanted, atol=1e-6)
    assert padded.padded_axes[0].maximum is None


def test_a_row_fits_where_every_length_fits() -> None:
    assert Sizes(1, {"time": 8, "words": 3}).hold({"time": 8, "words": 2})
    assert not Sizes(1, {"time": 8, "words": 3}).hold({"time": 8, "words": 4})


def test_a_wrong_number_of_rows_is_an_error_not_an_answer() -> None:
    padded = PadAxes().apply(dynamic()).lowered
    with pytest.raises(ValueError, match="broadcast"):
        runner(padded, Sizes(1, {"time": 4})).run(rows(5))


def test_rows_of_one_call_may_not_differ_in_what_all_rows_share() -> None:
    shared = offline("(float[batch,time,4] x, float[time,4] v) => (float[p,q,r] y) { y = Add(x, v) }")
    graphs.infer_shapes(shared.model)
    padded = runner(PadAxes().apply(shared).lowered, fill=np.nan)
    short, long = rows(3, 5)
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    for first, second in (
        ({**short, "v": table[:3]}, {**long, "v": table}),
        ({**long, "v": table}, {**short, "v": table[:3]}),
    ):
        for feed, answer in zip((first, second), padded.run([first, second]), strict=True):
            np.testing.assert_array_equal(answer["y"], feed["x"] + feed["v"])
    with pytest.raises(DataError, match=r"tensor v.*expected the same entries in every row of one call.*batch axis"):
        padded.run([{**short, "v": table[1:4]}, {**long, "v": table}])
