"""Reads an ONNX file of unknown origin: checks it, loads its weights, and gives every node a name and a source line."""

import itertools
import re
from pathlib import Path, PurePath

import onnx
import onnx_ir as ir

from compiler.build.capture.onnx_source.onnx_limits import check_limits
from compiler.build.capture.onnx_source.opset_conversion import raised
from compiler.errors import Location, RecipeError, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_model
from compiler.recipe.user_code.callables import portable_source, shown_path

FRAMEWORK_FOLDERS = (("site-packages", "torch"), ("dist-packages", "torch"))
"""Where frames of a stack trace are the framework's and not the model's, on whichever machine it was written."""


def read_onnx(path: Path, place: Location, cure: str) -> ir.Model:
    """Read an ONNX file.

    Args:
        path: the file; weights may lie beside it.
        place: location in the build, for messages.
        cure: what to check when there is no such file.

    Returns:
        The graph with shapes of its inputs alone, and without metadata of passes. Weights are constants, also
        where old files list them as inputs; nodes have distinct names and a source line. Graphs of old operator sets
        are converted.

    Raises:
        RecipeError: the file is missing or is no valid ONNX file.
        Refused: its operator set is old, and cannot be converted.
    """
    shown = shown_path(path)
    if not path.is_file():
        got = f"the folder {shown}" if path.is_dir() else f"nothing at {shown}"
        raise RecipeError(f"expected an ONNX file, got {got}", cure=cure, place=place)
    try:
        check_limits(onnx.load(path, load_external_data=False), shown, place)
        onnx.checker.check_model(path)
        model = ir.load(path)
        for value in (*model.graph.initializers.values(),):
            if value.const_value is not None:
                value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    except SlipwayError:
        raise
    except Exception as error:
        raise RecipeError(
            f"expected an ONNX file at {shown}, got {first_words(error)}", cure="export the model again", place=place
        ) from error
    for value in [value for value in model.graph.inputs if value.is_initializer()]:
        model.graph.inputs.remove(value)
    _forget_notes(model)
    _name_nodes(model, path.name)
    return raised(model, place)


def _forget_notes(model: ir.Model) -> None:
    """Drop a file's metadata on its values, which may be outdated: shapes, contents and pass names."""
    for value in model.graph.inputs:
        value.metadata_props.pop(graphs.SYM_DATA, None)
    for node in model.graph.all_nodes():
        node.metadata_props.pop(graphs.PASS_KEY, None)
        for output in node.outputs:
            output.shape = None
            output.metadata_props.pop(graphs.SYM_DATA, None)


def _name_nodes(model: ir.Model, shown: str) -> None:
    """Give every node a distinct name and a source line, including those in branches and loops."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.all_nodes()):
        node.name = node.name or f"{node.op_type}_{index}"
        if node.name in taken:
            node.name = f"{node.name}_{index}"
        taken.add(node.name)
        if node.metadata_props.get("pkg.torch.onnx.stack_trace"):
            write_source(node)
        node.metadata_props.setdefault(graphs.SOURCE_KEY, f"{shown} node {node.name}")


def keep_numbers(model: ir.Model) -> None:
    """Infer all shapes; unknown sizes get the number that torch's exporter recorded, and no axis name.

    The recorded numbers do not always hold for every size: after a recurrence it records the example's.
    """
    noted = {output: list(output.shape) for node in model.graph for output in node.outputs if output.shape is not None}
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    for value, dims in noted.items():
        inferred = [None] * len(dims) if value.shape is None else list(value.shape)
        if len(inferred) == len(dims):
            recorded = [
                dim if isinstance(dim, int) and _is_open(inferred_dim) else None
                for dim, inferred_dim in zip(dims, inferred, strict=True)
            ]
            value.shape = ir.Shape(
                [
                    inferred_dim if isinstance(inferred_dim, int) else dim
                    for dim, inferred_dim in zip(recorded, inferred, strict=True)
                ]
            )


def _is_open(size: object) -> bool:
    """Whether inference does not know a size, or has invented a name for it."""
    text = getattr(size, "value", size)
    return text is None or re.fullmatch(r"_d\d+", str(text)) is not None


def require_runnable(model: ir.Model, shown: str, place: Location) -> None:
    """Open the graph once in ONNX Runtime.

    Raises:
        Refused: ONNX Runtime cannot run it.
    """
    try:
        open_model(model)
    except Exception as error:
        raise Refused(
            f"ONNX Runtime cannot run {shown}: {first_words(error)}",
            cure="export the model with standard operators only, and check it with onnx.checker",
            place=place,
        ) from error


def write_source(node: ir.Node) -> None:
    """Reduce the exporter's trace to one line: innermost file, line and function of the model, module, and code."""
    trace = node.metadata_props.get("pkg.torch.onnx.stack_trace", "")
    scopes = re.findall(r"'([^']*)'", node.metadata_props.get("pkg.torch.onnx.name_scopes", ""))[:-1]
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', trace)
    for key in [key for key in node.metadata_props if key.startswith("pkg.torch") or key == "namespace"]:
        del node.metadata_props[key]
    if frames:
        own = [frame for frame in frames if not _is_framework(frame[0])]
        file, line, function, code = (own or frames)[-1]
        module = f" of {scopes[-1]}" if scopes and scopes[-1] else ""
        node.metadata_props[graphs.SOURCE_KEY] = f"{portable_source(file)}:{line} in {function}{module}: {code.strip()}"


def _is_framework(file: str) -> bool:
    parts = PurePath(file).parts
    return any(pair in FRAMEWORK_FOLDERS for pair in itertools.pairwise(parts))


def first_words(error: BaseException) -> str:
    """Return an error as one line: the part that names a constraint, else the innermost cause."""
    lines = _lines(error)
    told = next((line for line in lines if "onstraint" in line or "pecializ" in line), None)
    if told is None:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        inner, *more = _lines(cause) or ["no message"]
        inner = " ".join([inner, *more[:1]]) if inner.endswith(":") else inner
        told = inner if cause is error else f"{type(cause).__name__}: {inner}"
    return re.sub(r"\s+", " ", told)[:300]


def _lines(error: BaseException) -> list[str]:
    """Return the lines of a message, without terminal colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return [line.strip() for line in plain.splitlines() if line.strip()]
