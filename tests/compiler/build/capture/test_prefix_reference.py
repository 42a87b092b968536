"""The original of derived steps: it is given everything heard so far, and refuses what no cache holds."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.capture.derived_steps import derived_model, with_caches
from compiler.build.capture.prefix_reference import PrefixReference
from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.recipe.graph_parts import Input
from tests.compiler.build.capture.test_derived_steps import WINDOW, spec
from tests.kit.whole_sequences import LABELS, Drawing, session, whole_graph


def reference() -> PrefixReference:
    derived = derived_model(whole_graph(Drawing()), "net", spec())
    return PrefixReference("net", with_caches(spec(), derived.model, derived.certificate), derived.whole, None)


def test_calls_answer_the_frames_of_the_call_and_keep_all_that_was_heard() -> None:
    tokens = np.random.default_rng(0).integers(0, LABELS, (1, 7))
    expected = session(whole_graph(Drawing())).run(["scores"], {"tokens": tokens})[0]
    feeds = [{"tokens": tokens[:, :4]}, {"tokens": tokens[:, 4:5]}, {"tokens": tokens[:, 5:]}]
    answers = list(reference().run(feeds))
    assert np.allclose(np.concatenate([outputs["scores"] for outputs, _ in answers], axis=1), expected, atol=1e-6)
    assert [states["cache_01"].shape[2] for _, states in answers] == [4, 5, 7]


def test_an_output_may_have_several_entries_for_every_frame() -> None:
    """Scores one behind the other, as samples of a vocoder lie: as many of them answer a call as its frames have."""
    whole = whole_graph(Drawing())
    insert = graphs.Inserter(whole, "flat")
    flat = insert.op(
        "Reshape", [whole.graph.outputs[0], insert.int64s(0, -1)], name="scores_in_a_row", dtype=ir.DataType.FLOAT
    )
    whole.graph.outputs[0] = flat
    graphs.infer_shapes(whole)
    one = spec().model_copy(update={"outputs": ("scores_in_a_row",)})
    derived = derived_model(whole, "net", one)
    tokens = np.random.default_rng(0).integers(0, LABELS, (1, 7))
    expected = session(whole_graph(Drawing())).run(["scores"], {"tokens": tokens})[0].reshape(1, -1)
    feeds = [{"tokens": tokens[:, :4]}, {"tokens": tokens[:, 4:]}]
    answers = PrefixReference("net", with_caches(one, derived.model, derived.certificate), derived.whole, None).run(
        feeds
    )
    got = [outputs["scores_in_a_row"] for outputs, _ in answers]
    assert [each.shape[1] for each in got] == [4 * LABELS, 3 * LABELS]
    assert np.allclose(np.concatenate(got, axis=1), expected, atol=1e-6)


def test_masks_and_lengths_of_the_frames_leave_the_graph_and_are_made_for_the_original() -> None:
    """A call has no padding, so that no row is left that sees nothing; the original takes masks of all it is given."""
    whole = whole_graph(Drawing())
    hidden = ir.val("hidden", ir.DataType.BOOL, ["batch", "time"])
    (scores,) = [node for node in whole.graph if node.op_type == "Softmax"]
    insert = graphs.Inserter(whole, "masked", before=scores)
    low, wide = (
        insert.constant(np.array(-np.inf, np.float32), "low"),
        insert.op("Unsqueeze", [hidden, insert.int64s(1)], name="h"),
    )
    scores.replace_input_with(0, insert.op("Where", [wide, low, scores.inputs[0]], name="s", dtype=ir.DataType.FLOAT))
    whole.graph.inputs.append(hidden)
    graphs.infer_shapes(whole)
    masked = Input(shape=("batch", "time"), dtype="bool", pad_mask_of="time")
    one = spec().model_copy(update={"inputs": {**spec().inputs, "hidden": masked}})
    derived = derived_model(whole, "net", one)
    assert "hidden" not in graphs.inputs_named(derived.whole) | graphs.inputs_named(derived.model)
    asked: list[dict[str, np.ndarray]] = []

    def call(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked.append(dict(feed))
        return {}

    tokens = np.random.default_rng(0).integers(0, LABELS, (1, 7))
    feeds = [{"tokens": tokens[:, :4]}, {"tokens": tokens[:, 4:]}]
    list(PrefixReference("net", with_caches(one, derived.model, derived.certificate), derived.whole, call).run(feeds))
    assert [feed["hidden"].tolist() for feed in asked] == [[[False] * 4], [[False] * 7]]


def test_more_frames_than_the_window_are_refused() -> None:
    feeds = [{"tokens": np.zeros((1, WINDOW), np.int64)}, {"tokens": np.zeros((1, 1), np.int64)}]
    with pytest.raises(DataError, match=f"at most {WINDOW} frames along 'time'.* got {WINDOW + 1}"):
        list(reference().run(feeds))
