"""Finds the inputs and outputs of a factory's module from `forward`, the caller's sizes, and a few runs.

A size of an output is an axis, and maybe something more, if it follows that axis one by one when the input grows.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from compiler.base.did_you_mean import did_you_mean
from compiler.base.interruption import shielded
from compiler.build.capture.onnx_source.onnx_file import first_words
from compiler.errors import Location, RecipeError
from compiler.front.commands.example_feeds import shape_in
from compiler.front.commands.onnx_signature import Signature, Tensor
from compiler.front.commands.tensor_roles import is_length, mask_key
from compiler.graph.sizes.expressions import Dim, symbol
from compiler.graph.stages import Array
from compiler.recipe.graph_parts import Source
from compiler.recipe.load import RecipeLocation
from compiler.recipe.user_code.callables import users_line

STAGE = "init"

SIZE, APART = 40, 7
"""Sizes of axes in the runs: none is the other's, and none a usual number of channels."""

ROWS = 2
"""Size of an axis that is called batch."""

GROWN = 8
"""By how much an axis grows in a run of its own."""

UNKNOWN = Tensor("", (sympy.Dummy("unknown", integer=True),), "float32")
"""An input of which only the name is known."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An input as the caller describes it: `features=batch,time,80:float32`."""

    dims: tuple[int | str, ...]
    dtype: str = "float32"


def signature_of_factory(source: Source, location: RecipeLocation, inputs: Mapping[str, Wanted]) -> Signature:
    """Return the inputs and outputs of a factory's module.

    Args:
        source: the factory, and its checkpoint.
        location: paths in which its module is searched.
        inputs: wanted inputs by name; without any, only names are known.

    Raises:
        RecipeError: there is no such factory, `forward` has no such input, or it does not run on such inputs.
        CheckpointError: the checkpoint does not fit.
    """
    with shielded():  # a signal in the middle of importing the framework would end the process without a word
        from compiler.build.capture import module_call, torch_module  # only for a factory

    module = torch_module.load_module(location, "graph", source, "source")
    named = _parameters(module.forward)
    if not inputs:
        unknown_inputs = tuple(dataclasses.replace(UNKNOWN, name=name) for name in named.required)
        return Signature(unknown_inputs, ())
    ordered = _in_order(inputs, named)
    tensors = tuple(
        Tensor(name, tuple(dim if isinstance(dim, int) else symbol(dim) for dim in wanted.dims), wanted.dtype)
        for name, wanted in ordered.items()
    )

    written: tuple[str, ...] = ()

    def run(sizes: Mapping[str, int]) -> list[Array]:
        nonlocal written
        arrays = [_example(tensor, sizes) for tensor in tensors]
        try:
            results, written = module_call.results_of(module, [tensor.name for tensor in tensors], arrays)
        except Exception as error:
            shapes = ", ".join(f"{t.name} {list(a.shape)}" for t, a in zip(tensors, arrays, strict=True))
            raise RecipeError(
                f"expected the model to answer {shapes}, got {type(error).__name__}: {first_words(error)}",
                cure="describe its inputs with --input NAME=SIZES:DTYPE, one for each",
                place=Location(stage=STAGE, source=users_line(error)),
            ) from error
        return results

    outputs = _outputs(run, tensors)
    names = _result_names(module.forward, len(outputs) - len(written), {tensor.name for tensor in tensors})
    names += [f"next_{name}" for name in written]
    return Signature(
        tensors, tuple(dataclasses.replace(tensor, name=name) for name, tensor in zip(names, outputs, strict=True))
    )


@dataclasses.dataclass(frozen=True)
class _Parameters:
    """Of `forward`: those without a default, all of them, and whether it takes any number besides."""

    required: tuple[str, ...]
    all: tuple[str, ...]
    is_open: bool


