"""Certificates of derived steps, and lengths for which nothing is claimed."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from tests.kit.whole_sequences import CHUNKED, LABELS, LONGEST, RETURNING, Drawing, in_calls, session, whole_graph


def test_the_certificate_tells_caches_masks_and_every_value() -> None:
    derived = derive(whole_graph(Drawing(mask="band", width=4)), "time", "past", LONGEST)
    told = derived.certificate
    assert (told["time"], told["past"], told["longest"], told["first"]) == ("time", "past", LONGEST, 0)
    assert [(each["input"], each["output"], each["reach"]) for each in told["caches"]] == [
        ("cache_00", "next_cache_00", "[0, 0]"),
        ("cache_01", "next_cache_01", "[0, 0]"),
    ]
    assert {each["reach"] for each in told["masks"]} == {"[-3, 0]"}
    results = [each for each in told["values"] if each["step"] == "scores"]
    assert results == [{"step": "scores", "value": "scores", "parts": [[1, "new", [], "0"]], "reach": {"1": "[-3, 0]"}}]
    assert told["assumes"]


def test_a_sliding_mask_lets_caches_forget() -> None:
    derived = derive(whole_graph(Drawing(mask="band", width=4)), "time", "past", LONGEST, forget=True)
    assert derived.certificate["recent"] == 3
    assert derived.certificate["why_it_ends"] == ""
    assert [(each.kept, each.is_count) for each in derived.cached] == [(3, False), (3, False), (0, True)]
    counted = graphs.inputs_named(derived.model)[derived.cached[-1].input]
    assert ([str(dim) for dim in counted.shape or ()], counted.dtype) == (["batch"], ir.DataType.INT64)


@pytest.mark.parametrize(
    ("drawing", "why"),
    [
        (Drawing(mask=RETURNING, width=4), "what softmax_node is masked by is not known of sequences longer than 24"),
        (Drawing(mask="band", width=4, positions="looked_up"), "is told by a table of the places up to 24"),
        (Drawing(mask="band", width=4, positions="moved"), "scores by distance are looked up among those of 24 frames"),
        (Drawing(mask=CHUNKED, width=4), "the window tells a chunk that is shorter"),
    ],
    ids=["returning", "table", "shifted", "chunks"],
)
def test_streams_end_with_the_window_where_longer_ones_are_not_known(drawing: Drawing, why: str) -> None:
    derived = derive(whole_graph(drawing), "time", "past", LONGEST, chunk=drawing.chunk, forget=True)
    assert why in derived.certificate["why_it_ends"]
    assert any(each.is_joined for each in derived.cached)


def test_sums_over_all_frames_go_on_from_their_last_entry() -> None:
    derived = derive(
        whole_graph(Drawing(mask="band", width=4, positions="summed")), "time", "past", LONGEST, forget=True
    )
    assert derived.certificate["why_it_ends"] == ""
    assert sorted(each.kept for each in derived.cached) == [0, 1, 3, 3]


def test_frames_of_many_channels_are_counted_by_one_of_them() -> None:
    whole = whole_graph(Drawing(mask="band", width=4))
    (tokens,) = whole.graph.inputs
    readers = graphs.consumers_of(tokens)
    insert = graphs.Inserter(whole, "test", next(iter(whole.graph)))
    pairs = ir.Value(name="pairs", shape=ir.Shape(["batch", "time", 2]), type=ir.TensorType(ir.DataType.INT64))
    second = insert.op("Gather", [pairs, insert.constant(np.array(1, np.int64), "second")], {"axis": 2}, name="second")
    for node in readers:
        for at, operand in enumerate(node.inputs):
            if operand is tokens:
                node.replace_input_with(at, second)
    whole.graph.inputs[0] = pairs
    graphs.infer_shapes(whole)
    tokens_of = np.random.default_rng(0).integers(0, LABELS, (2, LONGEST, 2))
    right = session(whole).run(["scores"], {"pairs": tokens_of})[0]
    derived = derive(whole, "time", "past", LONGEST, forget=True)
    assert [(each.kept, each.is_count) for each in derived.cached] == [(3, False), (3, False), (0, True)]
    assert [str(dim) for dim in derived.cached[-1].value.shape or ()] == ["batch", "time"]
    caches = {each.input: each.output for each in derived.cached}
    got = in_calls(derived.model, caches, {"pairs": tokens_of}, [4, *[1] * (LONGEST - 4)])
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-5)


def test_a_mask_that_shows_everything_lets_nothing_be_forgotten() -> None:
    derived = derive(whole_graph(Drawing(mask="triangle")), "time", "past", LONGEST, forget=True)
    assert derived.certificate["recent"] == 0
    assert [(each.kept, each.is_joined) for each in derived.cached] == [(0, True), (0, True)]


def test_chunks_and_how_far_they_look_ahead_are_told() -> None:
    told = derive(whole_graph(Drawing(mask=CHUNKED, width=4, layers=2)), "time", "past", LONGEST, chunk=4).certificate
    assert (told["chunk"], told["look_ahead"], told["recent"]) == (4, 3, 0)


def test_sequences_longer_than_a_table_are_refused() -> None:
    with pytest.raises(Refused, match=f"sequences of {LONGEST + 1} frames do not fit"):
        derive(whole_graph(Drawing(positions="table")), "time", "past", LONGEST + 1)


def test_a_graph_that_counts_places_and_caches_nothing_is_refused() -> None:
    whole = whole_graph(Drawing(positions="looked_up", layers=0))
    with pytest.raises(Refused, match="nothing is cached whose frames could be counted"):
        derive(whole, "time", "past", LONGEST)
