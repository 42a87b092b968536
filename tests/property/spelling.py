"""Other spellings of operators: those of older operator sets, where inputs were attributes, and the legal ones."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.operator_traits import REDUCTIONS

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
        array = house.array_of(value)
        if value is not None:
            assert array is not None, f"{name} of {op} is no constant, which opset {opset} cannot write"
            moved[name] = array.reshape(-1)[0].item() if name in SCALARS else array.reshape(-1).tolist()
    assert len(inputs) <= 1 + len(names), f"opset {opset} does not know all inputs of {op}"
    return inputs[:1], {**attributes, **moved}


class Respelling:
    """Spells the nodes of a graph in other legal ways: axes from the back, operands left out or stated, defaults.

    Args:
        model: of a current operator set, with shapes; is changed in place.
        rng: draws the spellings.
    """

    def __init__(self, model: ir.Model, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng

    def apply(self) -> int:
        """Spell every node anew; how many are spelled otherwise now."""
        return sum(self._respell(node) for node in list(self.model.graph))

    def _respell(self, node: ir.Node) -> bool:
        before = (tuple(node.inputs), {name: held.value for name, held in node.attributes.items()})
        ranks = [None if value is None or value.shape is None else len(value.shape) for value in node.inputs[:1]]
        rank = ranks[0] if ranks else None
        if rank and node.domain == "":
            self._axis_attribute(node, rank)
            if node.op_type == "Slice":
                self._slice(node, rank)
            elif node.op_type in ("Squeeze", *REDUCTIONS):
                self._axes(node, 1, rank)
            elif node.op_type == "Unsqueeze" and node.outputs[0].shape is not None:
                self._axes(node, 1, len(node.outputs[0].shape))
            elif node.op_type == "Pad":
                self._pad(node, rank)
            elif node.op_type == "Transpose":
                self._transpose(node, rank)
            elif node.op_type == "CumSum":
                self._axes(node, 1, rank)
            elif node.op_type == "Split" and node.inputs[1:] and self._draw():
                self._split(node)
            self._defaults(node)
        return before != (tuple(node.inputs), {name: held.value for name, held in node.attributes.items()})

    def _draw(self) -> bool:
        return bool(self.rng.integers(0, 2))

    def _given(self, array: np.ndarray) -> ir.Value:
        return house.Inserter(self.model, "respelled").constant(array, "given")

    def _set(self, node: ir.Node, at: int, value: ir.Value | None) -> None:
        """Give an operand, or leave it out: the last ones by their absence or by an empty name."""
        if at >= len(node.inputs):
            node.resize_inputs(at + 1)
        node.replace_input_with(at, value)
        while node.inputs and node.inputs[-1] is None and self._draw():
            node.resize_inputs(len(node.inputs) - 1)

    def _axis_attribute(self, node: ir.Node, rank: int) -> None:
        defaults = {"Concat": None, "Gather": 0, "GatherElements": 0, "Split": 0, "Softmax": -1, "LogSoftmax": -1,
                    "ArgMax": 0, "ArgMin": 0, "Flatten": 1, "LayerNormalization": -1, "ScatterElements": 0,
                    "TopK": -1, "Hardmax": -1}  # fmt: skip
        if node.op_type not in defaults:
            return
        default = defaults[node.op_type]
        axis = house.int_attribute(node, "axis", default if default is not None else 0)
        if node.op_type == "Flatten" and axis == rank:
            return
        other = axis - rank if axis >= 0 else axis + rank
        chosen = other if self._draw() else axis
        node.attributes["axis"] = ir.AttrInt64("axis", chosen)
        if default is not None and chosen % rank == default % rank and self._draw():
            node.attributes.pop("axis")

    def _axes(self, node: ir.Node, at: int, rank: int) -> None:
        array = house.array_of(node.inputs[at]) if at < len(node.inputs) else None
        if array is None:
            return
        flat = array.reshape(-1)
        flipped = np.where(self.rng.integers(0, 2, flat.size) > 0, np.where(flat < 0, flat + rank, flat - rank), flat)
        if node.op_type != "CumSum":
            flipped = self.rng.permutation(flipped)
        everything = len(flat) == rank and node.op_type in REDUCTIONS
        ones = [axis for axis, dim in enumerate(node.inputs[0].shape or ()) if dim == 1] if node.inputs[0] else []
        is_known = node.inputs[0] is not None and all(isinstance(dim, int) for dim in node.inputs[0].shape or (None,))
        squeezed = node.op_type == "Squeeze" and is_known and sorted(flat % rank) == ones
        if (everything or squeezed) and self._draw():
            return self._set(node, at, None)
        self._set(node, at, self._given(flipped.reshape(array.shape).astype(array.dtype)))

    def _slice(self, node: ir.Node, rank: int) -> None:
        bounds = [None if value is None else house.array_of(value) for value in (*node.inputs[1:], None, None)[:4]]
        count = next((each.size for each in bounds if each is not None), None)
        axes, steps = bounds[2], bounds[3]
        if count is None or (axes is None and len(node.inputs) > 3 and node.inputs[3] is not None):
            return
        kind = np.int64 if node.inputs[1] is None or node.inputs[1].dtype is None else node.inputs[1].dtype.numpy()
        named = np.arange(count) if axes is None else axes.reshape(-1) % rank
        flipped = np.where(self.rng.integers(0, 2, count) > 0, named - rank, named).astype(kind)
        left_out = np.array_equal(named, np.arange(count)) and self._draw()
        has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
        if not has_steps and self._draw():
            self._set(node, 4, self._given(np.ones(count, kind)))
        elif steps is not None and (steps == 1).all() and self._draw():
            self._set(node, 4, None)
        if len(node.inputs) > 3 or not left_out:
            self._set(node, 3, None if left_out else self._given(flipped))

    def _pad(self, node: ir.Node, rank: int) -> None:
        pads = house.array_of(node.inputs[1])
        value = house.array_of(node.inputs[2]) if len(node.inputs) > 2 else None
        if value is not None and float(value.reshape(-1)[0]) == 0 and self._draw():
            self._set(node, 2, None)
        opset = self.model.graph.opset_imports.get("", 1)
        if pads is None or (len(node.inputs) > 3 and node.inputs[3] is not None) or opset < 18 or self._draw():
            return
        along = [at for at in range(rank) if pads[at] or pads[at + rank] or self._draw()]
        if along:
            self._set(node, 1, self._given(np.concatenate([pads[along], pads[[at + rank for at in along]]])))
            named = np.array([at - rank if self._draw() else at for at in along], np.int64)
            self._set(node, 3, self._given(named))

    def _transpose(self, node: ir.Node, rank: int) -> None:
        perm = tuple(reversed(range(rank)))
        if house.ints_attribute(node, "perm") in ((), perm) and self._draw():
            node.attributes.pop("perm", None)

    def _split(self, node: ir.Node) -> None:
        parts = house.array_of(node.inputs[1])
        opset = self.model.graph.opset_imports.get("", 1)
        if parts is None or len(set(parts.tolist())) > 1 or opset < 18:
            return
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(parts))
        self._set(node, 1, None)

    def _defaults(self, node: ir.Node) -> None:
        """Attributes that are as if they were not there come and go."""
        searches = ("ArgMax", "ArgMin")
        same = {"keepdims": 1, "noop_with_empty_axes": 0, "fmod": 0, "reverse": 0, "exclusive": 0, "allowzero": 0}
        known = {
            "keepdims": (*REDUCTIONS, *searches), "noop_with_empty_axes": REDUCTIONS, "fmod": ("Mod",),
            "reverse": ("CumSum",), "exclusive": ("CumSum",), "allowzero": ("Reshape",),
        }  # fmt: skip
        for name, default in same.items():
            if node.op_type not in known[name] or not self._draw():
                continue
            if name not in node.attributes:
                node.attributes[name] = ir.AttrInt64(name, default)
            elif house.int_attribute(node, name, default) == default:
                node.attributes.pop(name)
