"""Steps of random graphs are those of the whole graph; planted weaknesses of what derives them are noticed."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.proof.derivation import (
    any_length,
    delays,
    emission,
    first_states,
    judging,
    lateness,
    masks,
    placed,
    placing,
    reading,
    row_positions,
    shifted_scores,
    spans,
)
from compiler.proof.derivation.dependence import Outside, Reach, frames_kept
from compiler.proof.derivation.placed import Array
from compiler.proof.derivation.reading import Read
from compiler.proof.derivation.written_sizes import STAMP, Part, Sizes
from compiler.proof.facts.shape_only import ShapeOnly
from tests.kit.rated_chains import CHAIN_SPOILERS, LINKS
from tests.kit.single_operators import SINGLES
from tests.kit.spelled_masks import NEAR_SPOILERS
from tests.kit.whole_sequences import (
    CHUNKED,
    JOINED,
    LOCAL_SPOILERS,
    RETURNING,
    SPOILERS,
    TEXT_SPOILERS,
    Drawing,
    drawn,
    drawn_ahead,
    drawn_at_rates,
    drawn_in_chunks,
    drawn_masks,
    drawn_operators,
    drawn_recurrences,
    drawn_sliding,
    drawn_spelled,
    drawn_with_tokens,
)
from tests.property.derived_steps import Trial, tried

FEW = range(100, 112)


@pytest.mark.parametrize("seed", range(6))
def test_steps_of_chunks_are_refused_or_right(seed: int) -> None:
    found = tried(drawn_in_chunks(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("seed", range(6))
def test_steps_that_forget_are_refused_or_right(seed: int) -> None:
    found = tried(drawn_sliding(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("seed", range(8))
def test_steps_under_masks_of_data_and_other_axes_are_refused_or_right(seed: int) -> None:
    found = tried(drawn_masks(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict in ("accepted", "refused"), found


@pytest.mark.parametrize("seed", range(6))
def test_tokens_are_held_to_their_table(seed: int) -> None:
    found = tried(drawn_with_tokens(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("seed", [2, 3])
def test_steps_of_several_entries_per_frame_are_refused_or_right(seed: int) -> None:
    found = tried(drawn_at_rates(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("link", LINKS)
def test_layers_of_several_entries_per_frame_have_steps(link: str) -> None:
    for seed in (0, 1, 2):
        found = tried(Drawing(layers=0, chain=("spread", link, "conv"), seed=seed))
        assert found.verdict == "accepted", found


@pytest.mark.parametrize("spoiler", CHAIN_SPOILERS)
def test_layers_that_read_later_entries_are_refused(spoiler: str) -> None:
    found = tried(Drawing(layers=0, chain=("spread", "moved"), spoiler=spoiler, seed=1))
    assert found.verdict == "refused", found


@pytest.mark.parametrize("seed", range(8))
def test_layers_that_read_ahead_answer_later_or_are_refused(seed: int) -> None:
    found = tried(drawn_ahead(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("seed", range(8))
def test_recurrences_begin_with_what_is_known_or_are_refused(seed: int) -> None:
    found = tried(drawn_recurrences(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("seed", range(5))
def test_masks_in_any_spelling_are_refused_or_right(seed: int) -> None:
    drawing = drawn_spelled(seed, spoiled=seed % 2 == 1)
    found = tried(drawing)
    assert found.verdict == ("refused" if drawing.spoiler in NEAR_SPOILERS else "accepted"), found


@pytest.mark.parametrize("seed", range(2 * len(SINGLES)))
def test_operators_that_act_along_time_are_refused(seed: int) -> None:
    found = tried(drawn_operators(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict == "refused", found


@pytest.mark.parametrize("spoiler", ["", "ahead", "text_hears"])
def test_masks_and_positions_that_go_on_behind_a_text_of_any_length(spoiler: str) -> None:
    found = tried(Drawing(positions="looked_up", mask=JOINED, text="named", spoiler=spoiler))
    assert found.verdict == ("refused" if spoiler else "accepted"), found


@pytest.mark.parametrize("seed", FEW)
def test_steps_are_refused_or_right(seed: int) -> None:
    found = tried(drawn(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict in ("accepted", "refused"), found


def test_looked_up_distances_stand_beside_recurrences() -> None:
    assert tried(Drawing(positions="moved", local="gru", layers=2)).verdict == "accepted"


def test_seeds_draw_every_spoiler() -> None:
    assert {drawn(seed, spoiled=True).spoiler for seed in range(200)} == {
        *SPOILERS,
        *TEXT_SPOILERS,
        *LOCAL_SPOILERS.values(),
    }


def _reach_is_causal(support: np.ndarray, chunk: int = 1) -> Reach:
    return Reach(-float(len(support)), 0)


def _reach_ends_with_a_chunk(support: np.ndarray, chunk: int = 1) -> Reach:
    return Reach(-float(len(support)), chunk - 1, inside=chunk - 1)


RIGHT_SIZE = Sizes.one


def _places_from_zero(self: Sizes, size: Dim) -> ir.Value:
    return RIGHT_SIZE(self, 0 if size == self.past else size)


RIGHT_OUTSIDE = masks.Masks.outside


def _always_closed(self: masks.Masks, *given: Any) -> Outside | None:
    found = RIGHT_OUTSIDE(self, *given)
    return None if found is None else dataclasses.replace(found, is_closed=True)


@contextlib.contextmanager
def _any_score_hides() -> Iterator[None]:
    hides = property(lambda span: span.high <= -1.0)
    with mock.patch.object(spans.Span, "hides", hides), mock.patch.object(masks, "LOW", -1.0):
        yield


RIGHT_CHOSEN = spans.RULES["Where"]


def _first_of_two(condition: spans.Span, first: spans.Span, second: spans.Span) -> spans.Span:
    return first if condition == spans.TRUTH else RIGHT_CHOSEN(condition, first, second)


def _of_one_entry(made: ShapeOnly, frames: Dim, *given: Any) -> list[dict[Dim, int]]:
    return [{name: 1 for name in made.names if name != frames}]


RIGHT_PLACES = Sizes.places


def _places_without_a_prefix(self: Sizes, part: Part, source: str, before: Dim = 0) -> ir.Value:
    return RIGHT_PLACES(self, part, source, before if part in (Part.FIRST, Part.ALL) else 0)


RIGHT_DISTANCES = placing.by_distance


RIGHT_KEPT = frames_kept


def _one_too_few(support: np.ndarray, chunk: int = 1) -> int:
    return RIGHT_KEPT(support, chunk) - 1


def _all_heard(self: Sizes, source: str) -> ir.Value:
    insert = graphs.Inserter(self.model, STAMP, source=source)
    places = self.places(Part.RECENT, source)
    return insert.op("GreaterOrEqual", [places, insert.int64s(0)], name="heard", dtype=ir.DataType.BOOL)


def _places_as_if_all_were_kept(self: Sizes, part: Part, source: str, before: Dim = 0) -> ir.Value:
    found = RIGHT_PLACES(self, part, source, before)
    if part is not Part.RECENT:
        return found
    insert = graphs.Inserter(self.model, STAMP, source=source)
    return insert.op("Add", [found, insert.int64s(1)], name="places_off", shape=found.shape, dtype=ir.DataType.INT64)


RIGHT_WRITE = row_positions.RowPositions.write


def _of_the_first_row(self: row_positions.RowPositions, position: ir.Value, by_row: ir.Value) -> None:
    insert = graphs.Inserter.behind(self.model, STAMP, by_row)
    first = insert.op("Gather", [by_row, insert.int64s(0)], {"axis": 0}, name="of_first_row", dtype=by_row.dtype)
    RIGHT_WRITE(self, position, first)


RIGHT_PADS = reading.pads_of


def _one_alone(node: ir.Node) -> dict[int, tuple[int, int]] | None:
    found = RIGHT_PADS(node)
    return found and {axis: (min(front, 1), max(behind, -1)) for axis, (front, behind) in found.items()}


def _turned_round(array: Array, row: int, column: int) -> Array | None:
    return RIGHT_DISTANCES(array, column, row)


def _summed_alone(
    self: emission.Emission, node: ir.Node, value: ir.Value, parts: Mapping[int, Part], axis: int
) -> ir.Value:
    summed, axes = node.inputs
    assert summed is not None
    assert axes is not None
    return self._node(node, [self.part(summed, parts), self.part(axes, {})], value, parts)


RIGHT_SPREAD, RIGHT_SEEN = reading._spread, delays._seen_through


def _spread_of_fewer(*given: Any) -> Read:
    read = RIGHT_SPREAD(*given)
    return dataclasses.replace(read, back=max(read.back - 1, 0))


def _spread_of_none_ahead(*given: Any) -> Read:
    return dataclasses.replace(RIGHT_SPREAD(*given), ahead=0)


RIGHT_STATES = reading.first_states


def _zeros(node: ir.Node) -> list[np.ndarray | None]:
    return [each if each is None else np.zeros_like(each) for each in RIGHT_STATES(node)]


WEAKNESSES: dict[str, tuple[contextlib.AbstractContextManager[Any], Drawing]] = {
    "look-ahead is not seen": (mock.patch.object(judging, "reach_of", _reach_is_causal), Drawing(spoiler="ahead")),
    "what lies behind a chunk is not seen": (
        mock.patch.object(judging, "reach_of", _reach_ends_with_a_chunk),
        Drawing(mask=CHUNKED, width=4, spoiler="chunk_ahead"),
    ),
    "chunks begin anywhere": (
        mock.patch.object(judging, "reach_of", _reach_ends_with_a_chunk),
        Drawing(mask=CHUNKED, width=4, spoiler="chunk_shifted"),
    ),
    "a frame too few is kept": (
        mock.patch.object(judging, "frames_kept", _one_too_few),
        Drawing(mask="band", width=4, forgets=True),
    ),
    "a frame of a chunk too few is kept": (
        mock.patch.object(judging, "frames_kept", _one_too_few),
        Drawing(mask=CHUNKED, width=3, forgets=True, layers=2),
    ),
    "what was never heard is read": (
        mock.patch.object(Sizes, "heard", _all_heard),
        Drawing(mask="band", width=4, forgets=True),
    ),
    "places of what is kept are off": (
        mock.patch.object(Sizes, "places", _places_as_if_all_were_kept),
        Drawing(mask="band", width=4, positions="rotary", forgets=True),
    ),
    "masks of any length are those of the longest": (
        mock.patch.object(any_length.AnyLength, "why_not", return_value=""),
        Drawing(mask=RETURNING, width=4, forgets=True),
    ),
    "triangles cut off nothing": (
        mock.patch.object(judging.Judging, "_require_square", return_value=None),
        drawn_operators(179, spoiled=True),
    ),
    "positions of any length are those of the longest": (
        mock.patch.object(any_length.AnyLength, "why_not", return_value=""),
        Drawing(mask="band", width=4, positions="looked_up", forgets=True),
    ),
    "rows are of one age": (
        mock.patch.object(row_positions.RowPositions, "write", _of_the_first_row),
        Drawing(mask="band", width=4, positions="rotary", forgets=True),
    ),
    "any score is low enough": (_any_score_hides(), Drawing(spoiler="soft_mask")),
    "other axes have one entry": (
        mock.patch.object(masks, "sizes_of", _of_one_entry),
        Drawing(mask="first_by_memory", width=2, layers=2),
    ),
    "every frame sees something of its mask": (
        mock.patch.object(masks.Masks, "blind_row", return_value=None),
        Drawing(mask="strict", low=-1.0e9, layers=2),
    ),
    "every frame sees something of what data leave": (
        mock.patch.object(masks.Masks, "blind_row", return_value=None),
        Drawing(low=-1.0e9, hiding="keys", layers=2),
    ),
    "what data leave is seen": (
        mock.patch.dict(spans.RULES, {"Where": _first_of_two}),
        Drawing(low=-1.0e9, hiding="keys", layers=2, join="before"),
    ),
    "means are no offence": (
        mock.patch.object(judging.Judging, "_over_frames", lambda self, n, li, f, along, m, whole: (along, whole)),
        Drawing(spoiler="mean"),
    ),
    "lengths are no data": (
        mock.patch.object(judging.Judging, "is_length", return_value=False),
        Drawing(positions="looked_up", spoiler="length_bias"),
    ),
    "shorter sequences are not looked at": (
        mock.patch.object(placed, "_same", return_value=True),
        Drawing(positions="looked_up", spoiler="length_bias"),
    ),
    "sums begin anew in every call": (
        mock.patch.object(emission.Emission, "_summed", _summed_alone),
        Drawing(positions="summed"),
    ),
    "transposed convolutions keep too little": (
        mock.patch.object(reading, "_spread", _spread_of_fewer),
        Drawing(layers=0, chain=("spread",), seed=1),
    ),
    "transposed convolutions look ahead unseen": (
        mock.patch.object(reading, "_spread", _spread_of_none_ahead),
        Drawing(layers=0, chain=("conv",), spoiler="spread_ahead"),
    ),
    "transposed convolutions begin anew in every call": (
        mock.patch.object(emission, "behind_kept", lambda node, axis, count: list(node.attributes.values())),
        Drawing(layers=0, chain=("spread",), seed=1),
    ),
    "strides look ahead unseen": (
        mock.patch.object(Read, "reach", property(lambda read: Reach(-math.inf, min(read.ahead, 0)))),
        Drawing(layers=0, chain=("repeat",), spoiler="down_ahead"),
    ),
    "entries are repeated however they are resized": (
        mock.patch.object(reading, "_repeated", lambda node, axis, rate: Read(rate=rate, is_resized=True)),
        Drawing(layers=0, chain=("conv",), spoiler="linear"),
    ),
    "what is not there is not masked": (
        mock.patch.object(lateness._Writer, "_masked", lambda self, insert, value, late: value),
        Drawing(layers=0, chain=("conv_ahead", "conv_ahead")),
    ),
    "late entries meet others": (
        mock.patch.object(lateness._Writer, "_moved", lambda self, insert, value, count: value),
        Drawing(layers=0, chain=("spread", "conv_ahead", "down")),
    ),
    "zeros behind what is cut off are taken for frames": (
        mock.patch.object(delays, "_seen_through", lambda delay, has_all=False: RIGHT_SEEN(delay)),
        Drawing(layers=0, chain=("moved",), spoiler="conv_ahead", seed=3),
    ),
    "tables are turned round": (mock.patch.object(placing, "by_distance", _turned_round), Drawing(mask="packed")),
    "new places begin at 0": (
        mock.patch.object(Sizes, "one", _places_from_zero),
        Drawing(positions="looked_up"),
    ),
    "convolutions begin anew in every call": (
        mock.patch.object(emission, "behind_kept", lambda node, axis, count: list(node.attributes.values())),
        Drawing(local="conv"),
    ),
    "convolutions look ahead unseen": (
        mock.patch.object(judging, "read_along", return_value=Read(1, 0)),
        Drawing(local="conv", spoiler="conv_ahead"),
    ),
    "recurrences go backwards unseen": (
        mock.patch.object(judging, "read_along", return_value=Read(math.inf, 0)),
        Drawing(local="gru", spoiler="backwards"),
    ),
    "frames come back too early": (
        mock.patch.object(reading, "pads_of", _one_alone),
        Drawing(local="joined_back", seed=4),
    ),
    "layers begin with zeros": (
        mock.patch.object(emission, "first_states", _zeros),
        Drawing(local="deep", begun="learnt"),
    ),
    "rows of any order are alike": (
        mock.patch.object(first_states, "_is_left_whole", return_value=True),
        Drawing(local="gru", begun="rows_mixed"),
    ),
    "other distances are taken for those of the longest": (
        mock.patch.object(shifted_scores._Widening, "_require_part", return_value=None),
        Drawing(positions="moved", spoiler="far_scaled"),
    ),
    "scores of other rows are shown": (
        mock.patch("compiler.proof.derivation.derive.require_masked", return_value=set()),
        Drawing(positions="skewed", mask=CHUNKED, width=4),
    ),
    "a text may hear": (
        mock.patch.object(masks.Masks, "outside", _always_closed),
        Drawing(spoiler="text_hears", text="fixed", layers=2),
    ),
    "places behind a text begin at 0": (
        mock.patch.object(Sizes, "places", _places_without_a_prefix),
        Drawing(positions="looked_up", text="fixed"),
    ),
}


def outcome(drawing: Drawing) -> Trial:
    """What comes of a graph; an error that is no refusal counts as noticed."""
    try:
        return tried(drawing)
    except Exception as error:  # noqa: BLE001 - a planted weakness may end anywhere
        return Trial("disputed", f"{type(error).__name__}: {error}"[:200])


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_planted_weaknesses_are_noticed(weakness: str) -> None:
    plant, drawing = WEAKNESSES[weakness]
    assert outcome(drawing).verdict in ("accepted", "refused")
    with plant:
        found = outcome(drawing)
    assert found.verdict in ("unsound", "disputed"), found
