"""Random step graphs whose first call is a graph of its own: the later call without its states, or another one.

The first call of a stream takes no states: where the later call joins a cache, it takes the new frames alone, and where
the later call joins a context, zeros. A first call that is wrong must be refused, for its author's loop begins with it.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.recipe.graph_parts import Input
from tests.property.stream_grower import Grower, Grown
from tests.property.stream_layers import LAYERS
from tests.property.stream_positions import POSITIONED

STARTED = ("attention", "convolution", "delay", "last_frame", "rotary", "by_places")
BETWEEN = ("linear", "norm", "gate", "waves")

WRONG_STARTS = ("ones", "behind", "weights", "operator", "swapped", "longer")
"""How a first call is another one: a context of ones, or behind the frames, another matrix or operator, two outputs in
each other's place, or a cache that begins with a frame."""


def grow_with_first(seed: int) -> Grown:
    """The graph of a seed, with a graph of its first call."""
    rng = np.random.default_rng(seed)
    grower = Grower(rng, is_plain=True)
    layers = {**LAYERS, **POSITIONED}
    names = [str(rng.choice(STARTED)), *map(str, rng.choice((*STARTED, *BETWEEN), int(rng.integers(0, 3))))]
    for name in names:
        layers[name](grower)
    grown = grower.finish(names)
    wrong = str(rng.choice(WRONG_STARTS)) if rng.random() < 0.5 else ""
    grown.first = first_call(grown.model, grown.spec.inputs, wrong)
    return grown


def first_call(model: ir.Model, inputs: Mapping[str, Input], wrong: str = "") -> ir.Model:
    """The call that starts a stream.

    Args:
        model: the later call.
        inputs: of the recipe.
        wrong: how it is another one; nothing where it is the later call with empty caches.
    """
    first = graphs.clone(model)
    for value in [each for each in first.graph.inputs if inputs[str(each.name)].state is not None]:
        for use in list(value.uses()):
            _without(first, value, use.node, wrong)
        first.graph.inputs.remove(value)
    _spoil(first, wrong)
    graphs.prune(first)
    graphs.forget_shapes(first)
    graphs.infer_shapes(first)
    return first


def _without(model: ir.Model, value: ir.Value, node: ir.Node, wrong: str) -> None:
    """A join of a state without it: zeros for a context, nothing for a cache."""
    insert = graphs.Inserter(model, "first", before=node)
    axis = graphs.int_attribute(node, "axis", 0)
    assert node.op_type == "Concat" and value.shape is not None, "a layer reads a state otherwise than joined"
    size, new = value.shape[axis], node.inputs[1]
    assert new is not None
    number = (size if isinstance(size, int) else 0) + (wrong == "longer")
    pads = [0] * (2 * len(value.shape))
    pads[axis + (len(value.shape) if wrong == "behind" else 0)] = number
    fill = [insert.constant(np.array(1, np.float32), "fill")] if wrong == "ones" else []
    joined = insert.op("Pad", [new, insert.int64s(*pads), *fill], {"mode": "constant"}, name="begun") if number else new
    ir.convenience.replace_all_uses_with(node.outputs[0], joined, replace_graph_outputs=True)
    if joined is new:
        for place, output in enumerate(model.graph.outputs):
            if output is new:
                model.graph.outputs[place] = insert.op("Identity", [new], name="whole")


def _spoil(model: ir.Model, wrong: str) -> None:
    """Another matrix, another operator, or two outputs in each other's place."""
    nodes = {"weights": "MatMul", "operator": "Add"}
    chosen = next((node for node in model.graph if node.op_type == nodes.get(wrong)), None)
    if wrong == "weights" and chosen is not None:
        weights = graphs.array_of(chosen.inputs[1])
        if weights is not None:
            chosen.replace_input_with(1, graphs.Inserter(model, "first").constant(weights + 1, "w"))
    elif wrong == "operator" and chosen is not None:
        changed = graphs.Inserter(model, "first", before=chosen).op("Sub", list(chosen.inputs), name="changed")
        ir.convenience.replace_all_uses_with(chosen.outputs[0], changed, replace_graph_outputs=True)
    elif wrong == "swapped" and len(model.graph.outputs) > 2:
        one, other = model.graph.outputs[1], model.graph.outputs[2]
        model.graph.outputs[1], model.graph.outputs[2] = other, one
