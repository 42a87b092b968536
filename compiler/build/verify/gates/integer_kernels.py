"""Checks that quantised MatMuls and convolutions run on integers in the graph that the runtime compiles.

A pattern that the runtime does not recognise runs in float with roundings on top, slower than what it replaced.
"""

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime

from compiler.base.records.findings import Finding
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.record import Recipe

REAL = ("Conv", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "NhwcFusedConv", "TransposeMatMul")
"""Operators that multiply real numbers, as ONNX Runtime names them before and after its optimisations."""


INTEGER = (
    "ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QLinearConv",
    "QLinearMatMul",
)  # fmt: skip
"""Operators that multiply integers."""


MOVED = ("Reshape", "Transpose")
"""What ONNX Runtime writes around a product that it has given another rank."""


FUSED_STEPS = 4
"""Nodes behind a product whose result may be that of one kernel: a bias, an activation, a pair of roundings."""


def integer_layers(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the products and convolutions that a pass has written to run on integers."""
    made = {name: node for node in _nodes(model.graph) for name in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    return [node for node in _nodes(model.graph) if node.op_type in INTEGER or _reads_codes(node, made, stored)]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, including those in branches."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _reads_codes(node: onnx.NodeProto, made: Mapping[str, onnx.NodeProto], stored: set[str]) -> bool:
    """Whether the second operand of a product is dequantized from stored codes."""
    weights = made.get(node.input[1]) if node.op_type in REAL and len(node.input) > 1 else None
    return weights is not None and weights.op_type == "DequantizeLinear" and weights.input[0] in stored


def check_integer_kernels(file: Path, graph: str) -> int:
    """Check the graph as ONNX Runtime optimizes it; return how many products and convolutions run on integers.

    Args:
        file: an ONNX file of a bundle.
        graph: the graph's name, for messages.

    Raises:
        GateFailed: some do not; the message names the nodes.
    """
    shipped = onnx.load(file, load_external_data=False)
    layers = integer_layers(shipped)
    if not layers:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        run = onnx.load(path, load_external_data=False)
    left = _left_real(shipped, layers, run)
    integer = sum(node.op_type in INTEGER for node in _nodes(run.graph))
    if left or integer < len(layers):
        raise _failed(graph, len(layers), integer, left)
    return len(layers)


def _failed(graph: str, wanted: int, got: int, left: Sequence[str]) -> GateFailed:
    named = ", ".join(left) or "which is not clear from their names"
    return GateFailed(
        f"expected {wanted} products and convolutions on integers in the graph that runs, got {got}; in float stay "
        f"{named}",
        cure="keep these nodes in float with keep_float, or choose the placement that fits the target",
        place=Location(stage="integer kernels", graph=graph, node=left[0] if left else ""),
        findings=[Finding("integer kernels", graph, "", got, wanted, False, f"in float stay {named}")],
    )


def _left_real(shipped: onnx.ModelProto, layers: Sequence[onnx.NodeProto], run: onnx.ModelProto) -> list[str]:
    """Return the names of the layers whose result, or a node fused to it, comes from a product of floats."""
    real = {name for node in _nodes(run.graph) if node.op_type in REAL for name in node.output}
    real |= {node.output[0] for node in _nodes(run.graph) if node.op_type in MOVED and node.input[0] in real}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in _nodes(shipped.graph):
        for name in node.input:
            readers.setdefault(name, []).append(node)
    layer_names = []
    for layer in layers:
        name = layer.output[0]
        for _ in range(FUSED_STEPS):
            if name in real:
                layer_names.append(str(layer.name))
                break
            behind = readers.get(name, [])
            if len(behind) != 1 or behind[0].op_type in REAL:
                break
            name = behind[0].output[0]
    return layer_names


def is_rounded_here(recipe: Recipe, shipped: Shipped) -> bool:
    """Whether a pass has rounded a graph that runs on this machine as shipped."""
    return shipped.graph.is_rounded and shipped.graph.is_timed_here


def check_named(file: Path, graph: str, integer: Collection[str]) -> int:
    """Check which products another runtime computes in integers; return how many are written to.

    Args:
        file: an ONNX file of a bundle.
        graph: the graph's name, for messages.
        integer: names of the nodes whose products it computes in integers.

    Raises:
        GateFailed: some are not; the message names the nodes.
    """
    layers = integer_layers(onnx.load(file, load_external_data=False))
    left = [layer.name for layer in layers if layer.name not in integer]
    if left:
        raise _failed(graph, len(layers), len(layers) - len(left), left)
    return len(layers)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    counts = []
    for file in dict.fromkeys(shipped.folder / emitted.file for emitted in shipped.graph.built.artifacts):
        integer = shipped.graph.integer_products(file)
        if integer is None:
            counts.append(check_integer_kernels(file, shipped.name))
        else:
            counts.append(check_named(file, shipped.name, integer))
    count = max(counts)
    detail = f"{count} integer kernels"
    return Checked([Finding("integer kernels", shipped.name, measured=count, holds=True, detail=detail)], detail)


INTEGER_KERNELS = Gate(
    "integer kernels", _check, lambda recipe, graph: (), is_rounded_here, phases=("bundle",), stage="against float"
)
