"""written_states: what a module writes into its arguments and does not return is an output like any other."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture import torch_module
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.module_call import called
from compiler.build.capture.written_states import answer_of
from compiler.errors import Location, RecipeError
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source

WIDTH = 4


@dataclasses.dataclass
class Kept:
    """A state by name."""

    a: Tensor
    b: Tensor


class Assigned(nn.Module):
    """Assigns to the places of a list, and returns it."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept[0] = kept[0] * 0.5 + x
        kept[1] = kept[1] + kept[0]
        return x + kept[1], kept


class Unreturned(Assigned):
    """Returns the scores alone."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        return super().forward(x, kept)[0]


class Taken(nn.Module):
    """Takes from the front of a list, and appends to its end."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        for rate in (0.5, 1.0):
            kept.append(kept.pop(0) * rate + x)
        return x + kept[1]


class InPlace(nn.Module):
    """Writes into the tensors themselves."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept[0].mul_(0.5).add_(x)
        kept[1][:, 1:] = kept[1][:, :-1].clone()
        kept[1][:, :1] = x[:, :1]
        return x + kept[1]


class Replaced(nn.Module):
    """One state is written into, the other one returned."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        second = kept[1] + x
        kept[0].copy_(second.flip(1))
        x.add_(1)
        return x + kept[0], second


class PartlyReturned(nn.Module):
    """Writes into both states, and returns the first."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept[0].add_(x)
        kept[1] = kept[1] * 0.5 + kept[0]
        return x + kept[1], kept[0]


class Nested(nn.Module):
    """Assigns to places of a list in a dictionary."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept["k"][0] = kept["k"][0] + x
        kept["k"][1] = kept["k"][1] + kept["k"][0]
        return x + kept["k"][1]


class Numbered(nn.Module):
    """Assigns to a dictionary by numbers."""

    def forward(self, x: Tensor, kept: dict[int, Tensor]) -> Any:
        kept[3] = kept[3] + x
        kept[7] = kept[7] + kept[3]
        return x + kept[7]


class Record(nn.Module):
    """Assigns to the fields of a record."""

    def forward(self, x: Tensor, kept: Kept) -> Any:
        kept.a = kept.a + x
        kept.b.mul_(0.5).add_(kept.a)
        return x + kept.b


MODULES = [
    (Assigned, "kept.0", "kept.1"),
    (Unreturned, "kept.0", "kept.1"),
    (Taken, "kept.0", "kept.1"),
    (InPlace, "kept.0", "kept.1"),
    (Replaced, "kept.0", "kept.1"),
    (PartlyReturned, "kept.0", "kept.1"),
    (Nested, "kept.k.0", "kept.k.1"),
    (Numbered, "kept.3", "kept.7"),
    (Record, "kept.a", "kept.b"),
]


def specified(*names: str) -> Graph:
    """A stream of one frame per call with two states."""
    states = {
        name: Input(shape=("batch", WIDTH), dtype="float32", state=f"next_{place}") for place, name in enumerate(names)
    }
    inputs = {"x": Input(shape=("batch", WIDTH), dtype="float32"), **states}
    axes = {"batch": Axis(buckets=(1, 2))}
    return Graph(source=Source(factory="m:f"), inputs=inputs, outputs=("y", "next_0", "next_1"), axes=axes)