def _parameters(forward: Callable[..., Any]) -> _Parameters:
    found = inspect.signature(forward).parameters.values()
    plain = [each for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return _Parameters(
        tuple(each.name for each in plain if each.default is each.empty),
        tuple(each.name for each in plain),
        any(each.kind is each.VAR_POSITIONAL for each in found),
    )


def _in_order(inputs: Mapping[str, Wanted], named: _Parameters) -> dict[str, Wanted]:
    """Return the inputs in the order of `forward`; those of `*caches` come last, in their given order.

    Parts of a list, a tuple or a dictionary are inputs called by their position or key, as `caches.0`.
    """
    parts = {parameter: [name for name in inputs if name.split(".")[0] == parameter] for parameter in named.all}
    missing = [name for name in named.required if not parts[name]]
    if missing:
        raise RecipeError(
            f"--input: expected {', '.join(named.required)}, as forward takes them, got no {missing[0]}",
            cure=f"add --input {missing[0]}=1,80, with its sizes and axis names",
        )
    unknown = [name for name in inputs if name.split(".")[0] not in named.all]
    if unknown and not named.is_open:
        raise RecipeError(
            f"--input {unknown[0]}: expected an input of forward, got {unknown[0]!r}",
            cure=did_you_mean(unknown[0], named.all),
        )
    taken = [parameter for parameter in named.all if parts[parameter]]
    if taken != list(named.all[: len(taken)]):
        raise RecipeError(
            f"--input: expected inputs without a gap, as {', '.join(named.all)}, got {', '.join(taken)}",
            cure="describe the inputs between them, too",
        )
    ordered = [name for parameter in taken for name in parts[parameter]]
    return {name: inputs[name] for name in (*ordered, *unknown)}


def _example(tensor: Tensor, sizes: Mapping[str, int]) -> Array:
    """Return an array that a model accepts: nothing is padding, and integers are valid rows of every table."""
    shape = shape_in(tensor, sizes)
    dtype = np.dtype(tensor.dtype)
    if is_length(tensor):
        others = [size for name, size in sizes.items() if name not in tensor.axes and name != "batch"]
        return np.full(shape, min(others, default=1), dtype)
    key = mask_key(tensor)
    if key is not None or dtype.kind not in "fc":
        return np.full(shape, int(key == "mask_of"), dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def _outputs(run: Callable[[Mapping[str, int]], list[Array]], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs, with sizes as expressions of the axes of the inputs."""
    axes = dict.fromkeys(axis for tensor in tensors for axis in tensor.axes)
    sizes = {axis: ROWS if "batch" in axis else SIZE + APART * at for at, axis in enumerate(axes)}
    start = run(sizes)
    grown = {axis: run({**sizes, axis: sizes[axis] + GROWN}) for axis in axes}
    return [
        Tensor("", tuple(_dim(start, grown, sizes, output, at) for at in range(array.ndim)), str(array.dtype))
        for output, array in enumerate(start)
    ]


def _dim(
    start: Sequence[Array], grown: Mapping[str, Sequence[Array]], sizes: Mapping[str, int], output: int, at: int
) -> Dim:
    """Return a size as a sum of axes and a number; a new name where it is something else."""
    size = start[output].shape[at]
    by = {
        axis: other[output].shape[at] - size
        for axis, other in grown.items()
        if len(other) > output and other[output].ndim > at
    }
    follows = [axis for axis, growth in by.items() if growth]
    if len(by) != len(grown) or any(by[axis] != GROWN for axis in follows):
        return sympy.Dummy("unknown", integer=True)
    rest = size - sum(sizes[axis] for axis in follows)
    total: Dim = rest
    for axis in follows:
        total = total + symbol(axis)
    return total


def _result_names(forward: Callable[..., Any], count: int, taken: set[str]) -> list[str]:
    """Return the names that `forward` returns, or numbers; none is an input's name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        tree = ast.Module([], [])
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    parts = returned[-1].elts if returned and isinstance(returned[-1], ast.Tuple) else returned[-1:]
    parts = parts if len(parts) == count else [ast.Constant(None)] * count
    names: list[str] = []
    for index, part in enumerate(parts):
        wanted = part.id if isinstance(part, ast.Name) else f"output_{index}"
        wanted = f"next_{wanted}" if wanted in taken else wanted
        names.append(wanted if wanted not in (*names, *taken) else f"output_{index}")
    return names
