"""Loads a torch module from a checkpoint, exports it to ONNX, and runs it as the original.

A torch module enters through `torch.export` and the dynamo ONNX exporter with named dynamic axes; an ONNX file enters
as it is. Afterwards names are those of the recipe, and every node carries the model's source line.
"""

import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import safetensors
import safetensors.torch
import torch
from torch.nn.modules import transformer

from compiler.base.cache.read_tracer import READ_TRACER
from compiler.build.capture.exported_graph import Exported, require_opened
from compiler.build.capture.fixed_sizes import fixing_line
from compiler.build.capture.held_states import slice_states
from compiler.build.capture.inconsistent_sizes import inconsistent_sizes
from compiler.build.capture.meeting_sizes import require_sizes_that_meet
from compiler.build.capture.module_call import called, shown_feed
from compiler.build.capture.next_states import moved_on
from compiler.build.capture.onnx_source.onnx_file import (
    first_words,
    keep_numbers,
    read_onnx,
    require_runnable,
    write_source,
)
from compiler.build.capture.traced_recurrences import recurrences_of_any_length
from compiler.build.capture.trial_calls import empty_states
from compiler.build.capture.truths import select_truths
from compiler.build.capture.written_states import answer_of
from compiler.errors import CheckpointError, Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Array, Feed, RowAxis, State, newest
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Input, Source
from compiler.recipe.load import RecipeLocation
from compiler.recipe.stage_inputs import EXAMPLE_FRAMES
from compiler.recipe.user_code.callables import call, importable, is_users, resolve, shown_path, users_line
from compiler.recipe.user_code.nested import called_with, leaves_of
from compiler.recipe.user_code.streams import completed

OPSET = 20
PACKED_CURE = (
    "drop pack_padded_sequence and pad_packed_sequence: a bundle knows the length of every row, and padding behind it "
    "changes nothing in front; give the recurrence the padded sequence itself"
)

BRANCH_CURE = (
    "forward branches on a number that it is given: where every call gives the same, fix it with constant: at the "
    "input and annotate its parameter, as in sr: int, so that the branch is decided before the export; else select "
    "with torch.where"
)

OPEN_SIZE_CURE = (
    "a size or a count in this line is a number that the call is given: where every call gives the same, fix it with "
    "constant: at the input; in the place of cache[:, position:position + n] = x write "
    "cache.index_copy_(1, position + torch.arange(n), x)"
)

EXAMPLE_BATCH = 2
"""Rows of the example inputs; of dynamic axes any size above 1 that differs from the others serves."""


def load_module(location: RecipeLocation, graph: str, source: Source, key: str) -> torch.nn.Module:
    """Build a module in evaluation mode and load its checkpoint.

    Raises:
        RecipeError: the factory does not exist, raises, or does not return a module.
        CheckpointError: the checkpoint is missing, unreadable or does not fit; the message names the tensors.
    """
    assert source.factory is not None
    where = location.where("graphs", graph, key, "factory")
    folders = location.search_path()
    factory = resolve(source.factory, folders, where)
    with importable(folders):
        module = call(factory, where, RecipeError, keywords=source.arguments)
    if not isinstance(module, torch.nn.Module):
        raise RecipeError(
            f"{where}: expected {source.factory} to return a torch.nn.Module, got {type(module).__name__}",
            cure="return the module itself",
        )
    if source.checkpoint is not None:
        load_checkpoint(module, location.locate(source.checkpoint), cast=source.cast)
    return module.eval()