def by_hand(module: nn.Module, feeds: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The calls of an author, who keeps what his model returns or writes: y, next_0 and next_1 of each."""
    tensors, found = [torch.zeros(1, WIDTH), torch.zeros(1, WIDTH)], []
    for feed in feeds:
        kept: Any = list(tensors)
        parts: Any = kept
        if isinstance(module, Record):
            kept = Kept(*tensors)
            parts = vars(kept)
        elif isinstance(module, Numbered):
            kept = parts = dict(zip((3, 7), tensors, strict=True))
        elif isinstance(module, Nested):
            kept = {"k": kept}
        result = module(torch.from_numpy(feed.copy()), kept)
        tensors = list(parts.values()) if isinstance(parts, dict) else list(parts)
        tensors = [tensors[0], result[1]] if isinstance(module, Replaced) else tensors
        y = result[0] if isinstance(result, tuple) else result
        found.append([each.numpy().copy() for each in (y, *tensors)])
    return found


FEEDS = [np.random.default_rng(seed).standard_normal((1, WIDTH)).astype(np.float32) for seed in range(3)]


@pytest.mark.parametrize(("kind", "first", "second"), MODULES)
def test_the_reference_is_the_loop_of_the_author(kind: type[nn.Module], first: str, second: str) -> None:
    spec, kept = specified(first, second), [feed.copy() for feed in FEEDS]
    reference = torch_module.TorchReference(kind(), None, spec, states_of(spec))
    calls = reference.run({"x": feed} for feed in FEEDS)
    for wanted, (outputs, _) in zip(by_hand(kind(), FEEDS), calls, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(outputs.values(), wanted, strict=True))
    assert all(np.array_equal(one, other) for one, other in zip(FEEDS, kept, strict=True)), "nobody writes to feeds"


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [pytest.param(*each, marks=[] if each[0] is Replaced else pytest.mark.slow) for each in MODULES],
)
def test_the_captured_graph_is_the_loop_of_the_author(kind: type[nn.Module], first: str, second: str) -> None:
    spec = specified(first, second)
    session = open_session(graphs.serialized(torch_module.capture_module(kind(), "net", spec, list(spec.inputs))))
    states = {first: np.zeros((1, WIDTH), np.float32), second: np.zeros((1, WIDTH), np.float32)}
    for feed, right in zip(FEEDS, by_hand(kind(), FEEDS), strict=True):
        got = session.run(list(spec.outputs), {"x": feed, **states})
        states = dict(zip(states, got[1:], strict=True))
        for one, wanted in zip(got, right, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-6)


class Growing(nn.Module):
    """Leaves one tensor more in its list at every call."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept.append(x)
        return torch.stack(kept).sum(0), kept


class Half(nn.Module):
    """Writes into one of two states, and returns neither."""

    def forward(self, x: Tensor, kept: Any) -> Any:
        kept[0] = kept[0] + x
        return x


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Growing,
            "expected 3 outputs as in the recipe, got 4 from the model; keep what grows from call to call in one",
        ),
        (Half, "expected 3 outputs as in the recipe, got 1 from the model, which writes into kept.0 besides; list"),
    ],
)
def test_what_is_no_stream_is_refused(kind: type[nn.Module], words: str) -> None:
    spec = specified("kept.0", "kept.1")
    feed = dict.fromkeys(spec.inputs, np.ones((1, WIDTH), np.float32))
    with pytest.raises(RecipeError) as caught:
        called(kind(), feed, Location(), outputs=spec.outputs, states=spec.fed_back)
    assert words in str(caught.value)


def test_a_model_that_fails_with_tuples_and_lists_says_what_it_said_of_tuples() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor, kept: Any) -> Any:
            raise ValueError(f"got a {type(kept).__name__}")

    tensors = [torch.ones(1), torch.ones(1)]
    for _ in range(2):  # nothing is remembered of it
        with pytest.raises(ValueError, match="got a tuple"):
            answer_of(Failing(), ["x", "kept.0"], lambda: tensors, ("y",), {})


def test_a_tuple_stays_one_where_the_model_takes_it() -> None:
    class Joined(nn.Module):
        def forward(self, x: Tensor, kept: Any) -> Any:
            return kept + (x,)  # noqa: RUF005  (a list would not do)

    answer = answer_of(Joined(), ["x", "kept.0"], lambda: [torch.ones(1)] * 2, ("a", "b"), {"kept.0": "a"})
    assert isinstance(answer.results, tuple) and not answer.written
