"""Every value's reach in graphs of all makes; what is no stream is told with the node that makes it none."""

import dataclasses

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from compiler.proof.derivation.judging import Judging, offenders
from tests.kit.graphs import parse
from tests.kit.whole_sequences import (
    CHUNKED,
    HEARD,
    LONGEST,
    MASKS,
    POSITIONS,
    SHIFTED,
    WRITINGS,
    Drawing,
    whole_graph,
)

SPOILED = {
    "no_mask": ("Softmax", "reads all frames of the sequence"),
    "soft_mask": ("Softmax", "reads all frames of the sequence"),
    "ahead": ("Softmax", r"reads frames \[-23, 3\] around its own"),
    "mean": ("ReduceMean", "reads all frames of the sequence"),
    "norm": ("InstanceNormalization", "reads all frames of the sequence"),
    "reversed": ("Sub", "computes with the length of the sequence"),
    "scaled": ("Cast", "length of the sequence"),
    "length_bias": ("Sub", "computes with the length of the sequence"),
    "shifted": ("Slice", "Slice leaves out frames"),
    "future_sum": ("CumSum", r"reads frames \[0, inf\] around its own"),
    "wrong_axis": ("MatMul", "reads frames"),
}
"""What spoils a graph, the operator that is to be named, and what is to be said of it."""


@pytest.mark.parametrize("spoiler", SPOILED)
def test_what_is_no_stream_is_refused_with_its_node(spoiler: str) -> None:
    op, said = SPOILED[spoiler]
    with pytest.raises(Refused, match=said) as refused:
        derive(whole_graph(Drawing(positions="looked_up", spoiler=spoiler)), "time", "past", LONGEST)
    assert refused.value.place.op == op
    assert refused.value.place.node
    assert refused.value.cure


def test_look_ahead_is_told_exactly() -> None:
    judging = Judging(whole_graph(Drawing(spoiler="ahead", width=2)), "time", LONGEST)
    assert "[-23, 2]" in offenders(judging.offences)


@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_every_make_are_causal(mask: str) -> None:
    judging = Judging(whole_graph(Drawing(mask=mask, width=4)), "time", LONGEST)
    (result,) = judging.model.graph.outputs
    reach = judging.of(result).along[1].reach
    assert judging.offences == []
    assert (reach.low, reach.high) == ({"band": -3, "chunks": -7}.get(mask, -23), 0)


BLIND = {
    "its own frame is hidden": (Drawing(mask="strict", low=-1.0e9), "frame 0 may see nothing: its mask shows it no"),
    "a window lies behind": (Drawing(mask="behind", width=2, low=-np.inf), r"no frame up to its own, and .* no number"),
    "padding hides itself": (Drawing(low=-1.0e9, hiding="keys"), "frame 0 may see nothing: data may hide all that"),
    "padding sees nothing": (Drawing(low=-1.0e9, hiding="rows", join="truths"), r"ones, at -1e\+09, a share"),
    "a mask of both": (Drawing(low=-1.0e9, hiding="keys", join="numbers", writing="add"), "data may hide all that"),
    "no number": (Drawing(hiding="keys", hidden=-np.inf), "data may hide all .* gives no number"),
    "zeros, but of hidden ones": (Drawing(low=-1.0e9, hiding="keys", is_guarded=True), "data may hide all that"),
}
"""Drawings of which some frame may see nothing, and what is said of it."""


@pytest.mark.parametrize("name", BLIND)
def test_a_frame_that_may_see_nothing_is_refused_with_its_row(name: str) -> None:
    drawing, said = BLIND[name]
    with pytest.raises(Refused, match=said) as refused:
        Judging(whole_graph(drawing), "time", LONGEST)
    assert refused.value.place.op == "Softmax"
    assert "let the mask show every frame itself" in str(refused.value.cure)


SEEING = {
    "itself": Drawing(low=-1.0e9, hiding="others", layers=2),
    "zeros where there is no number": Drawing(hiding="keys", hidden=-np.inf, is_guarded=True),
}


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize("join", ["before", "behind"])
def test_what_data_hide_is_followed(name: str, join: str) -> None:
    judging = Judging(whole_graph(dataclasses.replace(SEEING[name], join=join)), "time", LONGEST)
    assert judging.offences == []


def test_a_future_that_is_hidden_last_and_lower_is_no_share() -> None:
    drawing = Drawing(hiding="keys", hidden=-1.0e9, join="before")
    assert Judging(whole_graph(drawing), "time", LONGEST).offences == []
    with pytest.raises(Refused, match="data may hide all"):  # the future that padding hides lies no lower
        Judging(whole_graph(dataclasses.replace(drawing, join="behind")), "time", LONGEST)