def load_checkpoint(module: torch.nn.Module, path: Path, *, cast: bool = False) -> None:
    """Load a safetensors file into a module, strictly.

    Args:
        module: the module, with exactly the tensors of the file.
        path: the file.
        cast: whether tensors of another type than the module's are converted.

    Raises:
        CheckpointError: tensors are missing, unexpected, or of another shape or type; the message names them.
    """
    shown = shown_path(path)
    if not path.is_file():
        raise CheckpointError(
            f"{shown}: expected a safetensors file, got {'a folder' if path.is_dir() else 'nothing'}",
            cure="check source.checkpoint in the recipe, or give --checkpoint FILE",
        )
    try:
        tensors = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown}: expected a safetensors file, got {error}", cure="write it with safetensors.torch.save_file"
        ) from error
    expected = module.state_dict()
    missing = sorted(expected.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - expected.keys())
    misshapen = [
        f"{name} {list(tensors[name].shape)} instead of {list(expected[name].shape)}"
        for name in sorted(expected.keys() & tensors.keys())
        if tensors[name].shape != expected[name].shape
    ]
    if missing or unexpected or misshapen:
        parts = [f"{kind} {_some(names)}" for kind, names in
                 (("missing", missing), ("unexpected", unexpected), ("misshapen", misshapen)) if names]  # fmt: skip
        raise CheckpointError(
            f"{shown}: expected the {len(expected)} tensors of the model, got {'; '.join(parts)}",
            cure="use the checkpoint of this model and configuration",
        )
    apart = sorted(
        f"{name} {_kind(tensor)} instead of {_kind(expected[name])}"
        for name, tensor in tensors.items()
        if tensor.dtype != expected[name].dtype
    )
    if apart and not cast:
        raise CheckpointError(
            f"{shown}: expected the types of the model, got {_some(apart)}",
            cure="build the model in the checkpoint's type, convert the file, or write cast: true beside checkpoint",
        )
    bad = sorted(name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor.float()).all()))
    if bad:
        raise CheckpointError(
            f"{shown}: expected finite weights, got NaN or infinity in {_some(bad)}",
            cure="repair or retrain the checkpoint",
        )
    module.load_state_dict(tensors)


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def capture_module(module: torch.nn.Module, graph: str, spec: Graph, names: Sequence[str]) -> ir.Model:
    """Return the graph of one call form, which ONNX Runtime can open; see `exported_module`."""
    model = exported_module(module, graph, spec, names).model
    require_opened(model, graph)
    return model


def exported_module(module: torch.nn.Module, graph: str, spec: Graph, names: Sequence[str]) -> Exported:
    """Export one call form.

    Args:
        module: in evaluation mode.
        graph: name in the recipe.
        spec: inputs, outputs and axes.
        names: the inputs this call form takes, in order of `forward`.

    Raises:
        Refused: the exporter cannot capture the model, or the model fixes an axis that should be dynamic.
    """
    place = Location(stage="capture", graph=graph)
    arguments = _arguments(module, spec, names)

    def trace() -> object:
        with _tracing(module, spec, names):
            shapes = (_dynamic_shapes(spec, names),)
            return torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)

    try:
        with _tracing(module, spec, names):
            program = torch.onnx.export(
                module,
                arguments,
                dynamo=True,
                dynamic_shapes=(_dynamic_shapes(spec, names),),
                opset_version=OPSET,
                optimize=False,
                verbose=False,
            )
    except Exception as error:
        words = first_words(error)
        line = exported_line(error) or (fixing_line(trace) if "onstraint" in words else "")
        cure = "rewrite that operation, or the shapes it is given, so that torch.onnx.export takes it; see -v"
        if "GuardOnDataDependentSymNode" in words:
            cure = BRANCH_CURE if "Could not guard on" in words else OPEN_SIZE_CURE
        if packing := packing_line(module):
            line, cure = packing, PACKED_CURE
        refused = inconsistent_sizes(error, _shapes(module), spec.axes)
        refused = refused or Refused(f"the exporter cannot capture the model: {words}", cure=cure)
        refused.place = dataclasses.replace(place, source=line)
        raise refused from error
    assert program is not None and program.exported_program is not None
    model = program.model
    _name_values(model.graph.inputs, names)
    _own_outputs(model)
    _name_values(model.graph.outputs, spec.outputs)
    _part_names(model)
    _write_sources(model)
    select_truths(model)
    _check_axes(model, spec, names, place, lambda size: fixing_line(trace, size))
    if spec.padded:  # the exporter has names of its own for them
        for value, name in zip(model.graph.inputs, names, strict=True):
            value.shape = ir.Shape(_captured_shape(spec, spec.inputs[name]))
        keep_numbers(model)
    return Exported(model, program.exported_program)


