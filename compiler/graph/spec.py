"""Checks that a graph is well-formed after a pass, and that every size is a fixed number for a static target."""

import onnx
import onnx_ir as ir

from compiler.errors import InternalError, Location, Refused
from compiler.graph.model import contents_behind, source_of
from compiler.graph.runners.structure import check_structure
from compiler.graph.stages import Lowered


def check_between_passes(lowered: Lowered) -> None:
    """Check a graph after a pass: well-formed, all outputs of the caller present, states present with equal types.

    Raises:
        InternalError: the graph is invalid, which is a bug of the pass.
    """
    model = lowered.model
    try:
        check_structure(model)
    except onnx.checker.ValidationError as error:
        raise InternalError(f"the graph is malformed: {str(error).splitlines()[0]}") from error
    inputs = {value.name: value for value in model.graph.inputs}
    outputs = {value.name: value for value in model.graph.outputs}
    lost = [name for name in lowered.data_outputs if name not in outputs]
    if lost:
        raise InternalError(
            f"the graph lost its output {lost[0]!r}", place=Location(graph=lowered.graph, tensor=lost[0])
        )
    for state in lowered.states:
        fed, back = inputs.get(state.input), outputs.get(state.output)
        if fed is None or back is None or fed.dtype != back.dtype:
            raise InternalError(
                f"state {state.input!r} is not fed by {state.output!r}",
                place=Location(graph=lowered.graph, tensor=state.input),
            )


def check_static(model: ir.Model, graph: str) -> None:
    """Require for a static target that the size of every value is a number, not symbolic and not computed at run time.

    Raises:
        Refused: a dimension is symbolic or unknown; the message names the first such value.
    """
    for value in model.graph.inputs:
        _require_static(value, None, graph)
    for node in model.graph:
        for output in node.outputs:
            _require_static(output, node, graph)


def _require_static(value: ir.Value, node: ir.Node | None, graph: str) -> None:
    if value.shape is not None and all(isinstance(dim, int) for dim in value.shape):
        return
    sources = "" if node is None else ", ".join(_sizing_inputs(node))
    raise Refused(
        f"a static target needs numbers, got shape {value.shape}"
        + (f", whose sizes are computed from the values of {sources}" if sources else ""),
        cure=(
            "let every call compute equally many entries: mask the positions from a number on, as "
            "torch.where(torch.arange(size) < number, x, 0) does, instead of slicing or selecting by it"
        )
        if sources
        else "give every axis buckets, a fixed size or a window, and list pad_axes for the window",
        place=Location(
            stage="static",
            graph=graph,
            node=str(node.name) if node else "",
            op=node.op_type if node else "",
            tensor=str(value.name),
            source=source_of(node),
        ),
    )


def _sizing_inputs(node: ir.Node) -> list[str]:
    """Return the inputs of the graph whose contents determine the number of elements of a node's outputs.

    Most operators whose output size depends on contents read the size after their first input.
    """
    return sorted(contents_behind(node.inputs[1:]) or contents_behind(node.inputs))
