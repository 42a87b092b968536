r"""Parses the layers of a TensorRT engine from the log of its builder, which needs no device.

A builder that profiles in detail ends its log with a line per layer (here without sizes and strides):

    Name: node_a_myl0_1, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [8,64], Datatype: Int8 }],
    Constants: [ { Name: w, Dimensions: [64,64], Datatype: Int8 }, { Name: alpha, Dimensions: [], Datatype: Float }],
    Outputs: [ { Name: y, Dimensions: [8,64], Datatype: Half }], TacticName: t, StreamId: 0,
    Metadata: [ONNX ...: node_a]\x1f[ONNX ...: node_d]

The format is not documented: one line that is not of this form, and nothing is read.
"""

import math
import re

from compiler.targets.base import EngineLayer
from runtime_lite.executors.tensorrt_engine import LAYERS_HEAD

_LAYER = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: \[(?P<inputs>.*)\], Constants: \[(?P<constants>.*)\], "
    r"Outputs: \[(?P<outputs>.*)\], TacticName: .*?Metadata: (?P<nodes>.*)"
)
_TENSOR = re.compile(r"\{ Name: (?P<name>.*), Dimensions: \[(?P<sizes>[\d,]*)\],.* Datatype: (?P<type>\w+).*\}")
_IN_BRACES = re.compile(r"\{[^{}]*\}")
_NODE = re.compile(r"\[ONNX \w+: (?P<name>.*)\]")

_TYPES = {
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Float": "float32",
    "Half": "float16",
    "Int32": "int32",
    "Int64": "int64",
    "Int8": "int8",
}
"""What the builder calls types, as NumPy calls them; others are named as they are."""

_MULTIPLYING_KINDS = frozenset({"correlation", "gemm"})

_MULTIPLYING_NAMES = re.compile(r"gemm|mha|Fc(?=[A-Z_])|MulSum")
"""In names of layers that a compiler has fused: products, attention, fully connected parts, products of one row."""

_CONVERTING = re.compile(r"Cast|Etc")
"""In the same: a conversion, or more steps than the name has room for."""


def layers_of(text: str) -> tuple[EngineLayer, ...] | None:
    """Return the layers that a builder's message lists; None where it has another form.

    Args:
        text: the message that lists them, from `LAYERS_HEAD` on.
    """
    head, _, rest = text.partition("\n")
    lines = [line for line in rest.partition("\n\n")[0].split("\n") if line]
    if head.strip() != LAYERS_HEAD or not lines:
        return None
    try:
        layers = tuple(_layer(line) for line in lines)
    except ValueError:
        return None
    return layers if any(layer.nodes for layer in layers) else None


def _layer(line: str) -> EngineLayer:
    match = _LAYER.fullmatch(line)
    if match is None:
        raise ValueError(line)
    name = match["name"]
    constants = sorted(_tensors(match["constants"]), reverse=True)
    return EngineLayer(
        name=name,
        nodes=frozenset(_node(node_text) for node_text in match["nodes"].split("\x1f") if node_text),
        multiplies=match["kind"] in _MULTIPLYING_KINDS or _MULTIPLYING_NAMES.search(name) is not None,
        reads=frozenset(kind for _, kind in _tensors(match["inputs"])),
        holds=tuple(kind for size, kind in constants if size > 1),
        writes=frozenset(kind for _, kind in _tensors(match["outputs"])),
        converts=_CONVERTING.search(name) is not None,
    )


def _node(text: str) -> str:
    match = _NODE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match["name"]


def _tensors(text: str) -> list[tuple[int, str]]:
    """Return number of entries and type of each tensor in a text."""
    found = [_TENSOR.fullmatch(each) for each in _IN_BRACES.findall(text)]
    if _IN_BRACES.sub("", text).strip(" ,"):
        raise ValueError(text)
    return [_size_and_type(text, each) for each in found]


def _size_and_type(text: str, match: re.Match[str] | None) -> tuple[int, str]:
    if match is None:
        raise ValueError(text)
    kind = match["type"]
    return math.prod(int(size) for size in match["sizes"].split(",") if size), _TYPES.get(kind, kind)
