"""Refuses graphs with states or nodes that no Ethos-U can have, before the vendor's tools are called."""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.targets.ethos_u.host_side import Sides, require_numbers, split_sides
from compiler.targets.ethos_u.masks import Limits, hidden_scores, write_masks

STAGE = "ethos_u"


def require_taken(lowered: Lowered) -> None:
    """Refuse the first thing in a static graph that the target does not compile.

    Raises:
        Refused: names it, with node and source line where it is one.
    """
    graph = lowered.graph
    for state in lowered.states:
        kind = lowered.kind_of(state)
        if not kind.is_given_whole:
            raise Refused(
                f"expected states that a call gives whole, got {kind.name} in {state.input}",
                cure="leave out the pass that appends to states",
                place=Location(stage=STAGE, graph=graph),
            )
    sides = sides_of(lowered, {str(node.name): Limits(0.0, -1.0) for node in hidden_scores(lowered.model)})
    device, given_behind = sides.device, {str(value.name): value for value in sides.behind.graph.outputs}
    require_numbers(device, graph, STAGE)
    for state in lowered.states:
        node = given_behind[state.output].producer() if state.output in given_behind else None
        if node is not None:
            raise Refused(
                f"expected states that the NPU computes in float32, got {state.output}, which follows from whole "
                f"numbers or from logarithms",
                cure="compute it of numbers, or of lengths alone, in the model, or build for another target",
                place=Location(
                    stage=STAGE, graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
                ),
            )
    from compiler.graph.torch_graphs.operators import refused_nodes  # it loads the framework

    for node in refused_nodes(device):
        raise Refused(
            f"expected an operator that has a counterpart in torch, where the vendor's tools begin, got {node.op_type}",
            cure="write it with other operators in the model, or build for another target",
            place=Location(
                stage=STAGE, graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
            ),
        )


def sides_of(lowered: Lowered, limits: Mapping[str, Limits]) -> Sides:
    """Return what runs on the host and what the device computes.

    Args:
        lowered: a static graph, which is not changed.
        limits: of hidden scores, by node.
    """
    return sides_of_model(lowered.model, limits, lengths_of(lowered))


def lengths_of(lowered: Lowered) -> list[str]:
    """Return the names of the inputs with lengths and masks."""
    caches = [name for cache in lowered.caches for name in (cache.length_input, cache.mask_input) if name]
    padded = [name for axis in lowered.padded_axes for name in (axis.length_input, *axis.masks, *axis.length_inputs)]
    return [*caches, *padded]


def sides_of_model(model: ir.Model, limits: Mapping[str, Limits], lengths: list[str]) -> Sides:
    """Return the same for a model, with the names of its inputs that hold lengths and masks."""
    written = graphs.clone(model)
    write_masks(written, limits)
    return split_sides(written, lengths)