def test_masks_by_another_axis_are_looked_at_for_all_its_sizes() -> None:
    drawing = Drawing(mask="band_by_memory")
    for most in (3, HEARD):
        judging = Judging(whole_graph(drawing), "time", LONGEST, {"heard": most})
        assert judging.of(judging.model.graph.outputs[0]).along[1].reach.low == 1 - most
    judging = Judging(whole_graph(drawing), "time", LONGEST)
    assert "changes with the length of axis heard, which has no largest size" in offenders(judging.offences)


@pytest.mark.parametrize("writing", WRITINGS)
def test_masks_are_written_in_any_way(writing: str) -> None:
    judging = Judging(whole_graph(Drawing(writing=writing)), "time", LONGEST)
    assert judging.offences == []


@pytest.mark.parametrize("positions", sorted({*POSITIONS} - {*SHIFTED}))
def test_places_are_no_data(positions: str) -> None:
    judging = Judging(whole_graph(Drawing(positions=positions)), "time", LONGEST)
    assert judging.offences == []
    places = next(node.outputs[0] for node in judging.model.graph if graphs.is_op(node, "Range"))
    assert not judging.of(places).is_data


def test_entries_of_a_table_that_places_pick_are_looked_up_by_row() -> None:
    judging = Judging(whole_graph(Drawing(positions="picked")), "time", LONGEST)
    assert {value.producer().op_type for value in judging.tables} == {"GatherElements"}  # type: ignore[union-attr]


TRIANGLES = {
    "of frames and channels": ("y = Trilu(x)", False),
    "of channels": ("a = Unsqueeze(x, last)  b = Unsqueeze(x, two)  c = Mul(a, b)  d = Trilu(c)"
                    "  y = ReduceSum<keepdims = 0>(d, last)", True),
    "of rows and frames": ("a = Transpose<perm = [2, 0, 1]>(x)  b = Trilu(a)"
                           "  y = Transpose<perm = [1, 2, 0]>(b)", False),
    "of frames with rows": ("a = Reshape(x, flat)  b = Trilu(a)  c = Shape(x)  y = Reshape(b, c)", False),
}  # fmt: skip
"""Triangles out of two axes, and whether a frame alone tells what of it is left."""


@pytest.mark.parametrize("name", TRIANGLES)
def test_triangles_are_cut_out_of_rows_and_columns_of_frames(name: str) -> None:
    text, is_known = TRIANGLES[name]
    whole = parse(
        "(float[batch,time,4] x) => (float[batch,time,4] y) <int64[1] last = {3}, int64[1] two = {2}, "
        f"int64[2] flat = {{-1, 4}}> {{ {text} }}"
    )
    if is_known:
        assert Judging(whole, "time", LONGEST).offences == []
        return
    with pytest.raises(Refused, match="Trilu cuts off what its place says of a frame"):
        Judging(whole, "time", LONGEST)


def test_layers_reach_back_together() -> None:
    judging = Judging(whole_graph(Drawing(mask="band", width=4, layers=2)), "time", LONGEST)
    (result,) = judging.model.graph.outputs
    assert judging.of(result).along[1].reach.low == -6


def test_frames_may_read_their_own_chunk() -> None:
    judging = Judging(whole_graph(Drawing(mask=CHUNKED, width=4, layers=2)), "time", LONGEST, chunk=4)
    (result,) = judging.model.graph.outputs
    reach = judging.of(result).along[1].reach
    assert judging.offences == []
    assert (reach.low, reach.high, reach.beyond) == (-14, 3, 0)


@pytest.mark.parametrize(
    ("drawing", "said"),
    [
        (Drawing(mask=CHUNKED, width=4, spoiler="chunk_ahead"), r"reads frames \[-7, 7\]"),
        (Drawing(mask=CHUNKED, width=4, spoiler="chunk_shifted"), r"reads frames \[-7, 3\]"),
        (Drawing(mask=CHUNKED, width=6), r"reads frames \[-11, 5\]"),
        (Drawing(mask=CHUNKED, width=4, local="conv", spoiler="conv_ahead"), r"\(Conv\) reads frames \[-\d, 1\]"),
    ],
    ids=["next_chunk", "shifted", "longer", "conv"],
)
def test_what_reads_behind_its_chunk_is_refused_with_how_far(drawing: Drawing, said: str) -> None:
    with pytest.raises(Refused, match=f"{said} around its own"):
        derive(whole_graph(drawing), "time", "past", LONGEST, chunk=4)


def test_a_mask_of_whole_chunks_names_their_length() -> None:
    with pytest.raises(Refused, match=r"reads frames \[-7, 3\] around its own") as refused:
        derive(whole_graph(Drawing(mask=CHUNKED, width=4)), "time", "past", LONGEST)
    assert "write chunk: 4 in derive_steps" in refused.value.cure
    with pytest.raises(Refused) as refused:
        derive(whole_graph(Drawing(mask=CHUNKED, width=4, spoiler="mean")), "time", "past", LONGEST)
    assert "chunk" not in refused.value.cure