def _shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of parameters and buffers, by name."""
    return {name: tuple(each.shape) for name, each in (*module.named_parameters(), *module.named_buffers())}


def capture_onnx(path: Path, graph: str, spec: Graph) -> ir.Model:
    """Read an ONNX file and check it against the recipe.

    Raises:
        RecipeError: the file is missing or unreadable, or its inputs and outputs are not those of the recipe.
    """
    place = Location(stage="capture", graph=graph)
    shown = shown_path(path)
    model = read_onnx(path, place, "check source.onnx")
    got_inputs = [str(value.name) for value in model.graph.inputs]
    for kind, expected, got in (
        ("inputs", list(spec.inputs), got_inputs),
        ("outputs", list(spec.outputs), [str(value.name) for value in model.graph.outputs]),
    ):
        if sorted(expected) != sorted(got):
            raise RecipeError(
                f"expected {kind} {expected} in {shown}, got {got}", cure=f"write the file's {kind} into the recipe",
                place=place,
            )  # fmt: skip
    by_name = graphs.outputs_named(model)
    for index, name in enumerate(spec.outputs):
        model.graph.outputs[index] = by_name[name]
    inputs = graphs.inputs_named(model)
    wanted = {name: _captured_shape(spec, spec.inputs[name]) for name in inputs}
    for value in inputs.values():
        _check_onnx_input(value, spec, shown, place)
    require_sizes_that_meet(model, wanted, place)
    for name, value in inputs.items():
        value.shape = ir.Shape(wanted[name])
    require_runnable(model, shown, place)
    return model


def packing_line(module: torch.nn.Module) -> str:
    """Return the line of the user's code that packs sequences; empty where none does."""
    for kind in dict.fromkeys(type(part) for part in module.modules()):
        try:
            lines, start = inspect.getsourcelines(kind)
            file = inspect.getsourcefile(kind) or ""
        except (OSError, TypeError):
            continue
        for number, text in enumerate(lines if is_users(file) else (), start):
            if re.search(r"\bpack_(padded_)?sequence\(", text):
                return f"{shown_path(Path(file))}:{number} in {kind.__name__}: {text.strip()}"
    return ""


def exported_line(error: BaseException) -> str:
    """Return the line of the model at which the exporter stopped, from tracebacks, its message, or a node's trace."""
    cause: BaseException | None = error
    while cause is not None:
        told = "\n".join([str(cause), *_traces_of_nodes(cause)])
        named = [each for each in re.findall(r'File "([^"]+)", line (\d+), in (\w+)', told) if is_users(each[0])]
        if named:
            file, line, function = named[-1]
            return f"{shown_path(Path(file))}:{line} in {function}"
        cause = cause.__cause__ or cause.__context__
    return users_line(error)


