"""Reads an ONNX file without a recipe: checks it, lists its inputs and outputs with their sizes, and opens sessions."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir
import onnxruntime

from compiler.build.capture.onnx_source.onnx_file import first_words, read_onnx
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.sizes.expressions import Dim, expression
from compiler.recipe.user_code.callables import shown_path


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of a model.

    Attributes:
        name: as the model has it.
        dims: sizes over axis names; an unknown size of an output has a name that nothing else has.
        dtype: NumPy's name of the element type.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} [{', '.join(map(str, self.dims))}]"

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the axis names in the tensor's sizes, in order."""
        symbols = (symbol for dim in self.dims if not isinstance(dim, int) for symbol in dim.free_symbols)
        return tuple(dict.fromkeys(sorted(str(symbol) for symbol in symbols)))


@dataclasses.dataclass(frozen=True)
class Signature:
    """What goes into a model and what comes out, in order."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def read_file(path: Path, stage: str) -> tuple[ir.Model, Signature]:
    """Return an ONNX file and its signature; unnamed sizes are called after the input and its axis.

    Placeholders that writers put there, such as `-1` and `?`, do not count as names.

    Args:
        path: the file.
        stage: the command, for messages.

    Raises:
        RecipeError: the file is missing, or is no valid ONNX file.
        Refused: it is not supported, or has an input that is no tensor of numbers.
    """
    model = read_onnx(path, Location(stage=stage), "check the path")
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(
                [
                    dim if isinstance(dim, int) or _is_name(dim.value) else f"{value.name}_dim{axis}"
                    for axis, dim in enumerate(value.shape)
                ]
            )
    graphs.infer_shapes(model)
    return model, signature_of(model, path, stage)


def _is_name(text: str | None) -> bool:
    return bool(text) and text not in ("?", "None") and not isinstance(expression(str(text)), int)


def signature_of(model: ir.Model, path: Path, stage: str) -> Signature:
    """Return the signature of a model with inferred shapes; raises as `read_file` does."""
    place = Location(stage=stage)
    inputs = _tensors(model.graph.inputs, path, place, needs_rank=True)
    return Signature(inputs, _tensors(model.graph.outputs, path, place, needs_rank=False))


def _tensors(values: Iterable[ir.Value], path: Path, place: Location, *, needs_rank: bool) -> tuple[Tensor, ...]:
    tensors = []
    for value in values:
        dims, dtype = graphs.dims_of(value), value.dtype
        if dims is None and not needs_rank:
            dims = ()  # of an operator that nobody knows the sizes of: no state fits it
        is_numbers = isinstance(value.type, ir.TensorType) and dtype != ir.DataType.STRING
        if dims is None or dtype is None or not is_numbers:
            raise Refused(
                f"expected tensors of numbers with a known rank in {shown_path(path)}, got {value.name} as "
                f"{value.type or 'nothing'}",
                cure="export the model with typed tensors as inputs and outputs",
                place=dataclasses.replace(place, tensor=str(value.name)),
            )
        tensors.append(Tensor(str(value.name), dims, str(dtype.numpy())))
    return tuple(tensors)


def open_file(path: Path, stage: str, *, optimize: bool, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return a session of the file as it is.

    Raises:
        Refused: ONNX Runtime cannot run it.
    """
    try:
        return open_session(str(path), optimize=optimize, threads=threads)
    except Exception as error:
        raise Refused(
            f"ONNX Runtime cannot run {shown_path(path)}: {first_words(error)}",
            cure="export the model with standard operators only, and check it with onnx.checker",
            place=Location(stage=stage),
        ) from error
