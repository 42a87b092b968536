"""The frozen Recipe record: what to build, from what, and which promises the build must keep.

A recipe is YAML data. `load_recipe` reads it, expands name ranges, applies `--set` and `--checkpoint`, checks it
strictly (nothing is converted silently) and returns one frozen record with the effective text, defaults filled in.
Every message reads `<file>:<line>: <key>: expected <E>, got <G>; <cure>`.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import pydantic
import yaml
from pydantic import Field
from pydantic_core import PydanticCustomError

import compiler
from compiler.errors import RecipeError, did_you_mean
from compiler.recipe.located_yaml import Node, read_document
from compiler.recipe.messages import first_problem
from compiler.recipe.tree import (
    STANDARD,
    Key,
    add_default_passes,
    apply_override,
    expand_name_ranges,
    inherit_checkpoints,
    normalize_specs,
    replace_checkpoints,
    where,
)

RECIPES_DIR = "recipes"

SLIPWAY_DIR = Path(compiler.__file__).resolve().parents[1]

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""A graph, axis or pass name; it becomes part of file names and symbols."""

TensorName = Annotated[str, Field(min_length=1, max_length=256)]
"""A graph input or output; ONNX files come with any spelling."""

Reference = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
"""A Python object, `package.module:name`."""

FilePath = Annotated[str, Field(min_length=1)]
"""Relative to the current directory first, then to the recipe's folder."""

Positive = Annotated[int, Field(ge=1)]

Dtype = Literal[
    "bfloat16",
    "bool",
    "float16",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]

EdgeKind = Literal["silence", "constant", "impulse", "full_scale", "smallest"]
"""What an edge feed holds; compiler/verify/edge_feeds.py makes them."""

DEFAULT_LENGTH_INPUT = "real_length"
"""Of a window; an axis with buckets has one only where the recipe asks for it."""

FrontEndValue = int | float | str | bool


def _disagree(message: str, cure: str, *keys: Key) -> PydanticCustomError:
    """Keys that contradict each other: `expected ..., got ...`, what to do, and where below the record."""
    return PydanticCustomError("disagree", "{message}", {"message": message, "cure": cure, "keys": keys})


