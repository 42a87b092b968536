"""Opens the models that `run` compares: an ONNX file on a backend, a bundle's graph, or the original of a recipe.

    model.onnx  model.onnx@optimized  dist/mine  dist/mine:encoder  mine.yaml  mine.yaml:encoder

All are called the same way: feeds of a stream in, outputs by name out, states carried from call to call.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.reference

from compiler.base.cache.store import StageCache
from compiler.base.did_you_mean import did_you_mean
from compiler.build.bundle.recipe_of import recipe_of
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.errors import RecipeError, SlipwayError
from compiler.front.commands.example_feeds import shape_in, unanswered
from compiler.front.commands.onnx_signature import Signature, Tensor, open_file, read_file
from compiler.front.commands.tensor_roles import Carried, carried_states, told_states
from compiler.graph.sizes.expressions import expression
from compiler.graph.stages import Array, Feed, newest
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.user_code.callables import shown_path
from runtime_lite.errors import RuntimeLiteError
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime

STAGE = "run"

Answers = Callable[[Iterable[Feed]], Iterator[dict[str, Array]]]
Call = Callable[[Sequence[str], dict[str, Array]], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Fed:
    """A state in a recipe: the output that feeds it, and how many of its newest frames stay, if not all."""

    output: str
    window: int | None


@dataclasses.dataclass(frozen=True)
class Subject:
    """Something that answers feeds.

    Attributes:
        shown: what messages call it.
        inputs: what callers feed.
        states: the states that it carries by itself, with their values before the first call.
        sizes: those of its axes that it has a size for by itself.
        carried: its states in words, where they are guessed.
        fed: its states by input, from its recipe; None for a file, which has no recipe.
        answers: all outputs of every call; a fresh stream each time.
    """

    shown: str
    inputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    sizes: Mapping[str, int]
    carried: str
    fed: Mapping[str, Fed] | None
    answers: Answers


def _plain(path: Path) -> Call:
    session = open_file(path, STAGE, optimize=False)
    return lambda names, feed: session.run(list(names), feed)


def _optimized(path: Path) -> Call:
    session = open_file(path, STAGE, optimize=True)
    return lambda names, feed: session.run(list(names), feed)


def _reference(path: Path) -> Call:
    """Return the evaluator of the ONNX standard: slow, in NumPy, and independent of ONNX Runtime."""
    evaluator = onnx.reference.ReferenceEvaluator(str(path))
    return lambda names, feed: list(evaluator.run(list(names), feed))


BACKENDS: Mapping[str, Callable[[Path], Call]] = {
    "plain": _plain,
    "optimized": _optimized,
    "reference": _reference,
}
"""What runs an ONNX file: ONNX Runtime without and with rewrites of its own, and the evaluator of the standard."""


def open_onnx(text: str, sizes: Mapping[str, int], fed: Mapping[str, Fed] | None = None) -> Subject:
    """Return an ONNX file as a model; its states are found by names and sizes.

    Args:
        text: `FILE.onnx` or `FILE.onnx@BACKEND`.
        sizes: sizes of axes that no feed has.
        fed: the states in a recipe, which replace a guess.

    Raises:
        RecipeError: the file cannot be read, or there is no such backend.
        Refused: the file cannot be run.
    """
    name, separator, backend = text.rpartition("@") if not Path(text).exists() else (text, "", "plain")
    if separator and backend not in BACKENDS:
        raise RecipeError(f"{text}: expected a backend behind @, got {backend!r}", cure=did_you_mean(backend, BACKENDS))
    path = Path(name if separator else text)
    _, signature = read_file(path, STAGE)
    told = () if fed is None else told_states(signature, {name: fed_state.output for name, fed_state in fed.items()})
    carried = {state.input: state for state in (carried_states(signature) if fed is None else told)}
    windows = {name: fed_state.window for name, fed_state in (fed or {}).items() if fed_state.window is not None}
    states = tuple(
        _empty(tensor, carried[tensor.name].frames_axis) for tensor in signature.inputs if tensor.name in carried
    )
    inputs = tuple(tensor for tensor in signature.inputs if tensor.name not in carried)
    return Subject(
        shown=f"{shown_path(path)}{separator}{backend if separator else ''}",
        inputs=inputs,
        states=states,
        sizes={},
        carried=", ".join(
            f"{state.input} <- {state.output} ({state.reason})" for state in carried.values() if fed is None
        ),
        fed=None,
        answers=_chained(BACKENDS[backend if separator else "plain"](path), signature, states, carried, windows, sizes),
    )


def _empty(state: Tensor, frames_axis: int | None) -> Tensor:
    """Return a state before the first call; a cache has no frames yet."""
    dims = tuple(0 if axis == frames_axis else dim for axis, dim in enumerate(state.dims))
    return dataclasses.replace(state, dims=dims)


def _chained(
    call: Call,
    signature: Signature,
    states: Sequence[Tensor],
    carried: Mapping[str, Carried],
    windows: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Answers:
    """Return a function that runs calls with the states of the previous one; a feed may hold the first states."""
    names = [tensor.name for tensor in signature.outputs]
    known = {tensor.name for tensor in signature.inputs}

    def answers(feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
        states_now: dict[str, Array] = {}
        for feed in feeds:
            if not states_now:
                seen = {**sizes, **sizes_of(signature.inputs, feed)}
                states_now = {state.name: np.zeros(shape_in(state, seen), np.dtype(state.dtype)) for state in states}
                states_now |= {name: array for name, array in feed.items() if name in states_now}
            fed = {name: array for name, array in feed.items() if name in known and name not in states_now}
            outputs = dict(zip(names, map(np.asarray, call(names, {**fed, **states_now})), strict=True))
            states_now = {
                name: _newest(outputs[state.output], state, windows.get(name)) for name, state in carried.items()
            }
            yield outputs

    return answers


def _newest(array: Array, state: Carried, window: int | None) -> Array:
    """Return the part of a state that the next call takes: at most the frames of the recipe's window."""
    return array if window is None or state.frames_axis is None else newest(array, state.frames_axis, window)


