"""Implements `build.py run A B`: runs two models on the same feeds, and compares all their outputs call after call."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from compiler.base.cache.store import StageCache
from compiler.build.report.progress import Progress
from compiler.build.verify.differences import Difference, Tally, class_words
from compiler.errors import DataError, GateFailed, Location, RecipeError
from compiler.front.commands.example_feeds import random_feeds, require_sizes
from compiler.front.commands.onnx_signature import Tensor
from compiler.front.commands.subjects import STAGE, Fed, Subject, checked, open_onnx, open_original, opened_bundle
from compiler.graph.sizes.expressions import Dim
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import Tolerance
from compiler.recipe.load import load_recipe
from runtime_lite.format.arrays import arrays_from_file

CALLS = 4
"""Where neither the feeds nor the caller says how many."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compare, and on what.

    Attributes:
        first: the graph or bundle that the other is compared with.
        second: the other.
        feeds: `.npz` file, or None for random numbers.
        seed: of the random numbers.
        calls: of a stream; None for all of the file.
        sizes: of axes, by name.
        names: its name in the first, and in the second.
        overrides: changes of a recipe, as in a build.
        checkpoint: instead of a recipe's.
        cache: of a recipe's stages.
        tell: called with notices, one line each.
    """

    first: str
    second: str
    feeds: Path | None = None
    seed: int = 0
    calls: int | None = None
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    overrides: Sequence[str] = ()
    checkpoint: str | None = None
    cache: StageCache | None = None
    tell: Callable[[str], None] = warnings.warn


@dataclasses.dataclass(frozen=True)
class Compared:
    """One tensor over all calls.

    Attributes:
        difference: between the two.
        first_call: the first call at which it is above the tolerance, or None.
        argmax: share of places at which the largest entry is the same one; None where that means nothing.
        holds: whether it is within the tolerance.
    """

    difference: Difference
    first_call: int | None
    argmax: float | None
    holds: bool


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        rows: per tensor that both give.
        notes: what else there is to know, a line each.
    """

    rows: tuple[Compared, ...]
    notes: tuple[str, ...]


def compare_pair(request: Request, limits: Tolerance) -> Comparison:
    """Run both models on the same feeds, and return their differences.

    Raises:
        SlipwayError: a model cannot be opened, their inputs or outputs have other names, or the feeds do not fit.
    """
    with contextlib.ExitStack() as stack:
        first, second = _both(stack, request)
        second = _renamed(second, {theirs: ours for ours, theirs in request.names.items()})
        feeds = _feeds(first, second, request)
        return _compared(first, second, feeds, limits)


def require_same(comparison: Comparison, request: Request, limits: Tolerance) -> None:
    """Raise for the tensor with the largest difference, if one exceeds the tolerance.

    Raises:
        GateFailed: a tensor differs by more than the tolerance.
    """
    wrong = [row for row in comparison.rows if not row.holds]
    if wrong:
        row = max(wrong, key=lambda row: row.difference.used(limits))
        difference = row.difference
        words = (
            f"within {difference.limit(limits):.3g} of {request.first}, got a difference of {difference.max_abs:.3g}"
            if difference.classes is None
            else f"equal to that of {request.first}, as classes, got {class_words(difference.classes, in_order=False)}"
        )
        raise GateFailed(
            f"expected {difference.tensor} of {request.second} {words}, first at call {row.first_call}",
            cure="raise --tolerance if that much is meant to differ"
            if difference.classes is None
            else "rounding decides between classes that are nearly tied: compare the numbers that they are chosen by",
            place=Location(stage=STAGE, tensor=difference.tensor),
        )


def _both(stack: contextlib.ExitStack, request: Request) -> tuple[Subject, Subject]:
    """Return both models; a file gets the states that the other's recipe states."""
    to_second = dict(request.names)
    to_first = {theirs: ours for ours, theirs in to_second.items()}
    if _is_file(request.first):
        second = stack.enter_context(_opened(request.second, request))
        return stack.enter_context(_opened(request.first, request, _called(second.fed, to_first))), second
    first = stack.enter_context(_opened(request.first, request))
    return first, stack.enter_context(_opened(request.second, request, _called(first.fed, to_second)))


def _called(fed: Mapping[str, Fed] | None, names: Mapping[str, str]) -> dict[str, Fed] | None:
    """Return states under the other model's names."""
    if fed is None:
        return None
    return {names.get(name, name): Fed(names.get(f.output, f.output), f.window) for name, f in fed.items()}


def _is_file(text: str) -> bool:
    return text.rpartition("@")[0].endswith(".onnx") or text.endswith(".onnx")