class _Record(pydantic.BaseModel):
    """Frozen; unknown keys refused; no conversion between types."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Source(_Record):
    """Where a graph comes from: a factory of a torch module (with its checkpoint), or an ONNX file.

    Attributes:
        factory: callable without arguments that returns the `torch.nn.Module`.
        onnx: path of an ONNX file.
        checkpoint: path of the weights the factory's module loads; None keeps the factory's own.
        files: files and folders that the factory reads by itself; their content is part of the cache key.
        cast: whether weights of another type than the module's are converted; refused otherwise.
    """

    factory: Reference | None = None
    onnx: FilePath | None = None
    checkpoint: FilePath | None = None
    files: tuple[FilePath, ...] = ()
    cast: bool = False

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.factory is None) == (self.onnx is None):
            got = "neither" if self.factory is None else "both"
            raise _disagree(f"expected one of factory and onnx, got {got}", "name where the graph comes from")
        if self.onnx is not None and self.checkpoint is not None:
            cure = "delete the key; an ONNX file holds its own weights"
            raise _disagree("expected no checkpoint beside onnx, got one", cure, "checkpoint")
        if self.cast and self.checkpoint is None:
            cure = "delete the key, or name the checkpoint that is to be converted"
            raise _disagree("expected a checkpoint beside cast, got none", cure, "cast")
        return self


class Input(_Record):
    """One graph input, in the order of the module's `forward`.

    Attributes:
        shape: sizes and axis names, e.g. `[batch, cache, 256]`.
        dtype: element type.
        state: name of the output whose value is fed back here by the next call; None for data.
        mask_of: the padded axis of which the model takes a mask here, 1 at valid places; made from the lengths.
        length_of: the padded axis whose true length the model takes here; it becomes the axis' length input.
        original: the shape that the original takes, where it is written for one row: `shape` without its batch axis, or
            with a 1 for it anywhere; None where the original has the batch axis itself.
        range: the smallest and the largest number that callers feed; None takes them from the data.
    """

    shape: tuple[Positive | Name, ...]
    dtype: Dtype
    state: TensorName | None = None
    mask_of: Name | None = None
    length_of: Name | None = None
    original: tuple[Positive | Name, ...] | None = None
    range: tuple[float, ...] | None = None

    @pydantic.model_validator(mode="after")
    def _hold_range(self) -> Self:
        if self.range is None:
            return self
        if len(self.range) != 2:
            cure = "write the smallest and the largest that callers feed"
            raise _disagree(f"expected two numbers, got {len(self.range)}", cure, "range")
        low, high = self.range
        if not self.is_data or self.dtype == "bool":
            kind = "a state, mask or length" if self.dtype != "bool" else "truth values"
            raise _disagree(f"expected a range for numbers that callers feed, got one for {kind}", "delete it", "range")
        if low > high:
            raise _disagree(f"expected the smaller number first, got [{low:g}, {high:g}]", "swap them", "range")
        if self.dtype.startswith(("int", "uint")) and not (low.is_integer() and high.is_integer()):
            raise _disagree(f"expected whole numbers for {self.dtype}, got [{low:g}, {high:g}]", "round them", "range")
        return self

    @property
    def is_data(self) -> bool:
        """Whether callers feed it."""
        return self.state is None and self.mask_of is None and self.length_of is None

    @property
    def row_place(self) -> int | None:
        """The axis of `original` that is 1 for the batch, or None where it has none."""
        original = list(self.original or ())
        rest = list(self.shape[1:])
        if original == rest:
            return None
        ones = (i for i, size in enumerate(original) if size == 1 and original[:i] + original[i + 1 :] == rest)
        return next(ones)


class Axis(_Record):
    """How a named axis becomes static: one size, a few sizes, or a window of valid slots.

    Attributes:
        fixed: the size.
        buckets: the sizes to build for, ascending.
        window: slots of a cache axis; the valid ones are counted at run time.
        length_input: graph input that holds the number of valid slots. A window has one; buckets have one when every
            row is to have a length of its own, valid entries first. At most one axis with buckets has none: the batch.
        mask_input: graph input that holds 1 for valid slots and 0 for free ones; None computes it inside the graph.
    """

    fixed: Positive | None = None
    buckets: tuple[Positive, ...] | None = None
    window: Positive | None = None
    length_input: TensorName | None = None
    mask_input: TensorName | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _name_length(cls, given: Any) -> Any:
        """A window has a length input whether it is named or not."""
        if isinstance(given, dict) and given.get("window") is not None and given.get("length_input") is None:
            return {**given, "length_input": DEFAULT_LENGTH_INPUT}
        return given

    @pydantic.model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in ("fixed", "buckets", "window") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise _disagree(
                f"expected one of fixed, buckets and window, got {' and '.join(kinds) or 'none'}",
                "give each axis one kind",
            )
        if (self.buckets is not None and list(self.buckets) != sorted(set(self.buckets))) or self.buckets == ():
            fixed = sorted(set(self.buckets or ())) or [1]
            raise _disagree(f"expected ascending distinct buckets, got {list(self.buckets or ())}", f"write {fixed}")
        if self.fixed is not None and self.length_input is not None:
            raise _disagree("expected length_input on buckets or a window, got it on a fixed axis", "delete the key")
        if self.window is None and self.mask_input is not None:
            raise _disagree(f"expected mask_input on a window axis only, got it on a {kinds[0]} axis", "delete the key")
        if self.length_input is not None and self.length_input == self.mask_input:
            raise _disagree(
                "expected different names for length_input and mask_input, got one name", "rename one of them"
            )
        return self


class PassSpec(_Record):
    """One pass of a graph's pipeline, with its options."""

    name: Name
    options: dict[str, Any] = {}


STANDARD_PASSES = (
    "simplify",
    "canonicalize_attention",
    "canonicalize_transposes",
    "canonicalize_reshapes",
    "canonicalize_positions",
    "fold_mask_inputs",
    "simplify",
    "add_batch_axis",
    "merge_first_call",
    "select_states",
    "pad_axes",
    "window_states",
    "project_positions",
    "pack_states",
    "simplify",
)
"""The pipeline of a graph whose recipe lists no passes; each does nothing where there is nothing to do."""


