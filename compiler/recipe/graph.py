"""Defines the record of one graph of a recipe, and checks that the entries of this record agree."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field

from compiler.base.did_you_mean import did_you_mean
from compiler.recipe.field_types import Name, Positive, Record, TensorName, disagree
from compiler.recipe.graph_parts import Axis, DeriveSteps, Input, Latency, PassSpec, ShareHeads, Source
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.recipe.written_numbers import fault_of_initial
from runtime_lite.format.arrays import holds


class Graph(Record):
    """One graph of the bundle.

    Attributes:
        source: the call form that runs for every chunk.
        first_call: the call form that starts a stream, if it is another one.
        inputs: in the order of the module's `forward`.
        outputs: in the order of the module's results.
        axes: how each named axis becomes static.
        share_heads: whether heads of attention share keys and values, and how the model is trained to bear it.
        derive_steps: of a model that takes whole sequences, how it is called chunk by chunk.
        passes: the pipeline, in order; `STANDARD_PASSES` when the recipe lists none.
        flush: of a stream whose outputs lag, the entries that are fed at its end, by input: zeros, or `flush_values`.
        flush_values: the number that is fed there in place of 0, by input: what the model's author pads with.
        latency: of a model that is built at several latencies, which of them this graph is.
    """

    source: Source
    first_call: Source | None = None
    inputs: Annotated[dict[TensorName, Input], Field(min_length=1)]
    outputs: Annotated[tuple[TensorName, ...], Field(min_length=1)]
    axes: dict[Name, Axis] = Field(default_factory=dict)
    share_heads: ShareHeads | None = None
    derive_steps: DeriveSteps | None = None
    passes: tuple[PassSpec, ...] = tuple(PassSpec(name=name) for name in STANDARD_PASSES)
    flush: dict[TensorName, Positive] = Field(default_factory=dict)
    flush_values: dict[TensorName, float] = Field(default_factory=dict)
    latency: Latency | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _rows_in_front(cls, given: Any) -> Any:
        """Move the batch to the front of a shape; the given shape becomes that of the original.

        Of such validators the last one runs first: by now every axis with a length has its name.
        """
        if not isinstance(given, dict) or not isinstance(given.get("inputs"), dict):
            return given
        axes = given.get("axes")
        batch = [name for name, axis in axes.items() if _counts_rows(axis)] if isinstance(axes, dict) else []
        if len(batch) != 1:
            return given
        return {**given, "inputs": {name: _in_front(each, batch[0]) for name, each in given["inputs"].items()}}

    @pydantic.model_validator(mode="before")
    @classmethod
    def _name_lengths(cls, given: Any) -> Any:
        """Add the default length input to axes whose mask or length the model takes."""
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
        _check_counts(self)
        _check_padded(self)
        _check_flush(self)
        _check_flush_values(self)
        _check_derived(self)
        _check_shared(self)
        _check_originals(self)
        _check_rows(self)
        _check_constants(self)
        return self

    @property
    def padded(self) -> dict[str, Axis]:
        """Return the axes with a true length per row, by name."""
        return {name: axis for name, axis in self.axes.items() if axis.buckets and axis.length_input is not None}

    @property
    def has_utterances(self) -> bool:
        """Whether a call takes whole utterances with lengths of their own, and no state is handed on."""
        is_whole = self.derive_steps is None
        return bool(self.padded) and is_whole and all(not given.is_carried for given in self.inputs.values())

    @property
    def caches(self) -> dict[str, Axis]:
        """Return the axes along which states keep frames, by name."""
        return {name: axis for name, axis in self.axes.items() if axis.window is not None}

    @property
    def without_constants(self) -> Self:
        """Return the graph without the inputs that are fixed to a constant."""
        inputs = {name: given for name, given in self.inputs.items() if given.constant is None}
        return self if len(inputs) == len(self.inputs) else self.model_copy(update={"inputs": inputs})

    @property
    def fed_alike(self) -> tuple[str, ...]:
        """Return the inputs that are the same in every call of a stream: of derived steps those without frames."""
        steps = self.derive_steps
        fed = [name for name, given in self.inputs.items() if given.is_data]
        return () if steps is None else tuple(name for name in fed if steps.along not in self.inputs[name].shape)

    @property
    def fed_back(self) -> dict[str, str]:
        """Return, by input that is fed back, the output that feeds it."""
        return {name: given.state for name, given in self.inputs.items() if given.state is not None}

    @property
    def held(self) -> tuple[str, ...]:
        """Return the padded axes of states: a stream has one length along each, that of its first call."""
        return tuple(axis for axis in self.padded if any(axis in self.held_along(name) for name in self.inputs))

    def held_along(self, name: str) -> list[str]:
        """Return the padded axes in the shape of a state; none for other inputs."""
        given = self.inputs[name]
        return [str(dim) for dim in given.shape if dim in self.padded] if given.state is not None else []

    def sizes_at_start(self, name: str) -> list[int]:
        """Return the sizes of a state at the start: 1 for the batch, and all slots of a padded axis."""
        given = self.inputs[name]
        own = given.shape if given.original is None else given.original
        return [dim if isinstance(dim, int) else self._size_at_start(dim) for dim in own]

    def _size_at_start(self, axis: str) -> int:
        return self.slots(axis) if axis in self.padded else self.axes[axis].fixed or 1

    def slots(self, axis: str) -> int:
        """Return the size of the largest bucket of an axis."""
        return (self.axes[axis].buckets or (1,))[-1]

    @property
    def is_for_one_row(self) -> bool:
        """Whether the original is written for one row."""
        return any(given.original is not None and self.batch not in given.original for given in self.inputs.values())

    @property
    def batch(self) -> str | None:
        """Return the axis of rows."""
        return next((name for name, axis in self.axes.items() if axis.buckets and axis.length_input is None), None)


MAX_COMBINATIONS = 256
"""Of buckets per graph: each is a graph that is written, verified and timed."""


def _check_combinations(graph: Graph) -> None:
    sizes = {name: len(axis.buckets) for name, axis in graph.axes.items() if axis.buckets}
    if math.prod(sizes.values()) > MAX_COMBINATIONS:
        got = " times ".join(f"{count} of {name}" for name, count in sizes.items())
        most = max(sizes, key=lambda name: sizes[name])
        message = f"expected at most {MAX_COMBINATIONS} combinations of buckets, each a graph of its own, got {got}"
        raise disagree(message, "choose fewer: a feed is padded to the next larger one", "axes", most, "buckets")


def _check_distinct(key: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise disagree(f"expected distinct names, got {twice[0]!r} twice", "rename or delete one of the two", key)


def _check_axes(graph: Graph) -> None:
    used = [(axis, name) for name, spec in graph.inputs.items() for axis in spec.shape if isinstance(axis, str)]
    for axis, name in used:
        if axis not in graph.axes:
            cure = f"declare it, or write a number; {did_you_mean(axis, graph.axes)}"
            message = f"expected numbers and axes declared under axes, got {axis!r}"
            raise disagree(message, cure, "inputs", name, "shape")
    for axis, spec in graph.axes.items():
        if axis not in dict(used):
            cure = f"delete it; {did_you_mean(axis, dict(used))}"
            raise disagree(f"expected an axis of some shape, got {axis!r} in none", cure, "axes", axis)
        for key in ("length_input", "mask_input"):
            name = getattr(spec, key)
            if name in graph.inputs and graph.inputs[name].length_of != axis:
                message = f"expected a new name for the input it adds, got {name!r}, which is an input"
                raise disagree(message, "rename it, or write length_of at that input", "axes", axis, key)


def _check_rows(graph: Graph) -> None:
    """Require that every input has the rows as first axis, except where its original has no rows."""
    if graph.batch is None or graph.is_for_one_row:
        return
    for name, input_spec in graph.inputs.items():
        if input_spec.constant is None and (not input_spec.shape or isinstance(input_spec.shape[0], int)):
            got = f"[{', '.join(map(str, input_spec.shape))}]"
            message = f"expected {graph.batch!r}, the axis with buckets, in front, got {got}"
            cure = "write it there; for a model of one row, write beside every shape the one that it takes, as in "
            cure += f"original: {got}"
            if input_spec.is_data and input_spec.shape in ((), (1,)):
                cure += "; where every call is given the same numbers, fix them, as in constant: 16000"
            raise disagree(message, cure, "inputs", name, "shape")


def _check_constants(graph: Graph) -> None:
    """Require that an input is not a constant."""
    if not graph.without_constants.inputs:
        message = "expected an input that is fed or carried, got constants alone"
        raise disagree(message, "delete constant where callers feed the input", "inputs")


def _counts_rows(axis: Any) -> bool:
    """Whether an axis, as written, is that of the batch."""
    return isinstance(axis, dict) and axis.get("buckets") is not None and axis.get("length_input") is None


def _in_front(given: Any, batch: str) -> Any:
    """Return an input with the batch moved to the front of its written shape; the written shape becomes `original`."""
    shape = given.get("shape") if isinstance(given, dict) else None
    if (
        not isinstance(shape, tuple)
        or given.get("original") is not None
        or shape.count(batch) != 1
        or not shape.index(batch)
    ):
        return given
    return {**given, "shape": (batch, *(size for size in shape if size != batch)), "original": shape}


def _named_lengths(inputs: dict[Any, Any], axes: dict[Any, Any]) -> dict[Any, Any]:
    """Return the axes, with the default length_input where the model takes a mask or a length."""
    named = dict(axes)
    for key in ("mask_of", "pad_mask_of", "length_of"):  # the name of an input wins
        for name, given in inputs.items():
            axis = given.get(key) if isinstance(given, dict) else None
            wanted = axes.get(axis) if isinstance(axis, str) else None
            if isinstance(wanted, dict) and wanted.get("buckets") is not None and wanted.get("length_input") is None:
                named[axis] = {**wanted, "length_input": name if key == "length_of" else f"{axis}_length"}
    return named


def _check_padded(graph: Graph) -> None:
    """Check the axes with a length per row, and the mask and length inputs of the model."""
    bare = [name for name, axis in graph.axes.items() if axis.buckets is not None and axis.length_input is None]
    if len(bare) > 1:
        message = f"expected one axis with buckets and no length_input, the batch, got {bare}"
        cure = "give each other axis a window where a state grows along it, a length_input where rows differ, or fix it"
        raise disagree(message, cure, "axes", bare[-1])
    for name, input_spec in graph.inputs.items():
        for key in ("mask_of", "pad_mask_of", "length_of"):
            axis = getattr(input_spec, key)
            if axis is not None and axis not in graph.padded:
                message = f"expected an axis with buckets and a length per row, got {axis!r}"
                cure = did_you_mean(axis, graph.padded)
                if axis in graph.caches:
                    cure = "delete the key: nobody masks the free slots of a window, or counts them, but the bundle"
                raise disagree(message, cure, "inputs", name, key)
        if input_spec.mask_axis is not None and input_spec.mask_axis not in input_spec.shape:
            message = (
                f"expected the axis {input_spec.mask_axis!r} in the shape of its mask, got {list(input_spec.shape)}"
            )
            raise disagree(message, "write the mask's shape", "inputs", name, "shape")
        if input_spec.length_of is not None and not input_spec.dtype.startswith(("int", "uint")):
            message = f"expected a type of integers for lengths, got {input_spec.dtype}"
            raise disagree(message, "write the model's type", "inputs", name, "dtype")
        roles = (input_spec.state, input_spec.mask_of, input_spec.pad_mask_of, input_spec.length_of, input_spec.counts)
        if len([role for role in roles if role is not None]) > 1:
            message = "expected one of state, mask_of, pad_mask_of, length_of and counts, got several"
            raise disagree(message, "keep the one that says where its value comes from", "inputs", name)
    _check_chunks(graph)
    added = [name for axis in graph.axes.values() for name in (axis.length_input, axis.mask_input) if name is not None]
    twice = [name for name in added if added.count(name) > 1]
    if twice:
        message = f"expected a length_input and a mask_input of its own for each axis, got {twice[0]!r} twice"
        raise disagree(message, "rename one", "axes")


def _check_chunks(graph: Graph) -> None:
    """Check chunks with a length per row, in a graph that carries states."""
    if graph.has_utterances or not graph.padded:
        return
    axis = next(iter(graph.padded))
    for cache, spec in graph.caches.items():
        if spec.mask_input is not None:
            message = f"expected no mask_input beside chunks of any length along {axis!r}, got {spec.mask_input!r}"
            cure = "drop it: the graph computes its masks from the lengths"
            raise disagree(message, cure, "axes", cache, "mask_input")


def _check_flush(graph: Graph) -> None:
    """Check that a graph with `flush` takes chunks of any length."""
    if not graph.flush:
        return
    if graph.has_utterances or not graph.padded:
        message = "expected flush in a graph with states whose chunks may be of any length, got it in another one"
        raise disagree(message, "give the axis of the chunks buckets and a length_input, or delete the key", "flush")
    if graph.held:
        message = f"expected no flush in a graph whose states lie along {graph.held[0]!r}, got {list(graph.flush)}"
        raise disagree(message, "delete the key, and push what ends a stream as any other call", "flush")
    for name, input_spec in graph.inputs.items():
        along = [axis for axis in input_spec.shape if axis in graph.padded]
        if input_spec.is_data and (name not in graph.flush or not along):
            message = f"expected every input that callers feed, each along an axis of chunks, got {list(graph.flush)}"
            raise disagree(message, f"write the entries of {name!r} that are fed at the end", "flush")
    lengths: dict[str, int] = {}
    for name, count in graph.flush.items():
        if name not in graph.inputs or not graph.inputs[name].is_data:
            raise disagree(f"expected inputs that callers feed, got {name!r}", "delete it", "flush", name)
        for axis in [dim for dim in graph.inputs[name].shape if isinstance(dim, str) and dim in graph.padded]:
            most = (graph.padded[axis].buckets or (0,))[-1]
            if count > most:
                message = f"expected at most {most} entries, a whole chunk along {axis!r}, got {count}"
                raise disagree(message, "add a larger bucket", "flush", name)
            if lengths.setdefault(axis, count) != count:
                message = f"expected {lengths[axis]} entries along {axis!r} as of the other inputs, got {count}"
                raise disagree(message, "write one number for all of them", "flush", name)


def _check_flush_values(graph: Graph) -> None:
    """Check that `flush_values` names inputs of `flush`, with numbers that each input can hold."""
    for name in graph.flush_values:
        if name not in graph.flush:
            cure = f"write the entries of {name!r} under flush, or delete it; {did_you_mean(name, graph.flush)}"
            raise disagree(f"expected an input that flush names, got {name!r}", cure, "flush_values", name)
    for name in graph.flush:
        input_spec, value = graph.inputs[name], graph.flush_values.get(name, 0.0)
        place = ("flush_values" if name in graph.flush_values else "flush", name)
        cure = f"write flush_values: {{{name}: NUMBER}} with what the model's author pads with"
        if not holds("float32" if input_spec.dtype == "bfloat16" else input_spec.dtype, value):
            raise disagree(f"expected a number that {input_spec.dtype} has, got {value:g}", cure, *place)
        if input_spec.range is not None and not input_spec.range[0] <= value <= input_spec.range[1]:
            low, high = input_spec.range
            message = f"expected what is fed at the end from {low:g} to {high:g}, the declared range, got {value:g}"
            raise disagree(message, cure, *place)


def _check_derived(graph: Graph) -> None:
    """Check that a graph with derived steps has no states, and an axis of chunks as its time."""
    if graph.derive_steps is None:
        return
    axis, most = graph.derive_steps.along, graph.derive_steps.window
    if axis not in graph.padded:
        message = f"expected an axis with buckets and a length_input, got {axis!r}"
        raise disagree(message, did_you_mean(axis, graph.padded), "derive_steps", "along")
    buckets = graph.padded[axis].buckets or ()
    if buckets[-1] > most:
        message = f"expected a window of at least {buckets[-1]} frames, the largest bucket of {axis!r}, got {most}"
        raise disagree(message, "make it as long as a stream may become", "derive_steps", "window")
    chunk = graph.derive_steps.chunk
    if parted := [bucket for bucket in buckets if bucket % chunk]:
        message = f"expected buckets of {axis!r} that are multiples of {chunk}, the frames of a chunk, got {parted[0]}"
        raise disagree(message, f"write buckets: [{chunk}] for it, or other multiples", "derive_steps", "chunk")
    carried = [name for name, input_spec in graph.inputs.items() if input_spec.is_carried]
    others = ["first_call"] if graph.first_call is not None else ["flush"] if graph.flush else []
    if carried or others:
        message = f"expected a model without states, got {(carried + others)[0]!r}"
        raise disagree(message, "delete derive_steps: a model with states is built as it is", "derive_steps")


def _check_shared(graph: Graph) -> None:
    """Check that a graph with shared heads is a module over whole sequences, called once."""
    if graph.share_heads is None:
        return
    carried = [name for name, given in graph.inputs.items() if given.is_carried]
    others = ["first_call"] if graph.first_call is not None else ["onnx"] if graph.source.onnx is not None else []
    if carried or others:
        message = f"expected a factory of a module without states, got {(carried + others)[0]!r}"
        cure = "delete share_heads; of a graph with caches list the pass merge_kv_heads"
        raise disagree(message, cure, "share_heads")


def _check_states(graph: Graph) -> None:
    fed: dict[str, str] = {}
    for name, spec in graph.inputs.items():
        _check_initial(graph, name)
        if spec.state is None:
            continue
        if spec.state not in graph.outputs:
            cure = did_you_mean(spec.state, graph.outputs)
            raise disagree(f"expected the name of an output, got {spec.state!r}", cure, "inputs", name, "state")
        if spec.state in fed:
            message = f"expected an output that feeds no other input, got {spec.state!r}, which feeds {fed[spec.state]}"
            raise disagree(message, "let each output feed one input", "inputs", name, "state")
        fed[spec.state] = name
        along = [axis for axis in spec.shape if axis in graph.caches]
        if len(along) > 1:
            message = f"expected at most one axis with a window in the shape of a state, got {along}"
            cure = "keep the window of the axis along which it grows; give rows buckets, and others their size, fixed"
            raise disagree(message, cure, "inputs", name, "shape")
        for axis in graph.held_along(name):
            _check_held(graph, name, axis)


def _check_initial(graph: Graph, name: str) -> None:
    """Check that `initial` is given for a state that has a size at the start; files are read later."""
    input_spec, place = graph.inputs[name], ("inputs", name, "initial")
    if input_spec.initial is None:
        return
    if input_spec.state is None:
        cure = "write state: with the output that feeds it back, or delete initial"
        raise disagree(f"expected initial at a state, got it at {name!r}, which no output feeds", cure, *place)
    window = next((axis for axis in input_spec.shape if axis in graph.caches), None)
    if window is not None:
        message = f"expected a state of one size, got {name!r} along {window!r}, which begins with no frames"
        cure = (
            "delete initial; where the model takes a whole buffer from the first call on, write its size in shape and "
        )
        raise disagree(message, f"{cure}delete the window", *place)
    if graph.first_call is not None:
        message = (
            f"expected no initial beside first_call, which takes no states and gives the first, got one of {name!r}"
        )
        raise disagree(message, "delete one of the two", *place)
    if isinstance(input_spec.initial, str):
        return
    fault = fault_of_initial(input_spec.initial, graph.sizes_at_start(name), input_spec.dtype)
    if fault is not None:
        raise disagree(*fault, *place)


def _check_held(graph: Graph, name: str, axis: str) -> None:
    """Check that a state has a padded axis once, and that every call gives its length."""
    shape = graph.inputs[name].shape
    if graph.is_for_one_row:
        message = f"expected no state along {axis!r} in a model of one row, got {name!r}"
        cure = "let forward take any number of rows, and delete original"
        raise disagree(message, cure, "inputs", name, "original")
    if shape.count(axis) > 1:
        message = f"expected {axis!r} once in the shape of a state, got [{', '.join(map(str, shape))}]"
        raise disagree(message, "let the model keep it along one axis", "inputs", name, "shape")
    if not any(input_spec.is_data and axis in input_spec.shape for input_spec in graph.inputs.values()):
        message = f"expected an input that callers feed along {axis!r}, as the state {name!r} lies along it, got none"
        cure = f"give {axis!r} a window if frames are kept along it, feed something along it in every call, or write a "
        raise disagree(message, f"{cure}number in its place", "inputs", name, "shape")


def _check_counts(graph: Graph) -> None:
    """Check that a counting input counts frames of a call, whose number is unique, with one count per row."""
    for name, input_spec in graph.inputs.items():
        if input_spec.counts is None:
            continue
        sizes = {axis: axis_spec for axis, axis_spec in graph.axes.items() if axis != graph.batch}
        if input_spec.counts not in sizes:
            message = f"expected a window or the axis of a chunk, whose frames are counted, got {input_spec.counts!r}"
            raise disagree(message, did_you_mean(input_spec.counts, sizes), "inputs", name, "counts")
        if input_spec.dtype not in ("int32", "int64"):
            message = f"expected int32 or int64 for a count, got {input_spec.dtype}"
            cure = "write the model's type, or delete counts where callers feed the input"
            raise disagree(message, cure, "inputs", name, "dtype")
        if graph.batch is not None and input_spec.shape != (graph.batch,):
            got = f"[{', '.join(map(str, input_spec.shape))}]"
            message = f"expected shape [{graph.batch}], a count of its own for every row, got {got}"
            cure = f"write it so; a model of one row that takes one number says so beside it, original: {got}"
            raise disagree(message, cure, "inputs", name, "shape")


def _check_originals(graph: Graph) -> None:
    """Check that a graph is written for one row in all of its inputs or in none, and where the batch lies."""
    marked = [name for name, spec in graph.inputs.items() if spec.original is not None]
    if not marked:
        return
    for name, spec in graph.inputs.items():
        if spec.constant is not None or (spec.original is None and not graph.is_for_one_row):
            continue
        first = spec.shape[0] if spec.shape else None
        if graph.batch is None:
            message = f"expected an axis of rows with buckets, as {marked[0]!r} has an original of one row, got none"
            cure = "write batch: {buckets: [1, 4]} under axes and the batch first in every shape, or delete original: "
            cure += "without such an axis a bundle takes what the model does"
            raise disagree(message, cure, "inputs", marked[0], "original")
        if first is None or first != graph.batch:
            message = f"expected the axis with buckets in front, got {list(spec.shape)} for an original of one row"
            cure = "write the batch axis first in shape, and the shape that the original takes under original"
            raise disagree(message, cure, "inputs", name, "shape")
        if spec.original is None:
            message = f"expected original for every input, got it for {marked[0]!r} and not for {name!r}"
            cure = f"write the shape that the original takes here, or delete original at {marked[0]!r} where the model "
            raise disagree(message, f"{cure}takes any number of rows", "inputs", name)
        rest = list(spec.shape[1:])
        fits = [[*rest[:i], 1, *rest[i:]] for i in range(len(rest) + 1)]
        moved = [[*rest[:i], first, *rest[i:]] for i in range(len(rest) + 1)]
        if list(spec.original) not in ([rest, *fits] if graph.is_for_one_row else moved):
            message = f"expected shape without {first!r}, or with a 1 for it, got {list(spec.original)}"
            raise disagree(message, f"write {fits[0]} or {rest}", "inputs", name, "original")
    if "add_batch_axis" not in [pass_spec.name for pass_spec in graph.passes]:
        message = "expected add_batch_axis among passes, as the original is for one row, got none"
        raise disagree(message, "list it before merge_first_call and pad_axes", "passes")