@contextlib.contextmanager
def _opened(text: str, request: Request, fed: Mapping[str, Fed] | None = None) -> Iterator[Subject]:
    path, _, graph = text.rpartition(":") if not Path(text).exists() and ":" in text else (text, "", "")
    if _is_file(path):
        yield open_onnx(text, request.sizes, fed)
    elif path.endswith((".yaml", ".yml")):
        loaded = load_recipe(path, request.overrides, request.checkpoint, request.tell)
        yield open_original(loaded, graph or None, request.cache, Progress())
    elif Path(path).is_dir() or path.endswith(".tar"):
        with opened_bundle(text) as subject:
            yield subject
    else:
        raise RecipeError(
            f"{text}: expected an ONNX file, a bundle or a recipe, got "
            f"{'nothing of that name' if not Path(path).exists() else 'something else'}",
            cure="write model.onnx, model.onnx@optimized, dist/bundle:graph or recipe.yaml:graph",
        )


def _renamed(subject: Subject, names: Mapping[str, str]) -> Subject:
    """Return the model with its inputs and outputs under the first one's names."""
    if not names:
        return subject
    back = {ours: theirs for theirs, ours in names.items()}
    inputs = tuple(dataclasses.replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in subject.inputs)

    def answers(feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        own_feeds = [{back.get(name, name): array for name, array in feed.items()} for feed in feeds]
        for outputs in subject.answers(own_feeds):
            yield {names.get(name, name): array for name, array in outputs.items()}

    return dataclasses.replace(subject, inputs=inputs, answers=answers)  # type: ignore[arg-type]


# Feeds


def _feeds(first: Subject, second: Subject, request: Request) -> list[Feed]:
    """Return the feeds of both models: from the file, or random."""
    wanted = _merged(first, second)
    if request.feeds is not None:
        return _from_file(request.feeds, wanted, request.calls)
    ours, theirs = ({tensor.name for tensor in subject.inputs} for subject in (first, second))
    if ours != theirs:
        raise RecipeError(
            f"expected inputs of the same names, got {sorted(ours - theirs)} in {first.shown} alone and "
            f"{sorted(theirs - ours)} in {second.shown} alone",
            cure="pair them with --name FIRST=SECOND, or give all of them with --feeds FILE.npz",
        )
    tensors = (*wanted, *first.states, *second.states)
    known = {axis for tensor in tensors for axis in tensor.axes}
    known_sizes = {name: size for name, size in {**second.sizes, **first.sizes}.items() if name in known}
    sizes = {**known_sizes, **request.sizes}
    require_sizes(f"{first.shown} and {second.shown}", tensors, sizes)
    return random_feeds(wanted, sizes, request.seed, request.calls or CALLS)


def _merged(first: Subject, second: Subject) -> tuple[Tensor, ...]:
    """Return the inputs of both models; where one has a number and the other a name, the number is used."""
    by_name = {tensor.name: tensor for tensor in first.inputs}
    sized = {**second.sizes, **first.sizes}
    for theirs in second.inputs:
        ours = by_name.setdefault(theirs.name, theirs)
        pairs = list(zip(ours.dims, theirs.dims, strict=False))
        numbers = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
        if (ours.dtype, len(ours.dims)) != (theirs.dtype, len(theirs.dims)) or any(a != b for a, b in numbers):
            got = f"{theirs} {theirs.dtype} of {second.shown}"
            raise DataError(
                f"expected {ours} {ours.dtype} as in {first.shown}, got {got}",
                cure="compare models that take the same feeds",
                place=Location(stage=STAGE, tensor=theirs.name),
            )
        dims = [b if isinstance(b, int) or (_is_open(a, sized) and not _is_open(b, sized)) else a for a, b in pairs]
        by_name[theirs.name] = dataclasses.replace(ours, dims=tuple(dims))
    return tuple(by_name.values())


def _is_open(dim: Dim, sized: Mapping[str, int]) -> bool:
    """Whether a size is a name without a given size."""
    return not isinstance(dim, int) and str(dim) not in sized


def _from_file(path: Path, wanted: Sequence[Tensor], calls: int | None) -> list[Feed]:
    """Return the feeds of a file: arrays of the inputs' rank, or with an additional first axis of calls."""
    arrays = arrays_from_file(path)
    counts: dict[str, int] = {}
    for tensor in wanted:
        if tensor.name not in arrays:
            raise DataError(
                f"{path}: expected {tensor.name}, got {', '.join(sorted(arrays)) or 'nothing'}",
                cure="save one array per input, by its name",
            )
        array = arrays[tensor.name]
        if str(array.dtype) != tensor.dtype or array.ndim - len(tensor.dims) not in (0, 1):
            raise DataError(
                f"{path}: expected {tensor} as {tensor.dtype}, with or without the calls in front, got {array.dtype} "
                f"{list(array.shape)}",
                cure=f"save it with .astype({tensor.dtype!r}) in that shape",
            )
        counts |= {tensor.name: len(array)} if array.ndim > len(tensor.dims) else {}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise DataError(f"{path}: expected one number of calls, got {counts}", cure="save as many of each")
    most = next(iter(counts.values()), calls or CALLS)
    if calls is not None and calls > most:
        raise DataError(f"{path}: expected {calls} calls, got {most}", cure=f"ask for --calls {most}, or save more")
    calls_of = {tensor.name: arrays[tensor.name] for tensor in wanted} | {
        name: array for name, array in arrays.items() if name not in counts
    }
    return [
        {name: array[call] if name in counts else array for name, array in calls_of.items()}
        for call in range(calls or most)
    ]


# Answers


def _compared(first: Subject, second: Subject, feeds: Sequence[Feed], limits: Tolerance) -> Comparison:
    tallies: dict[str, _Pair] = {}
    notes = [f"{subject.shown}: states guessed: {subject.carried}" for subject in (first, second) if subject.carried]
    for call, (expected, got) in enumerate(zip(checked(first, feeds), checked(second, feeds), strict=True)):
        if call == 0:
            _require_common(first, second, expected, got)
            for subject, own_outputs, other in ((first, expected, got), (second, got, expected)):
                alone = sorted(own_outputs.keys() - other.keys())
                notes += [f"{subject.shown} alone gives {', '.join(alone)}"] if alone else []
        for name in expected:
            if name in got:
                tallies.setdefault(name, _Pair(name)).add(got[name], expected[name])
    sizes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds[0].items())
    notes.append(f"{len(feeds)} calls on {sizes}")
    return Comparison(tuple(pair.compared(limits) for pair in tallies.values()), tuple(notes))