class Graph(_Record):
    """One graph of the bundle.

    Attributes:
        source: the call form that runs for every chunk.
        first_call: the call form that starts a stream, if it is another one.
        inputs: in the order of the module's `forward`.
        outputs: in the order of the module's results.
        axes: how each named axis becomes static.
        passes: the pipeline, in order; `STANDARD_PASSES` when the recipe lists none.
    """

    source: Source
    first_call: Source | None = None
    inputs: Annotated[dict[TensorName, Input], Field(min_length=1)]
    outputs: Annotated[tuple[TensorName, ...], Field(min_length=1)]
    axes: dict[Name, Axis] = {}
    passes: tuple[PassSpec, ...] = tuple(PassSpec(name=name) for name in STANDARD_PASSES)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _name_lengths(cls, given: Any) -> Any:
        """An axis whose mask or length the model takes has a length input whether it is named or not."""
        if not isinstance(given, dict) or not isinstance(given.get("inputs"), dict):
            return given
        axes = given.get("axes")
        return {**given, "axes": _named_lengths(given["inputs"], axes)} if isinstance(axes, dict) else given

    @pydantic.model_validator(mode="after")
    def _agree(self) -> Self:
        _check_distinct("outputs", self.outputs)
        _check_axes(self)
        _check_combinations(self)
        _check_states(self)
        _check_padded(self)
        _check_originals(self)
        return self

    @property
    def padded(self) -> dict[str, Axis]:
        """The axes with a true length per row, by name."""
        return {name: axis for name, axis in self.axes.items() if axis.buckets and axis.length_input is not None}

    @property
    def batch(self) -> str | None:
        """The axis of rows."""
        return next((name for name, axis in self.axes.items() if axis.buckets and axis.length_input is None), None)


MAX_COMBINATIONS = 256
"""Of buckets per graph: each is a graph that is written, verified and timed."""


def _check_combinations(graph: Graph) -> None:
    sizes = {name: len(axis.buckets) for name, axis in graph.axes.items() if axis.buckets}
    if math.prod(sizes.values()) > MAX_COMBINATIONS:
        got = " times ".join(f"{count} of {name}" for name, count in sizes.items())
        most = max(sizes, key=lambda name: sizes[name])
        message = f"expected at most {MAX_COMBINATIONS} combinations of buckets, each a graph of its own, got {got}"
        raise _disagree(message, "choose fewer: a feed is padded to the next larger one", "axes", most, "buckets")


