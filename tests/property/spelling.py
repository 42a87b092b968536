"""Operators as older operator sets spell them, where inputs were attributes."""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from compiler.graph import model as graphs

Attribute = int | float | str | Sequence[int]

AS_ATTRIBUTES = {
    "ReduceSum": (13, ("axes",)), "ReduceMean": (18, ("axes",)), "ReduceMax": (18, ("axes",)),
    "ReduceMin": (18, ("axes",)), "ReduceL2": (18, ("axes",)), "Squeeze": (13, ("axes",)), "Unsqueeze": (13, ("axes",)),
    "Split": (13, ("split",)), "Slice": (10, ("starts", "ends", "axes")), "Pad": (11, ("pads", "value")),
    "Clip": (11, ("min", "max")), "TopK": (10, ("k",)), "Dropout": (12, ("ratio",)),
}  # fmt: skip
"""The operator set from which on the inputs behind the first are inputs, and the attributes that they were."""

SCALARS = ("value", "min", "max", "k", "ratio")


def spelled(
    op: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Attribute], opset: int
) -> tuple[Sequence[ir.Value | None], Mapping[str, Attribute]]:
    """Inputs and attributes of an operator of today as `opset` writes them; what was an attribute is a constant."""
    since, names = AS_ATTRIBUTES.get(op, (0, ()))
    if opset >= since:
        return inputs, attributes
    moved: dict[str, Attribute] = {}
    for name, value in zip(names, inputs[1:], strict=False):
        array = graphs.array_of(value)
        if value is not None:
            assert array is not None, f"{name} of {op} is no constant, which opset {opset} cannot write"
            moved[name] = array.reshape(-1)[0].item() if name in SCALARS else array.reshape(-1).tolist()
    assert len(inputs) <= 1 + len(names), f"opset {opset} does not know all inputs of {op}"
    return inputs[:1], {**attributes, **moved}