def _require_common(first: Subject, second: Subject, expected: Mapping[str, Array], got: Mapping[str, Array]) -> None:
    if expected.keys() & got.keys():
        return
    pairs = " ".join(f"--name {a}={b}" for a, b in zip(expected, got, strict=False))
    raise RecipeError(
        f"expected outputs of the same names, got {list(expected)} of {first.shown} and {list(got)} of {second.shown}",
        cure=f"pair them, as in {pairs}" if pairs else "compare models that have outputs",
    )


class _Pair:
    """One tensor of both, call by call."""

    def __init__(self, name: str) -> None:
        self.tally = Tally(name)
        self.same, self.places = 0, 0
        self.is_scored = True

    def add(self, got: Array, expected: Array) -> None:
        self.tally.add(got, expected)
        self.is_scored &= got.shape == expected.shape and expected.dtype.kind == "f" and expected.ndim > 0
        self.is_scored = self.is_scored and expected.shape[-1] > 1 and got.dtype.kind == "f"
        if self.is_scored:
            agree = np.argmax(got, axis=-1) == np.argmax(expected, axis=-1)
            self.same, self.places = self.same + int(np.sum(agree)), self.places + int(np.size(agree))

    def compared(self, limits: Tolerance) -> Compared:
        difference = self.tally.difference()
        limit = difference.limit(limits)
        beyond = (call for call, error in enumerate(self.tally.errors) if not error <= limit)
        first_call = next(beyond, None) if difference.classes is None else difference.classes.first_step
        argmax = self.same / self.places if self.is_scored and self.places else None
        return Compared(difference, first_call, argmax, difference.holds(limits))


def comparison_table(comparison: Comparison) -> Table:
    """Return the comparison as a table for the terminal."""
    table = Table(box=None, pad_edge=False)
    table.add_column("tensor", overflow="fold")
    for title in ("calls", "max abs", "relative", "SQNR dB", "same argmax", "differs from call"):
        table.add_column(title, justify="right")
    table.add_column("")
    for row in comparison.rows:
        difference = row.difference
        is_relative = difference.classes is None and difference.reference_max
        relative = difference.max_abs / difference.reference_max if is_relative else None
        table.add_row(
            escape(difference.tensor),
            str(difference.steps),
            f"{difference.max_abs:.3g}" if difference.classes is None else "-",
            "-" if relative is None else f"{relative:.3g}",
            "-" if difference.sqnr_db is None else f"{difference.sqnr_db:.1f}",
            "-" if row.argmax is None else f"{100 * row.argmax:.2f} %",
            "-" if row.first_call is None else str(row.first_call),
            "same" if row.holds else "DIFFERS",
        )
    return table
