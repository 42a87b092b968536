"""Compares the graph that torch's exporter has written with the model, and names the first node that differs.

The exporter keeps the names of what it has recorded, so that its graph and its recording are compared value by value.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from compiler.build.capture.onnx_source.onnx_file import first_words
from compiler.build.verify.differences import max_abs_difference
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import values_named
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array
from compiler.recipe.user_code.nested import leaves_of

CURE = (
    "that is a fault of the exporter and not of the model: write this line with other operations of torch, or hand "
    "over an ONNX file that another version or exporter has written, as source: {onnx: <file>}"
)

APART = 1e-3
"""Of the largest number of a value: so far two kernels are never apart by rounding alone."""


def require_opened(model: ir.Model, graph: str) -> None:
    """Open the exported graph in ONNX Runtime.

    Raises:
        Refused: ONNX Runtime rejects it; the message names the node and the model's line.
    """
    try:
        session_of(model)
    except Refused:
        raise
    except Exception as error:
        if type(error).__name__ == "NotImplemented":
            raise Refused(
                f"the captured graph has a node that ONNX Runtime has no kernel for: {first_words(error)}",
                cure="write this line with types and operations that ONNX Runtime computes, as float32 in the place of "
                "bfloat16",
                place=place_of(error, model, graph),
            ) from error
        raise Refused(
            f"torch's exporter has written a graph that ONNX Runtime does not open: {first_words(error)}",
            cure=CURE,
            place=place_of(error, model, graph),
        ) from error


def place_of(error: BaseException, model: ir.Model, graph: str) -> Location:
    """Return the location of the node that an error of ONNX Runtime names."""
    words = set(re.findall(r"[^\s'\"(),:]+", str(error)))
    node = next((node for node in graphs.nodes_of(model) if node.name in words), None)
    if node is None:
        return Location(stage="capture", graph=graph)
    return Location("capture", graph, str(node.name), node.op_type, source=graphs.source_of(node))


@dataclasses.dataclass(frozen=True)
class Exported:
    """The exporter's result for a module.

    Attributes:
        model: the graph, with the recipe's names.
        recorded: what torch.export has recorded, which the graph was written from.
    """

    model: ir.Model
    recorded: torch.export.ExportedProgram


def exporter_fault(
    exported: Exported, graph: str, given: Mapping[str, Array], wanted: Sequence[Array]
) -> Refused | None:
    """Return the refusal of a graph whose results differ from its module's; None where they differ by rounding alone.

    Args:
        exported: the exporter's program of the module.
        graph: the graph's name.
        given: inputs of one call, in the order of `forward`.
        wanted: results of the module.
    """
    recording = _Recording(exported.recorded)
    answers = recording.run_on([torch.from_numpy(np.array(array, order="C")) for array in given.values()])
    if len(answers) == len(wanted) and any(map(_is_apart, answers, wanted)):
        return Refused(
            "torch.export has recorded something else than the model computes: expected the same answers to the same "
            "inputs, got others",
            cure="let forward take no branch on numbers, keep none of them in Python (int(x), x.item()), and "
            "change no attribute",
            place=Location(stage="capture", graph=graph),
        )
    values = values_named(exported.model, recording.values)
    model = exported.model.clone()
    copies = values_named(model, values)
    model.graph.outputs.extend(value for value in copies.values() if value not in set(model.graph.outputs))
    try:
        session, names = session_of(model), list(copies)
        got = dict(zip(names, session.run(names, dict(given)), strict=True))
    except Exception as error:  # noqa: BLE001  (whatever ONNX Runtime says of a graph that is not ours)
        return Refused(
            f"torch's exporter has written a graph that ONNX Runtime does not run: {first_words(error)}",
            cure=CURE,
            place=place_of(error, model, graph),
        )
    for name, right in recording.values.items():
        if name in got and _is_apart(got[name], right):
            return _differs(values[name], max_abs_difference(got[name], right), graph)
    outputs = zip(exported.model.graph.outputs, wanted, strict=True)
    return next(_outputs_apart(outputs, got, graph), None)


def _outputs_apart(
    outputs: Iterator[tuple[ir.Value, Array]], got: Mapping[str, Array], graph: str
) -> Iterator[Refused]:
    for value, right in outputs:
        if str(value.name) in got and _is_apart(got[str(value.name)], right):
            yield _differs(value, max_abs_difference(got[str(value.name)], right), graph)


def _differs(value: ir.Value, difference: float, graph: str) -> Refused:
    node = value.producer()
    name, op = ("", "") if node is None else (str(node.name), node.op_type)
    return Refused(
        f"torch's exporter has written a graph that answers otherwise than the model: {value.name} is the first value "
        f"that differs, by {difference:.3g}",
        cure=CURE,
        place=Location("capture", graph, name, op, tensor=str(value.name), source=graphs.source_of(node)),
    )


def _is_apart(got: Array, right: Array) -> bool:
    if got.shape != right.shape or got.dtype.kind != right.dtype.kind:
        return got.shape != right.shape
    if right.dtype.kind != "f":
        return not np.array_equal(got, right)
    with np.errstate(invalid="ignore"):
        size = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
    return not max_abs_difference(got, right) <= APART * size


class _Recording(torch.fx.Interpreter):
    """Runs what torch.export has recorded, and keeps every value by its name.

    Attributes:
        values: real and whole numbers, in the order in which they are computed.
    """

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__(program.graph_module)
        self.program, self.values = program, dict[str, Array]()

    def run_on(self, arguments: Sequence[torch.Tensor]) -> list[Array]:
        """Run the recorded program and return the module's results."""
        left = iter(arguments)
        stored = {**self.program.state_dict, **self.program.constants}
        specs = self.program.graph_signature.input_specs
        given = [next(left) if each.target is None else stored[each.target] for each in specs]
        with torch.no_grad():
            results = list(leaves_of(self.run(*given)))
        kinds = [each.kind.name for each in self.program.graph_signature.output_specs]
        users = [result for kind, result in zip(kinds, results, strict=True) if kind == "USER_OUTPUT"]
        return [result.numpy() for result in users if isinstance(result, torch.Tensor)]

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor) and result.dtype != torch.bfloat16:
            self.values[n.name] = result.detach().numpy()
        return result