def _traces_of_nodes(error: BaseException) -> Iterator[str]:
    """Yield the traces of the nodes that the exporter was about to translate; its own message has only their names."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("node")
        if isinstance(node, torch.fx.Node):
            yield node.stack_trace or ""


def _check_onnx_input(value: ir.Value, spec: Graph, shown: str, place: Location) -> None:
    """Require that the recipe's shape and type are the file's; the recipe may give a number for a name of the file."""
    name = str(value.name)
    entry = spec.inputs[name]
    wanted, got = _captured_shape(spec, entry), list(value.shape or ())
    dtype = str(value.dtype.numpy()) if value.dtype is not None else "no type"
    fits = len(got) == len(wanted) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(wanted, got, strict=True)
    )
    if (value.shape is not None and not fits) or dtype != entry.dtype:
        raise RecipeError(
            f"expected {name} as {entry.dtype} {_shown(entry.original or entry.shape)} in {shown}, got {dtype} "
            f"{_shown(got)}",
            cure="write the file's shape and dtype into the recipe",
            place=dataclasses.replace(place, tensor=name),
        )
    for axis, fixed in zip(wanted, got, strict=False):
        if isinstance(axis, str) and isinstance(fixed, int):
            raise _fixed_axis(axis, name, fixed, place)


def _shown(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _fixed_axis(axis: str, name: str, size: int, place: Location) -> Refused:
    return Refused(
        f"the model fixes axis {axis!r} of {name} to {size}",
        cure="remove code that depends on the example's size, or declare the axis as fixed"
        + ("; for a model of one row, write the shapes it takes as original" if size <= EXAMPLE_BATCH else ""),
        place=dataclasses.replace(place, tensor=name, axis=axis),
    )


def _captured_shape(spec: Graph, given: Input) -> list[int | str]:
    fixed = {name: axis.fixed for name, axis in spec.axes.items() if axis.fixed is not None}
    shape = given.shape if given.original is None else given.original
    return [dim if isinstance(dim, int) else fixed.get(dim, dim) for dim in shape]


def _arguments(module: torch.nn.Module, spec: Graph, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """Return example inputs of unusual sizes, or with caches as long as their windows where the model needs that.

    The exporter does not read values, but a table of positions may be as long as the window and a chunk. A module that
    takes its caches in lists is called here before tracing, as a failing call would change the trace.
    """
    usual = {axis: _example_size(spec, axis) for axis, axis_spec in spec.axes.items() if axis_spec.fixed is None}
    within = usual | {axis: max(EXAMPLE_BATCH, axis_spec.window or 0) for axis, axis_spec in spec.caches.items()}
    for sizes in (usual, within):
        examples = tuple(_example(spec, spec.inputs[name], index, sizes) for index, name in enumerate(names))
        if not spec.caches and not any("." in name for name in names):
            return examples
        copies = functools.partial(_copies, examples)
        with contextlib.suppress(Exception), torch.no_grad(), _quiet(), READ_TRACER.watching():
            called_with(module, module.forward, names, copies)
            return examples
    return tuple(_example(spec, spec.inputs[name], index, usual) for index, name in enumerate(names))


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [each.clone() for each in tensors]


def _example(spec: Graph, given: Input, seed: int, sizes: Mapping[str, int]) -> torch.Tensor:
    shape = [dim if isinstance(dim, int) else sizes[dim] for dim in _captured_shape(spec, given)]
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, given.dtype)
    number = given.without_padding(sizes)
    if number is not None:  # nothing of an example is padding
        return torch.full(shape, number, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.ones(shape, dtype=dtype)


def _example_size(spec: Graph, axis: str) -> int:
    order = [name for name, each in spec.axes.items() if each.fixed is None]
    if axis in spec.caches:
        return EXAMPLE_FRAMES + order.index(axis)
    if axis in spec.padded:  # a length that users have in mind; shorter ones may give some layer no frame at all
        return (spec.padded[axis].buckets or (EXAMPLE_FRAMES,))[-1] - order.index(axis)
    return EXAMPLE_BATCH + order.index(axis)


def _dynamic_shapes(spec: Graph, names: Sequence[str]) -> tuple[dict[int, Any], ...]:
    """Return, per input, {axis index: Dim}."""
    dims: dict[str, Any] = {}
    shapes: list[dict[int, Any]] = []
    for name in names:
        shape = _captured_shape(spec, spec.inputs[name])
        named = [(i, d) for i, d in enumerate(shape) if isinstance(d, str)]
        shapes.append({i: dims.setdefault(d, _dim(d, spec)) for i, d in named})
    return tuple(shapes)


@contextlib.contextmanager
def _tracing(module: torch.nn.Module, spec: Graph, names: Sequence[str]) -> Iterator[None]:
    """Set up a module and the environment for tracing, in the same way each time."""
    with (
        _flat(module, spec, names),
        _kept_environment(),
        _written_out(),
        recurrences_of_any_length(has_some=any(isinstance(each, torch.nn.RNNBase) for each in module.modules())),
        torch.no_grad(),
        _quiet(),
        READ_TRACER.watching(),
    ):
        yield


@contextlib.contextmanager
def _flat(module: torch.nn.Module, spec: Graph, names: Sequence[str]) -> Iterator[None]:
    """Make a module take inputs and return results as flat arguments, as the exporter supports few containers.

    Names of parameters stay, as they would not in a wrapping module.
    """
    forward = module.forward
    hidden = vars(module).get("forward")

    def flat(*leaves: torch.Tensor) -> tuple[Any, ...]:
        answer = answer_of(forward, names, lambda: leaves, spec.outputs, spec.fed_back)
        return tuple(leaves_of(answer.results))

    vars(module)["forward"] = flat
    try:
        yield
    finally:
        if hidden is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = hidden


def _dim(axis: str, spec: Graph) -> Any:
    """Return the exporter's dimension of an axis, whose smallest length it chooses itself where the axis is padded."""
    return torch.export.Dim.DYNAMIC if axis in spec.padded else torch.export.Dim(axis)