def _check_distinct(key: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _disagree(f"expected distinct names, got {twice[0]!r} twice", "rename or delete one of the two", key)


def _check_axes(graph: Graph) -> None:
    used = [(axis, name) for name, spec in graph.inputs.items() for axis in spec.shape if isinstance(axis, str)]
    for axis, name in used:
        if axis not in graph.axes:
            cure = f"declare it, or write a number; {did_you_mean(axis, graph.axes)}"
            message = f"expected numbers and axes declared under axes, got {axis!r}"
            raise _disagree(message, cure, "inputs", name, "shape")
    for axis, spec in graph.axes.items():
        if axis not in dict(used):
            cure = f"delete it; {did_you_mean(axis, dict(used))}"
            raise _disagree(f"expected an axis of some shape, got {axis!r} in none", cure, "axes", axis)
        for key in ("length_input", "mask_input"):
            name = getattr(spec, key)
            if name in graph.inputs and graph.inputs[name].length_of != axis:
                message = f"expected a new name for the input it adds, got {name!r}, which is an input"
                raise _disagree(message, "rename it, or write length_of at that input", "axes", axis, key)


def _named_lengths(inputs: dict[Any, Any], axes: dict[Any, Any]) -> dict[Any, Any]:
    """The axes, with the default of length_input where the model takes a mask or a length."""
    named = dict(axes)
    for key in ("mask_of", "length_of"):  # the name of an input wins
        for name, given in inputs.items():
            axis = given.get(key) if isinstance(given, dict) else None
            wanted = axes.get(axis) if isinstance(axis, str) else None
            if isinstance(wanted, dict) and wanted.get("buckets") is not None and wanted.get("length_input") is None:
                named[axis] = {**wanted, "length_input": name if key == "length_of" else f"{axis}_length"}
    return named


def _check_padded(graph: Graph) -> None:
    """Axes with a length per row, and the masks and lengths that the model takes of them."""
    bare = [name for name, axis in graph.axes.items() if axis.buckets is not None and axis.length_input is None]
    if len(bare) > 1:
        message = f"expected one axis with buckets and no length_input, the batch, got {bare}"
        raise _disagree(message, "give each other axis a length_input, or fix it", "axes", bare[-1])
    for name, given in graph.inputs.items():
        for key in ("mask_of", "length_of"):
            axis = getattr(given, key)
            if axis is not None and axis not in graph.padded:
                message = f"expected an axis with buckets, got {axis!r}"
                raise _disagree(message, did_you_mean(axis, graph.padded), "inputs", name, key)
        if given.mask_of is not None and given.mask_of not in given.shape:
            message = f"expected the axis {given.mask_of!r} in the shape of its mask, got {list(given.shape)}"
            raise _disagree(message, "write the mask's shape", "inputs", name, "shape")
        if given.length_of is not None and not given.dtype.startswith(("int", "uint")):
            message = f"expected a type of integers for lengths, got {given.dtype}"
            raise _disagree(message, "write the model's type", "inputs", name, "dtype")
        if len([each for each in (given.state, given.mask_of, given.length_of) if each is not None]) > 1:
            message = "expected one of state, mask_of and length_of, got several"
            raise _disagree(message, "say what the input is", "inputs", name)
    states = [name for name, given in graph.inputs.items() if given.state is not None]
    if states and graph.padded:
        message = f"expected no length per row in a graph with states such as {states[0]!r}"
        axis = next(iter(graph.padded))
        raise _disagree(message, "give the chunks one size: fixed", "axes", axis, "length_input")
    lengths = [axis.length_input for axis in graph.axes.values() if axis.length_input is not None]
    twice = [name for name in lengths if lengths.count(name) > 1]
    if twice:
        message = f"expected a length_input of its own for each axis, got {twice[0]!r} twice"
        raise _disagree(message, "rename one", "axes")


def _check_states(graph: Graph) -> None:
    fed: dict[str, str] = {}
    for name, spec in graph.inputs.items():
        if spec.state is None:
            continue
        if spec.state not in graph.outputs:
            cure = did_you_mean(spec.state, graph.outputs)
            raise _disagree(f"expected the name of an output, got {spec.state!r}", cure, "inputs", name, "state")
        if spec.state in fed:
            message = f"expected an output that feeds no other input, got {spec.state!r}, which feeds {fed[spec.state]}"
            raise _disagree(message, "let each output feed one input", "inputs", name, "state")
        fed[spec.state] = name


def _check_originals(graph: Graph) -> None:
    """A graph is written for one row in all of its inputs or in none."""
    given = [name for name, spec in graph.inputs.items() if spec.original is not None]
    if not given:
        return
    for name, spec in graph.inputs.items():
        first = spec.shape[0] if spec.shape else None
        if first is None or first != graph.batch:
            message = f"expected the axis with buckets in front, got {list(spec.shape)} for an original of one row"
            cure = "write the batch axis first in shape, and the shape that the original takes under original"
            raise _disagree(message, cure, "inputs", name, "shape")
        if spec.original is None:
            message = f"expected original for every input, got it for {given[0]!r} and not for {name!r}"
            raise _disagree(message, "write the shape that the original takes here", "inputs", name)
        rest = list(spec.shape[1:])
        fits = [[*rest[:i], 1, *rest[i:]] for i in range(len(rest) + 1)]
        if list(spec.original) not in [rest, *fits]:
            message = f"expected shape without {first!r}, or with a 1 for it, got {list(spec.original)}"
            raise _disagree(message, f"write {fits[0]} or {rest}", "inputs", name, "original")
    if "add_batch_axis" not in [each.name for each in graph.passes]:
        message = "expected add_batch_axis among passes, as the original is for one row, got none"
        raise _disagree(message, "list it before merge_first_call and pad_axes", "passes")


class Feeds(_Record):
    """A data generator: a callable without arguments that yields streams; a stream is an iterable of feeds.

    Attributes:
        feeds: one generator, or one per graph.
        count: streams taken from it.
        files: folders and files the feeds are made from; their content is part of the cache key.
    """

    feeds: Reference | dict[Name, Reference]
    count: Positive
    files: tuple[FilePath, ...] = ()

    def for_graph(self, graph: str) -> str:
        """The generator of one graph's feeds."""
        return self.feeds if isinstance(self.feeds, str) else self.feeds[graph]


class Data(_Record):
    """Feeds by their roles; no feed may have two of them.

    Attributes:
        verification: what gates run; the recordings of the task have this role as well.
        calibration: where passes take ranges and noise from.
        development: where passes measure the task to choose by it; None measures it on the calibration data.
    """

    verification: Feeds
    calibration: Feeds | None = None
    development: Feeds | None = None


class Target(_Record):
    """One artefact kind to build, with its options."""

    kind: Name
    options: dict[str, Any] = {}


class Limits(_Record):
    """How far outputs and states may be from the original model's.

    Attributes:
        max_abs: largest difference, times the larger of 1 and the largest reference value.
        sqnr_db: smallest ratio of signal to quantisation noise of a tensor over all steps, in dB; None asks for none.
    """

    max_abs: Annotated[float, Field(gt=0)]
    sqnr_db: float | None = None


class DriftGate(_Record):
    """The error of a stream must not grow over many chained calls.

    Attributes:
        steps: calls in a row; the verification streams one behind the other, and from the start again.
        max_growth: the error of the second half of the calls, once the caches are full, over that of the first half.
    """

    steps: Annotated[int, Field(ge=8)] = 1000
    max_growth: Annotated[float, Field(ge=1)] = 1.5


class ParityGate(Limits):
    """Largest allowed difference to the original model, on outputs and states.

    Attributes:
        chained_steps: calls in a row, each fed with the states of the one before.
        lossy: the limits from the first pass on that rounds on purpose: half precision, int8.
        drift: whether the artefact is run much longer, to see that errors do not grow; for graphs with states.
        edges: the kinds of edge feeds that every comparison runs besides.
    """

    chained_steps: Positive
    lossy: Limits | None = None
    drift: DriftGate | None = None
    edges: tuple[EdgeKind, ...] = get_args(EdgeKind)

    def limits(self, *, lossy: bool) -> Limits:
        """What holds for a graph that has been rounded on purpose, or not."""
        return self.lossy if lossy and self.lossy is not None else self


class TaskGate(_Record):
    """The task metric on real recordings, original against bundle.

    Attributes:
        recordings: callable that yields records with `name`, `chunks` (feeds) and `reference` (text).
        decode: callable from a recording's outputs to a transcript.
        metric: callable from references and transcripts to one number, smaller is better.
        max_increase: allowed difference of the metric, bundle minus original.
        identical: whether every transcript must be the same.
        files: files and folders that the three callables read; their content is part of the cache key.
    """

    recordings: Reference
    decode: Reference
    metric: Reference
    max_increase: Annotated[float, Field(ge=0)]
    identical: bool = False
    files: tuple[FilePath, ...] = ()


class BudgetGate(_Record):
    """Upper bounds of the bundle.

    Attributes:
        size_mb: bytes of all files, in units of 1e6.
        p95_ms: 95th percentile of one call at the smallest bucket, one thread.
        max_time_ratio: time of every bucket's call, as a share of that of the same graph before the first pass that
            rounds; both are timed in turns by one process on one thread.
        max_size_ratio: bytes of the graphs and weights, as a share of the same.
    """

    size_mb: Annotated[float, Field(gt=0)] | None = None
    p95_ms: Annotated[float, Field(gt=0)] | None = None
    max_time_ratio: Annotated[float, Field(gt=0)] | None = None
    max_size_ratio: Annotated[float, Field(gt=0)] | None = None


class Gates(_Record):
    """The promises of the build; parity is one gate per graph."""

    parity: dict[Name, ParityGate]
    task: TaskGate | None = None
    budget: BudgetGate | None = None


class Recipe(_Record):
    """Everything a build needs.

    Attributes:
        name: the bundle's name.
        graphs: by name.
        data: feeds to verify, to calibrate and to choose with.
        targets: artefact kinds to build.
        gates: the promises of the build.
        front_end: scalars a user of the bundle must know, e.g. `sample_rate_hz`.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=64)]
    graphs: Annotated[dict[Name, Graph], Field(min_length=1)]
    data: Data
    targets: Annotated[tuple[Target, ...], Field(min_length=1)]
    gates: Gates
    front_end: dict[str, FrontEndValue] = {}

    @pydantic.model_validator(mode="after")
    def _agree(self) -> Self:
        _check_graph_names(("gates", "parity"), self.gates.parity, self.graphs)
        for name, gate in self.gates.parity.items():
            if gate.drift is not None and all(given.state is None for given in self.graphs[name].inputs.values()):
                cure = "drop drift, or declare the states"
                message = "expected a graph that hands states on for drift, got none of them"
                raise _disagree(message, cure, "gates", "parity", name, "drift")
        if self.data.development is not None and self.data.calibration is None:
            message = "expected data.calibration beside it, as passes that choose record ranges there, got none"
            raise _disagree(message, "write calibration, or drop development", "data", "development")
        for key in ("verification", "calibration", "development"):
            feeds = getattr(self.data, key)
            if feeds is not None and isinstance(feeds.feeds, dict):
                _check_graph_names(("data", key, "feeds"), feeds.feeds, self.graphs)
        return self


def _check_graph_names(keys: tuple[str, ...], got: Collection[str], graphs: Mapping[str, Graph]) -> None:
    for name in got:
        if name not in graphs:
            raise _disagree(f"expected the name of a graph, got {name!r}", did_you_mean(name, graphs), *keys, name)
    for name in graphs:
        if name not in got:
            raise _disagree(f"expected an entry for every graph, got none for {name!r}", f"add {name}", *keys)


@dataclasses.dataclass(frozen=True)
class RecipePlaces:
    """Where a recipe came from: lines for messages, and folders for what it names; no value of it.

    Attributes:
        path: the file.
        tree: the values with their lines, for messages of later stages.
    """

    path: Path
    tree: Node = dataclasses.field(repr=False)

    def where(self, *keys: Key) -> str:
        """The start of a message about a key: `recipes/cpu.yaml:12: graphs.encoder.passes`."""
        return where(self.tree, keys)

    def search_path(self) -> tuple[Path, ...]:
        """Folders for relative paths and for modules named in the recipe, first match first."""
        return tuple(dict.fromkeys((Path.cwd(), self.path.resolve().parent)))

    def locate(self, relative: str) -> Path:
        """The file a recipe's path means: the first that exists, else the one in the current directory."""
        candidates = [folder / relative for folder in self.search_path()]
        return next((path for path in candidates if path.exists()), candidates[0])


@dataclasses.dataclass(frozen=True)
class LoadedRecipe(RecipePlaces):
    """A checked recipe and where it came from.

    Attributes:
        recipe: the record.
        text: effective YAML, ranges expanded, overrides applied and defaults filled in; loads to the same record.
    """

    recipe: Recipe
    text: str

    @property
    def places(self) -> RecipePlaces:
        """All that a stage may know of it besides its declared inputs."""
        return RecipePlaces(self.path, self.tree)

    def check_passes(self, registry: Mapping[str, Collection[str]]) -> None:
        """Refuse passes and pass options that do not exist.

        Args:
            registry: option names by pass name.

        Raises:
            RecipeError: a pass or an option is not in the registry.
        """
        for name, graph in self.recipe.graphs.items():
            for index, spec in enumerate(graph.passes):
                where = self.where("graphs", name, "passes", index)
                if spec.name not in registry:
                    known = [*registry, STANDARD]
                    raise RecipeError(
                        f"{where}: expected the name of a pass, got {spec.name!r}", cure=did_you_mean(spec.name, known)
                    )
                _check_options(where, "pass", spec.name, spec.options, registry)

    def check_targets(self, registry: Mapping[str, Collection[str]]) -> None:
        """Refuse target kinds and options that do not exist.

        Args:
            registry: option names by target kind.

        Raises:
            RecipeError: a target or an option is not in the registry.
        """
        for index, target in enumerate(self.recipe.targets):
            _check_options(self.where("targets", index), "target", target.kind, target.options, registry)


def _check_options(
    where: str, what: str, name: str, options: Collection[str], registry: Mapping[str, Collection[str]]
) -> None:
    if name not in registry:
        raise RecipeError(f"{where}: expected the name of a {what}, got {name!r}", cure=did_you_mean(name, registry))
    for option in options:
        if option not in registry[name]:
            raise RecipeError(
                f"{where}: expected an option of {name}, got {option!r}", cure=did_you_mean(option, registry[name])
            )


def load_recipe(path_or_name: str, overrides: Sequence[str] = (), checkpoint: str | None = None) -> LoadedRecipe:
    """Read, complete and check a recipe.

    Args:
        path_or_name: a file, or a name found in `recipes/`.
        overrides: `path.to.key=value`, typed by YAML rules, applied in order.
        checkpoint: replaces the checkpoint of every graph.

    Raises:
        RecipeError: the recipe cannot be read, or is wrong; the message names the line and the key.
    """
    path = find_recipe(path_or_name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecipeError(
            f"{path}: expected a readable recipe, got {error.strerror or error}",
            cure="check the path and its permissions",
        ) from None
    tree = expand_name_ranges(read_document(data, _display(path)))
    tree = add_default_passes(tree, STANDARD_PASSES)
    for override in overrides:
        tree = apply_override(tree, override, Recipe)
        tree = add_default_passes(tree, STANDARD_PASSES)
    tree = normalize_specs(expand_name_ranges(tree))
    if checkpoint is not None:
        tree = replace_checkpoints(tree, checkpoint)
    recipe = _validate(inherit_checkpoints(tree))
    return LoadedRecipe(path, tree, recipe, render_recipe(recipe))


def _validate(tree: Node) -> Recipe:
    try:
        return Recipe.model_validate(tree.plain())
    except pydantic.ValidationError as error:
        raise first_problem(tree, error.errors(include_url=False), Recipe) from None


def find_recipe(path_or_name: str) -> Path:
    """The recipe file: a path as given, or a name in `recipes/` here or beside Slipway, `.yaml` optional.

    Raises:
        RecipeError: there is no such file.
    """
    given = Path(path_or_name)
    if given.is_file():
        return given
    folders = list(dict.fromkeys((Path(RECIPES_DIR), SLIPWAY_DIR / RECIPES_DIR)))
    names = (path_or_name, f"{path_or_name}.yaml")
    for candidate in (folder / name for folder in folders for name in names):
        if candidate.is_file():
            return candidate
    known = {file.name for folder in folders if folder.is_dir() for file in folder.glob("*.yaml")}
    raise RecipeError(
        f"--recipe: expected a file, or a name in {RECIPES_DIR}/, got {path_or_name!r}",
        cure=did_you_mean(path_or_name, known),
    )


def render_recipe(recipe: Recipe) -> str:
    """The recipe as YAML with defaults filled in; keys without value and without default are left out."""
    text: str = yaml.safe_dump(_plain(recipe), sort_keys=False, width=120, default_flow_style=None, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, PassSpec):
        return {value.name: _plain(value.options)} if value.options else value.name
    if isinstance(value, Target):
        return {"kind": value.kind, **_plain(value.options)}
    if isinstance(value, pydantic.BaseModel):
        return {key: _plain(child) for key, child in value if child is not None}
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(child) for child in value]
    return value


def _display(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
