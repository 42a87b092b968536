"""What fails inside a model is said with its line, the shapes and the values used; odd answers before they are used."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture.module_call import called, results_of, shown_feed
from compiler.errors import Location, RecipeError

X = np.ones((2, 4), np.float32)
PLACE = Location(stage="capture", graph="net")


class Inner(nn.Module):
    """Fails one level below forward, where a number is too large."""

    def look_up(self, x: Tensor, at: Tensor) -> Tensor:
        return torch.arange(9.0)[at] + x.sum()

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return self.look_up(x, at)


def test_results_are_arrays_by_output() -> None:
    got = called(Inner(), {"x": X, "at": np.array([3])}, PLACE, outputs=["y"])
    assert len(got) == 1 and got[0].tolist() == [11.0]
    (result,), written = results_of(Inner(), ["x", "at"], [X, np.array([3])])
    assert result.tolist() == [11.0] and written == ()


def test_an_error_inside_the_model_shows_the_line_the_call_and_the_values() -> None:
    with pytest.raises(RecipeError) as caught:
        called(Inner(), {"x": X, "at": np.array([3, 16])}, PLACE, " at call 2 of a stream", outputs=["y"])
    told = str(caught.value)
    assert "test_module_call.py:" in told and "in look_up: return torch.arange(9.0)[at]" in told
    assert (
        "expected the model to accept x [2, 4], at [2] = 3, 16 at call 2 of a stream, got IndexError: index 16" in told
    )


def test_whole_numbers_are_shown_with_their_values() -> None:
    feed = {"a": np.full((2, 3), 7), "b": np.arange(9), "c": np.zeros((0, 2), int), "d": X}
    assert shown_feed(feed) == "a [2, 3] = 7, b [9] = 0, 1, 2, 3, ..., c [0, 2], d [2, 4]"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x: (x, x), "expected 1 outputs as in the recipe, got 2"),
        (lambda x: {"y": x, "z": x}, "expected 1 outputs as in the recipe, got 2"),
        (lambda x: [(x, x)], "expected 1 outputs as in the recipe, got 2"),
        (lambda x: None, "got NoneType"),
        (lambda x: x @ x, "expected the model to accept x [2, 4], got RuntimeError"),
    ],
)
def test_a_model_that_does_not_fit_the_recipe_is_refused(result: object, words: str) -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> object:
            return result(x)  # type: ignore[operator]

    with pytest.raises(RecipeError) as caught:
        called(Odd(), {"x": X}, PLACE, outputs=["y"])
    assert words in str(caught.value)


def test_a_list_of_caches_is_one_argument_for_several() -> None:
    class Listed(nn.Module):
        def forward(self, x: Tensor, caches: list[Tensor]) -> Tensor:
            return x

    with pytest.raises(
        RecipeError, match=r"forward takes x, caches, the recipe has 3 inputs: .* as in caches\.0"
    ) as caught:
        called(Listed(), {"x": X, "a": X, "b": X}, PLACE, outputs=["y"])
    assert "source" not in str(caught.value), "no line of theirs is at fault, and none of ours is shown"


class Named(nn.Module):
    """Gives its results by name."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": x, "cache": x + 1}


def test_results_by_name_come_in_their_order() -> None:
    assert [each[0, 0] for each in called(Named(), {"x": X}, PLACE, outputs=["y", "cache"])] == [1, 2]
    assert [each[0, 0] for each in called(Named(), {"x": X}, PLACE, outputs=["a", "b"])] == [1, 2]
    with pytest.raises(RecipeError, match="in the order of the model's results, y, cache, got cache, y; list them"):
        called(Named(), {"x": X}, PLACE, outputs=["cache", "y"])