@contextlib.contextmanager
def _kept_environment() -> Iterator[None]:
    """Undo the framework's changes of environment variables, so that results do not depend on earlier captures."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _written_out() -> Iterator[None]:
    """Trace attention layers operator by operator, as no other runtime has their fused kernels.

    A mask is applied as it is given: stacks of layers inspect its entries for whether it is causal, which would choose
    a kernel and no other result, and entries are unknown while an export traces.
    """
    before, detect = torch.backends.mha.get_fastpath_enabled(), transformer._detect_is_causal_mask
    torch.backends.mha.set_fastpath_enabled(False)
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
        transformer._detect_is_causal_mask = detect


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's progress and warnings on all channels; errors still raise."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


def _name_values(values: Sequence[ir.Value], names: Sequence[str]) -> None:
    for index, value in enumerate(values):  # first out of the way: a wanted name may be another value's present one
        value.name = f"slipway_io_{id(values)}_{index}"
    for value, name in zip(values, names, strict=True):
        value.name = name


def _part_names(model: ir.Model) -> None:
    """Rename values that share a name: the exporter may name a buffer and a quotient `div`."""
    taken = {value.name for value in (*model.graph.inputs, *model.graph.initializers.values(), *model.graph.outputs)}
    kept = {*model.graph.inputs, *model.graph.outputs}
    for node in graphs.nodes_of(model):
        for value in node.outputs:
            if value not in kept and value.name in taken:
                value.name = graphs.fresh_name(model.graph, f"{value.name}_of_{node.op_type.lower()}")
            taken.add(value.name)


def _own_outputs(model: ir.Model) -> None:
    """Give every graph output its own node, so that it can be named and removed independently."""
    seen: set[ir.Value] = set()
    for index, value in enumerate(list(model.graph.outputs)):
        if value in seen or value.producer() is None:
            insert = graphs.Inserter(model, "capture")
            model.graph.outputs[index] = insert.op("Identity", [value], name=f"{value.name}_copy", shape=value.shape)
        seen.add(value)


def _write_sources(model: ir.Model) -> None:
    for node in model.graph:
        write_source(node)


def _check_axes(
    model: ir.Model, spec: Graph, names: Sequence[str], place: Location, line_of: Callable[[int], str]
) -> None:
    for value, name in zip(model.graph.inputs, names, strict=True):
        for position, wanted in enumerate(_captured_shape(spec, spec.inputs[name])):
            got = (value.shape or ())[position]
            if isinstance(wanted, str) and isinstance(got, int):
                raise _fixed_axis(wanted, name, got, dataclasses.replace(place, source=line_of(got)))


class TorchReference:
    """The original model, run as it was handed over: first call, then later calls with caches cut to their slots.

    Args:
        later: module of the later calls.
        first: module of the first call, or None when the later call starts streams with empty caches.
        spec: inputs and outputs.
        states: the arguments that are fed back from call to call.
        row_axes: for an original that is written for one row, where its tensors have the batch.
        counted: by counting input, the frames that a call adds.

    Attributes:
        modules: both, of which the first is that of the later calls.
    """

    def __init__(
        self,
        later: torch.nn.Module,
        first: torch.nn.Module | None,
        spec: Graph,
        states: Sequence[State],
        row_axes: Sequence[RowAxis] = (),
        counted: Mapping[str, Dim] = MappingProxyType({}),
    ) -> None:
        self.later, self.first, self.spec, self.states, self.counted = later, first, spec, states, counted
        self.places = {each.tensor: each for each in row_axes}
        self.modules: Sequence[torch.nn.Module] = (later,) if first is None else (later, first)

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Yield, per chunk, all outputs by name, and the states that the next call takes, limited to their slots."""
        torch.set_num_threads(1)  # the order of summation, and with it the last bit, depends on the number of threads
        states: dict[str, Array] | None = None if self.first is not None else self._empty()
        for feed in feeds:
            before = slice_states(self.spec, feed, self._empty() if states is None else states)
            if states is None:
                assert self.first is not None
                outputs = self._call(self.first, completed(feed, self.spec))
            else:
                outputs = self._call(self.later, completed({**feed, **before}, self.spec))
            self._require_one_size(feed, before, outputs)
            outputs = moved_on(self.spec, self.states, self.counted, feed, before, outputs)
            states = {state.input: self._newest_frames(outputs[state.output], state) for state in self.states}
            yield outputs, states

    def _require_one_size(self, feed: Feed, states: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Require that a state without frames is returned in the shape in which it was taken, for any chunk length."""
        for state in self.states:
            if state.frames_axis is not None or state.output not in outputs:
                continue
            before, after = states[state.input].shape, outputs[state.output].shape
            if before != after:
                raise Refused(
                    f"state {state.input!r} goes in as {list(before)} and comes back from {state.output!r} as "
                    f"{list(after)} in the call with {shown_feed(feed)}",
                    cure="let the model give a state of one size after chunks of any length: of a context, the newest "
                    "frames of what it was and of the chunk together",
                    place=Location(stage="reference", tensor=state.input),
                )

    def _newest_frames(self, array: Array, state: State) -> Array:
        slots = None if state.cache is None else self.spec.caches[state.cache].window
        return array if state.frames_axis is None or slots is None else newest(array, state.frames_axis, slots)

    def _empty(self, batch: int = 1) -> dict[str, Array]:
        return empty_states(self.spec, self.states, batch)

    def _call(self, module: torch.nn.Module, feed: Feed) -> dict[str, Array]:
        names = [name for name in self.spec.inputs if name in feed]
        places = self.places
        given = {name: places[name].to_graph(feed[name]) if name in places else feed[name] for name in names}
        place, states = Location(stage="reference"), self.spec.fed_back
        arrays = called(module, given, place, outputs=self.spec.outputs, states=states)
        return {
            name: places[name].to_caller(array) if name in places else array
            for name, array in zip(self.spec.outputs, arrays, strict=True)
        }


def whole_call(module: torch.nn.Module, spec: Graph) -> Callable[[Feed], Mapping[str, Array]]:
    """Return a function that calls a module on whole sequences and returns results by name, without caches."""
    carried = {given.state for given in spec.inputs.values()}
    names = [name for name in spec.outputs if name not in carried]

    def call(feed: Feed) -> Mapping[str, Array]:
        torch.set_num_threads(1)  # as every reference: the order of summation hangs on it
        given = {name: feed[name] for name in spec.inputs if name in feed}
        return dict(zip(names, called(module, given, Location(stage="reference"), outputs=names), strict=True))

    return call


def first_call_inputs(spec: Graph) -> tuple[str, ...]:
    """Return the inputs of the first call: all but those that calls of a stream hand on."""
    return tuple(name for name, given in spec.inputs.items() if not given.is_carried)
