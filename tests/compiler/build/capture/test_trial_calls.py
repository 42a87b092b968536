"""A model is called as a stream calls it, before the export: what does not fit is refused with its cure."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture.module_call import called
from compiler.build.capture.trial_calls import TrialCalls, empty_states, example_feed
from compiler.errors import RecipeError, Refused, SlipwayError
from compiler.graph.stages import Feed
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source

STEP, WIDTH = 3, 4
SLOTS = {"cached": 6}
Forward = Callable[..., tuple[Tensor, ...]]


def spec_of(*, one_row: bool = False) -> Graph:
    def given(shape: tuple[int | str, ...], dtype: str = "float32", **more: object) -> Input:
        original = {"original": shape[1:]} if one_row else {}
        return Input(shape=shape, dtype=dtype, **more, **original)  # type: ignore[arg-type]

    return Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": given(("batch", STEP, WIDTH)),
            "cache": given(("batch", "cached", WIDTH), state="next"),
            "offset": given(("batch",), "int64", counts="cached"),
        },
        outputs=("y", "next"),
        axes={"batch": Axis(buckets=(1, 2)), "cached": Axis(window=6)},
    )


def trial(forward: Forward, spec: Graph, first: Forward | None = None) -> TrialCalls:
    def module(function: Forward) -> nn.Module:
        class Model(nn.Module):
            def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
                return function(*arguments)

        return Model()

    calls = [None if each is None else functools.partial(called, module(each), outputs=spec.outputs)
             for each in (forward, first)]  # fmt: skip
    assert calls[0] is not None
    return TrialCalls("net", spec, calls[0], calls[1])


def feeds() -> Sequence[Feed]:
    return [{"x": np.full((1, STEP, WIDTH), call, np.float32)} for call in range(2)]


def test_the_calls_are_those_of_a_stream_on_the_data() -> None:
    seen = []

    def forward(x: Tensor, cache: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((float(x.max()), tuple(cache.shape), offset.tolist()))
        return x, torch.cat([cache, x], 1)

    assert trial(forward, spec_of()).run(feeds(), SLOTS) == {"cached": STEP}
    assert seen == [(0.0, (2, 0, WIDTH), [0, 0]), (1.0, (2, STEP, WIDTH), [STEP, STEP])]


def test_a_model_of_one_row_is_given_what_it_takes() -> None:
    seen = []

    def forward(x: Tensor, cache: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((tuple(x.shape), tuple(cache.shape), offset.item()))
        return x, torch.cat([cache, x], 0)

    assert trial(forward, spec_of(one_row=True)).run(feeds(), SLOTS) == {"cached": STEP}
    assert seen == [((STEP, WIDTH), (0, WIDTH), 0), ((STEP, WIDTH), (STEP, WIDTH), STEP)]


def test_what_starts_a_stream_is_called_first() -> None:
    spec = spec_of()
    spec = spec.model_copy(update={"inputs": {name: spec.inputs[name] for name in ("x", "cache")}})

    def later(x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        assert cache.shape[1] == STEP
        return x, torch.cat([cache, x], 1)

    assert trial(later, spec, lambda x: (x, x)).run(feeds(), SLOTS) == {"cached": STEP}


LATE = torch.arange(5.0)
WRONG: dict[str, tuple[Forward, type[SlipwayError], str]] = {
    "fails at the second call": (
        lambda x, c, o: (x + LATE[o + 2][:, None, None], torch.cat([c, x], 1)),
        RecipeError, r"offset \[2\] = 3 at call 2 of a stream, got IndexError.*; the first call was answered",
    ),
    "takes one row": (
        lambda x, c, o: (x.view(1, STEP, WIDTH), torch.cat([c, x], 1)),
        Refused, "the model takes one row and not 2: .*; let forward take any number of rows, or write .* as original",
    ),
    "gives a result without rows": (
        lambda x, c, o: (x.sum(0), torch.cat([c, x], 1)),
        Refused, r"expected 'batch', the axis with buckets, in y, got \[3, 4\] for 2 rows; let each",
    ),
    "gives a state of another type": (
        lambda x, c, o: (x, torch.cat([c, x], 1).double()),
        Refused, "'cache' goes in as float32 and comes back from 'next' as float64; write dtype: float64 where",
    ),
    "gives a state of another size": (
        lambda x, c, o: (x, torch.cat([c, x], 1)[:, :, :2]),
        Refused, r"'cache' goes in as \[2, 0, 4\] and comes back from 'next' as \[2, 3, 2\], and 'y' as "
        r"\[2, 3, 4\]; write state: y where that is meant, list outputs",
    ),
    "gives its new frames alone": (
        lambda x, c, o: (x, x),
        Refused, "expected the whole cache from 'next' at call 2 of a stream, 3 cached frames and 3 new ones, got 3; "
        "write update: append for 'cached' where the model gives its new frames alone, or window: 3",
    ),
    "gives a state of other axes": (
        lambda x, c, o: (x, torch.cat([c, x], 1)[:, None]),
        Refused, r"comes back from 'next' as \[2, 1, 3, 4\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name: str) -> None:
    forward, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        trial(forward, spec_of()).run(feeds(), SLOTS)


def test_rows_are_as_many_as_no_other_axis_has_entries() -> None:
    spec = spec_of()
    wide = {**spec.inputs, "x": Input(shape=("batch", 2, WIDTH), dtype="float32")}
    seen = []

    def forward(x: Tensor, cache: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(x.shape[0])
        return x, torch.cat([cache, x], 1)

    trial(forward, spec.model_copy(update={"inputs": wide})).run([{"x": np.ones((1, 2, WIDTH), np.float32)}], SLOTS)
    assert set(seen) == {3}


def test_without_data_whole_numbers_are_in_their_range_and_never_0() -> None:
    inputs = {
        "x": Input(shape=("batch", "time", 2), dtype="float32"),
        "ids": Input(shape=("batch",), dtype="int64", range=(10, 20)),
        "kind": Input(shape=("batch",), dtype="int32"),
        "level": Input(shape=("batch",), dtype="float32", range=(40.0, 50.0)),
        "speaker": Input(shape=("batch",), dtype="uint8", example=7.0),
        "gain": Input(shape=("batch",), dtype="float32", example=0.25),
        "count": Input(shape=("batch",), dtype="int64", length_of="time"),
    }
    axes = {"batch": Axis(buckets=(1, 2)), "time": Axis(buckets=(8,), length_input="count")}
    feed = example_feed(Graph(source=Source(factory="m:f"), inputs=inputs, outputs=("y",), axes=axes))
    assert {name: array.shape for name, array in feed.items()} == {
        "x": (1, 8, 2), "ids": (1,), "kind": (1,), "level": (1,), "speaker": (1,), "gain": (1,),
    }  # fmt: skip
    assert 40 <= feed["level"].item() <= 50
    assert (feed["speaker"].tolist(), str(feed["speaker"].dtype), feed["gain"].tolist()) == ([7], "uint8", [0.25])
    assert (feed["ids"].tolist(), feed["kind"].tolist(), str(feed["kind"].dtype)) == ([15], [1], "int32")


def test_without_data_the_recipe_says_what_is_tried() -> None:
    """A table of speakers begins at 100: what is tried without being told is no speaker."""
    spec = spec_of()
    speaker = Input(shape=("batch",), dtype="int64")

    def forward(x: Tensor, cache: Tensor, offset: Tensor, speaker: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.arange(5.0)[speaker - 100][:, None, None], torch.cat([cache, x], 1)

    def given(speaker: Input) -> Graph:
        return spec.model_copy(update={"inputs": {**spec.inputs, "speaker": speaker}})

    with pytest.raises(RecipeError, match=r"speaker \[2\] = 1 at .*; no data were drawn: write .* as in example: 3"):
        trial(forward, given(speaker)).run([], SLOTS)
    assert trial(forward, given(speaker.model_copy(update={"example": 102.0}))).run([], SLOTS) == {"cached": STEP}


def test_a_stream_begins_with_empty_caches_and_zeros() -> None:
    spec = spec_of()
    states = empty_states(spec, TrialCalls("net", spec, lambda *_: [], None).states, 2)
    told = {name: (array.shape, str(array.dtype)) for name, array in states.items()}
    assert told == {"cache": ((2, 0, WIDTH), "float32"), "offset": ((2,), "int64")}


def appending() -> Graph:
    spec = spec_of()
    return spec.model_copy(update={"axes": {**spec.axes, "cached": Axis(window=6, update="append")}})


def test_new_frames_are_joined_to_what_went_in() -> None:
    seen = []

    def forward(x: Tensor, cache: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((cache[0, :, 0].tolist(), offset.tolist()))
        return x, x + 1

    assert trial(forward, appending()).run(feeds(), SLOTS) == {"cached": STEP}
    assert seen == [([], [0, 0]), ([1.0, 1.0, 1.0], [3, 3])]


def test_a_whole_cache_is_not_joined_to_what_went_in() -> None:
    with pytest.raises(
        Refused, match=r"expected 3 new frames from 'next' at call 2 .*, got 6 after 3 cached ones; delete"
    ):
        trial(lambda x, c, o: (x, torch.cat([c, x], 1)), appending()).run(feeds(), SLOTS)
