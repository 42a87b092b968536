"""Calls the user's module with arrays and returns arrays; a failure names the line, the shapes and the values used."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch

from compiler.base.cache.read_tracer import READ_TRACER
from compiler.build.capture.onnx_source.onnx_file import first_words
from compiler.build.capture.written_states import Answer, answer_of
from compiler.errors import Location, RecipeError
from compiler.graph.stages import Array
from compiler.recipe.user_code.callables import users_line
from compiler.recipe.user_code.nested import leaves_of, named_leaves_of

SHOWN = 4
"""Most whole numbers of an input that a message shows."""


def results_of(
    module: torch.nn.Module, names: Sequence[str], arguments: Sequence[Array]
) -> tuple[list[Array], tuple[str, ...]]:
    """Return a module's results, one array each, and the names of the arguments that it writes in place.

    The written arguments follow the returned results.
    """
    feed, states = dict(zip(names, arguments, strict=True)), {name: f"next.{name}" for name in names}
    answer = _answer(module, feed, (), states)
    written = answer.written
    if written:
        returned = [f"returned.{place}" for place, _ in enumerate(leaves_of(answer.results))]
        answer = _answer(module, feed, (*returned, *(states[name] for name in written)), states)
    return [result.numpy() for result in leaves_of(answer.results)], written


def _answer(
    module: torch.nn.Module, feed: Mapping[str, Array], outputs: Sequence[str], states: Mapping[str, str]
) -> Answer:
    """Return the answer of one call on copies of the feed, which the module may write to."""

    def tensors() -> list[torch.Tensor]:
        return [torch.from_numpy(np.array(array, order="C")) for array in feed.values()]

    with torch.no_grad(), READ_TRACER.watching():
        return answer_of(module, list(feed), tensors, outputs, states)


def called(
    module: torch.nn.Module,
    feed: Mapping[str, Array],
    place: Location,
    when: str = "",
    *,
    outputs: Sequence[str],
    states: Mapping[str, str] = MappingProxyType({}),
) -> list[Array]:
    """Return a module's results, one array per output.

    Args:
        module: in evaluation mode.
        feed: arguments by the recipe's names, in the order of `forward`.
        place: for messages.
        when: which call it is, for messages.
        outputs: the recipe's names of its results, and of states that it writes into its arguments.
        states: the output of each input that is fed back.

    Raises:
        RecipeError: the module raises, or does not return one tensor per output.
    """
    try:
        answer = _answer(module, feed, outputs, states)
    except Exception as error:
        raise RecipeError(
            f"expected the model to accept {shown_feed(feed)}{when}, got {type(error).__name__}: {first_words(error)}",
            cure=_cure_of_call(module, list(feed)),
            place=dataclasses.replace(place, source=users_line(error)),
        ) from error
    results = list(named_leaves_of(answer.results))
    _check_results(results, answer, outputs, place)
    return [result.numpy() for _, result in results]


def shown_feed(feed: Mapping[str, Array]) -> str:
    """Return inputs with their shapes as text, integers with values: `x [1, 8], offset [1] = 16`."""
    return ", ".join(f"{name} {list(array.shape)}{_shown_values(array)}" for name, array in feed.items())


def _shown_values(array: Array) -> str:
    if array.dtype.kind not in "iub" or array.size == 0:
        return ""
    first = array.reshape(-1)[:SHOWN].tolist()
    if len(set(first)) == 1 and bool((array == first[0]).all()):
        return f" = {first[0]}"
    return f" = {', '.join(map(str, first))}{', ...' if array.size > SHOWN else ''}"


def _check_results(
    results: Sequence[tuple[str, object]], answer: Answer, outputs: Sequence[str], place: Location
) -> None:
    for _, result in results:
        if not isinstance(result, torch.Tensor):
            raise RecipeError(
                f"expected tensors, side by side or in lists, tuples and dictionaries, got {type(result).__name__} "
                f"{result!r} among them",
                cure="return what the recipe lists under outputs, and nothing else",
                place=place,
            )
    if len(results) != len(outputs):
        written = f", which writes into {', '.join(answer.written)} besides" if answer.written else ""
        raise RecipeError(
            f"expected {len(outputs)} outputs as in the recipe, got {len(results)} from the model{written}",
            cure="keep what grows from call to call in one tensor, along an axis with a window: forward leaves more "
            "tensors in a list or dictionary than it was given, and a graph has as many in every call"
            if answer.grown > 0
            else "list every result of forward under outputs, in order; a state that it writes into its argument and "
            "does not return is listed too, by the name under state",
            place=place,
        )
    named = [name for name, _ in results]
    if any(name in outputs and name != output for name, output in zip(named, outputs, strict=True)):
        raise RecipeError(
            f"expected outputs in the order of the model's results, {', '.join(name or '?' for name in named)}, got "
            f"{', '.join(outputs)}",
            cure="list them under outputs in that order",
            place=place,
        )


def _cure_of_call(module: torch.nn.Module, names: Sequence[str]) -> str:
    """Return the cure for a module that does not accept its inputs."""
    parameters = inspect.signature(module.forward).parameters.values()
    plain = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(names) > len(plain) and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return (
            f"forward takes {', '.join(plain)}, the recipe has {len(names)} inputs: delete those that it lacks, or "
            "take each by itself, or several as "
            f"*caches; parts of a list or tuple are named by their places, as in {plain[-1] if plain else 'caches'}.0"
        )
    needed = [
        parameter.name for parameter in parameters if parameter.name in plain and parameter.default is parameter.empty
    ]
    if len(names) < len(needed) and not any("." in name for name in names):
        return (
            f"forward takes {', '.join(needed)}, and is given {', '.join(names) or 'nothing'}: list "
            "what is missing under inputs; a first_call is given what callers feed alone, delete it where the later "
            "call takes empty caches"
        )
    return "check order, shapes and dtypes of inputs in the recipe against the model's forward"
