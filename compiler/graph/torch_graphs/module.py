"""Converts a static ONNX graph to a torch module, for compilers that start from torch instead of ONNX.

    module = GraphModule(model);  torch.export.export(module, example_inputs)

Exported, the module is a flat list of torch operators in the order of the graph's nodes; weights are its buffers.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.fx import traceback

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.spec import check_static
from compiler.graph.torch_graphs.operators import CURE, TYPES, compute, refused_nodes

NODE = "node"
"""Under this key the operators of an exported module have, in their `custom` metadata, the name of their node."""


class GraphModule(nn.Module):
    """A graph as a module: `forward` takes its inputs in order, and returns a tuple of its outputs in order.

    Args:
        model: a static graph; it must not change while the module lives.
        name: the graph's name, for messages.
        trained: names of the constants that are parameters; the others are buffers.

    Attributes:
        trained: these parameters, by the name of the constant.

    Raises:
        Refused: a dimension stays symbolic, or an operator or type has no counterpart in torch.
    """

    def __init__(self, model: ir.Model, name: str, trained: Collection[str] = ()) -> None:
        super().__init__()
        check_static(model, name)
        unknown = {node.op_type for node in refused_nodes(model)}
        if unknown:
            raise Refused(
                f"graph {name}: expected operators that torch computes, got {', '.join(sorted(unknown))}", cure=CURE
            )
        self._model, self._buffers_of = model, dict[ir.Value, str]()
        parameters = dict[str, nn.Parameter]()
        for value in _constants(model):
            buffer = f"weight_{len(self._buffers_of)}"
            array = graphs.array_of(value)
            assert array is not None
            tensor = torch.from_numpy(array.copy())
            if value.name in trained:
                parameters[str(value.name)] = nn.Parameter(tensor)
                self.register_parameter(buffer, parameters[str(value.name)])
            else:
                self.register_buffer(buffer, tensor)
            self._buffers_of[value] = buffer
        self.trained: Mapping[str, nn.Parameter] = parameters

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the graph.

        Args:
            inputs: a tensor per graph input, in their order, with their dtypes and static shapes.

        Raises:
            Refused: a node reads sizes or positions that are computed.
        """
        held = dict(zip(self._model.graph.inputs, inputs, strict=True))
        held |= {value: getattr(self, buffer) for value, buffer in self._buffers_of.items()}
        for node in self._model.graph:
            if node.op_type == "Constant":
                continue
            operands = [None if value is None else held[value] for value in node.inputs]
            with traceback.annotate({NODE: str(node.name)}):
                held.update(zip(node.outputs, compute(node, operands), strict=False))
        return tuple(held[value] for value in self._model.graph.outputs)


def example_inputs(model: ir.Model) -> tuple[Tensor, ...]:
    """Return tensors of ones in the types and shapes of the graph's inputs, as `torch.export` asks for them."""
    shapes = [[int(str(size)) for size in value.shape or ()] for value in model.graph.inputs]
    kinds = [TYPES[value.dtype or ir.DataType.FLOAT] for value in model.graph.inputs]
    return tuple(torch.ones(shape, dtype=kind) for shape, kind in zip(shapes, kinds, strict=True))


def export_module(model: ir.Model, name: str, path: Path) -> None:
    """Write a static graph as a program that `torch.export.load` reads.

    Args:
        model: the graph.
        name: the graph's name, for messages.
        path: the file, by custom `.pt2`.

    Raises:
        Refused: as `GraphModule` says.
    """
    module = GraphModule(model, name).eval()
    with torch.no_grad(), traceback.preserve_node_meta():
        torch.export.save(torch.export.export(module, example_inputs(model)), path)


def _constants(model: ir.Model) -> Sequence[ir.Value]:
    """Return the values that hold constants: initializers, and results of Constant nodes."""
    made = [node.outputs[0] for node in model.graph if node.op_type == "Constant"]
    return [*model.graph.initializers.values(), *made]