def sizes_of(tensors: Iterable[Tensor], feed: Feed) -> dict[str, int]:
    """Return the sizes of axes in a feed."""
    shown = ((tensor, feed[tensor.name]) for tensor in tensors if tensor.name in feed)
    pairs = (pair for tensor, array in shown for pair in zip(tensor.dims, array.shape, strict=False))
    return {str(dim): size for dim, size in pairs if not isinstance(dim, int) and dim.is_Symbol}


@contextlib.contextmanager
def opened_bundle(text: str) -> Iterator[Subject]:
    """Yield a graph of a bundle as a model, run by the runtime.

    Args:
        text: `BUNDLE` or `BUNDLE:GRAPH`.

    Raises:
        RuntimeLiteError: the path is no bundle, or has no such graph.
    """
    path, graph = named_graph(text)
    with Runtime() as runtime:
        model = runtime.load(path)
        runner = model.runner(graph)
        axes = {name: axis.buckets[-1] if axis.length_input else axis.buckets[0] for name, axis in
                runner.graph.axes.items()}  # fmt: skip
        inputs = tuple(
            Tensor(
                tensor.name,
                tuple(dim if isinstance(dim, int) else expression(dim) for dim in tensor.shape),
                tensor.dtype,
            )
            for tensor in runner.graph.inputs
            if tensor.role == "data"
        )
        fed = _fed(recipe_of(model.bundle), runner.name)
        yield Subject(text, inputs, (), axes, "", fed, lambda feeds: _pushed(model, runner.name, feeds))


def _fed(recipe: Mapping[str, Any], graph: str) -> dict[str, Fed]:
    """Return the states of a bundle's graph, by their names before passes."""
    spec = recipe.get("graphs", {}).get(graph, {"axes": {}, "inputs": {}})
    windows = {name: axis["window"] for name, axis in spec["axes"].items() if axis.get("window") is not None}
    return {
        name: Fed(given["state"], next((windows[dim] for dim in given["shape"] if dim in windows), None))
        for name, given in spec["inputs"].items()
        if given.get("state") is not None
    }


def _pushed(model: Model, graph: str, feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
    runner = model.runner(graph)
    names = {tensor.name for tensor in runner.graph.inputs if tensor.role == "data"}
    with contextlib.ExitStack() as stack:
        push: Callable[[dict[str, Array]], dict[str, Array]] | None = None
        for feed in feeds:
            chunk = {name: array for name, array in feed.items() if name in names}
            if push is None:
                rows = runner.check(f"{graph}.run", chunk).rows
                has_states = bool(runner.graph.states)
                stream = stack.enter_context(model.open_stream(graph, rows=rows)) if has_states else None
                push = stream.push if stream is not None else lambda feed: model.run(feed, graph)
            yield push(chunk)


def named_graph(text: str) -> tuple[str, str | None]:
    """Return `dist/mine:encoder` as its two parts; an existing path is one part."""
    path, colon, graph = text.rpartition(":")
    return (text, None) if not colon or Path(text).exists() else (path, graph)


def open_original(loaded: LoadedRecipe, graph: str | None, cache: StageCache | None, progress: Progress) -> Subject:
    """Return the original of a recipe's graph, as a build compares with it.

    Raises:
        SlipwayError: as in a build; the recipe has no such graph, or several and none is named.
    """
    graphs, shown = loaded.recipe.graphs, shown_path(loaded.path)
    name = next(iter(graphs)) if graph is None and len(graphs) == 1 else graph
    if name is None or name not in graphs:
        got = "none" if name is None else repr(name)
        cure = f"write {shown}:NAME; {did_you_mean(name or '', graphs)}"
        raise RecipeError(f"{shown}: expected the name of one of its graphs, got {got}", cure=cure)
    spec = graphs[name]
    original = original_of(loaded, name, spec, cache, progress, with_data=False)
    inputs = tuple(
        Tensor(
            input_name,
            tuple(dim if isinstance(dim, int) else expression(dim) for dim in input_spec.shape),
            input_spec.dtype,
        )
        for input_name, input_spec in spec.inputs.items()
        if input_spec.is_data
    )
    names = {tensor.name for tensor in inputs}
    sizes = {axis: axis_spec.fixed for axis, axis_spec in spec.axes.items() if axis_spec.fixed is not None}
    sizes |= {axis: axis_spec.buckets[-1] for axis, axis_spec in spec.padded.items() if axis_spec.buckets}
    sizes |= {} if spec.batch is None else {spec.batch: 1}

    def answers(feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
        own_feeds = ({name: array for name, array in feed.items() if name in names} for feed in feeds)
        for outputs, _ in original.reference().run(own_feeds):
            yield outputs

    fed = {
        input_name: Fed(
            input_spec.state, next((spec.caches[dim].window for dim in input_spec.shape if dim in spec.caches), None)
        )
        for input_name, input_spec in spec.inputs.items()
        if input_spec.state is not None
    }
    return Subject(f"{shown}:{name}", inputs, (), sizes, "", fed, answers)


def checked(subject: Subject, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
    """Yield the model's results for every feed; a backend's error becomes one sentence.

    Raises:
        DataError: the model fails on a feed.
    """
    answers = subject.answers(feeds)
    for feed in feeds:
        try:
            outputs = next(answers)
        except (SlipwayError, RuntimeLiteError):
            raise
        except Exception as error:
            raise unanswered(STAGE, subject.shown, feed, error) from error
        yield outputs
