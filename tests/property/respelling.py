"""The legal spellings of a graph: axes from the back, operands left out or given, defaults stated or left out.

A graph in another spelling computes the same; `tests.property.respelled` requires that the same is proved of it, too.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import REDUCTIONS

WINDOWS: Mapping[str, object] = {"auto_pad": "NOTSET", "strides": 1, "pads": 0}
"""Lists hold one number per axis of the kernel, pads two; here the number of which there are as many."""

RECURRENT: Mapping[str, object] = {"direction": "forward", "layout": 0}
NORM: Mapping[str, object] = {"epsilon": 1e-5}
INTERPOLATION: Mapping[str, object] = {
    "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75, "exclude_outside": 0, "antialias": 0,
    "extrapolation_value": 0.0, "mode": "nearest", "keep_aspect_ratio_policy": "stretch",
}  # fmt: skip

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "Conv": {**WINDOWS, "dilations": 1, "group": 1},
    "ConvTranspose": {**WINDOWS, "dilations": 1, "group": 1, "output_padding": 0},
    "MaxPool": {**WINDOWS, "dilations": 1, "ceil_mode": 0, "storage_order": 0},
    "AveragePool": {**WINDOWS, "ceil_mode": 0, "count_include_pad": 0},
    "LpPool": {**WINDOWS, "p": 2},
    "LSTM": {**RECURRENT, "input_forget": 0}, "GRU": {**RECURRENT, "linear_before_reset": 0}, "RNN": RECURRENT,
    "Resize": INTERPOLATION,
    "BatchNormalization": {**NORM, "momentum": 0.9, "training_mode": 0},
    "InstanceNormalization": NORM, "GroupNormalization": NORM,
    "LayerNormalization": {**NORM, "stash_type": 1}, "RMSNormalization": {**NORM, "stash_type": 1},
    "LpNormalization": {"axis": -1, "p": 2},
    "Attention": {"is_causal": 0, "softcap": 0.0, "qk_matmul_output_mode": 0},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
    "TopK": {"largest": 1, "sorted": 1}, "Trilu": {"upper": 1},
    "ArgMax": {"keepdims": 1, "select_last_index": 0}, "ArgMin": {"keepdims": 1, "select_last_index": 0},
    **{op: {"keepdims": 1, "noop_with_empty_axes": 0} for op in REDUCTIONS},
    "GatherND": {"batch_dims": 0}, "ScatterND": {"reduction": "none"}, "ScatterElements": {"reduction": "none"},
    "Mod": {"fmod": 0}, "CumSum": {"reverse": 0, "exclusive": 0}, "Reshape": {"allowzero": 0}, "Shape": {"start": 0},
    "Pad": {"mode": "constant"}, "Elu": {"alpha": 1.0}, "LeakyRelu": {"alpha": 0.01}, "Gelu": {"approximate": "none"},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "Celu": {"alpha": 1.0}, "ThresholdedRelu": {"alpha": 1.0},
    "DepthToSpace": {"mode": "DCR"}, "EyeLike": {"k": 0}, "IsInf": {"detect_negative": 1, "detect_positive": 1},
    "ReverseSequence": {"batch_axis": 1, "time_axis": 0}, "Cast": {"saturate": 1}, "CastLike": {"saturate": 1},
    "DFT": {"inverse": 0, "onesided": 0},
    "GridSample": {"mode": "linear", "padding_mode": "zeros", "align_corners": 0},
}  # fmt: skip
"""Attributes that are as if they were not there where they hold these."""

SINCE = {"saturate": 19, "antialias": 18, "keep_aspect_ratio_policy": 18}
"""The operator set from which on an attribute is known."""

AXES: Mapping[str, int | None] = {
    "Concat": None, "Gather": 0, "GatherElements": 0, "Split": 0, "Softmax": -1, "LogSoftmax": -1, "ArgMax": 0,
    "ArgMin": 0, "Flatten": 1, "LayerNormalization": -1, "RMSNormalization": -1, "ScatterElements": 0, "TopK": -1,
    "Hardmax": -1, "LpNormalization": -1,
}  # fmt: skip
"""Operators with an axis of their first operand, and the one that is meant without it; None where it is needed."""

LEFT_OUT: Mapping[str, Mapping[int, float]] = {
    "Trilu": {1: 0}, "Gemm": {2: 0}, "Conv": {2: 0}, "ConvTranspose": {2: 0}, "LayerNormalization": {2: 0},
    "LSTM": {3: 0, 5: 0, 6: 0, 7: 0}, "GRU": {3: 0, 5: 0}, "RNN": {3: 0, 5: 0}, "Pad": {2: 0},
    "Clip": {1: -np.inf, 2: np.inf}, "Dropout": {1: 0.5, 2: 0},
}  # fmt: skip
"""Operands that are as if they were not there where all that they hold is this number."""


class Respelling:
    """Spells the nodes of a graph in other legal ways.

    Args:
        model: of a current operator set, with shapes; is changed in place.
        rng: draws the spellings.
    """

    def __init__(self, model: ir.Model, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.opset = model.graph.opset_imports.get("", 1)

    def apply(self) -> int:
        """Spell every node anew; how many are spelled otherwise now."""
        return sum(self._respell(node) for node in list(self.model.graph))

    def _respell(self, node: ir.Node) -> bool:
        before = (tuple(node.inputs), {name: held.value for name, held in node.attributes.items()}, node.outputs)
        first = node.inputs[0] if node.inputs else None
        rank = None if first is None or first.shape is None else len(first.shape)
        if node.domain == "" and rank is not None:
            if rank:
                self._axis_attribute(node, rank)
            rule = RULES.get("Reduce" if node.op_type in REDUCTIONS else node.op_type)
            if rule is not None:
                rule(self, node, rank)
            self._operands(node)
            self._defaults(node, rank)
        return before != (
            tuple(node.inputs), {name: held.value for name, held in node.attributes.items()}, node.outputs,
        )  # fmt: skip

    def draw(self) -> bool:
        """One of two, as often as the other."""
        return bool(self.rng.integers(0, 2))

    def given(self, array: np.ndarray) -> ir.Value:
        """A constant operand."""
        return graphs.Inserter(self.model, "respelled").constant(array, "given")

    def set(self, node: ir.Node, at: int, value: ir.Value | None) -> None:
        """Give an operand, or leave it out: the last ones by their absence or by an empty name."""
        if at >= len(node.inputs):
            node.resize_inputs(at + 1)
        node.replace_input_with(at, value)
        while node.inputs and node.inputs[-1] is None and self.draw():
            node.resize_inputs(len(node.inputs) - 1)

    def _axis_attribute(self, node: ir.Node, rank: int) -> None:
        if node.op_type not in AXES:
            return
        default = AXES[node.op_type]
        axis = graphs.int_attribute(node, "axis", default if default is not None else 0)
        if node.op_type == "Flatten" and axis == rank:
            return
        other = axis - rank if axis >= 0 else axis + rank
        chosen = other if self.draw() else axis
        node.attributes["axis"] = ir.AttrInt64("axis", chosen)
        if default is not None and chosen % rank == default % rank and self.draw():
            node.attributes.pop("axis")

    def _operands(self, node: ir.Node) -> None:
        """Operands that change nothing go; an empty name may be left out where nothing follows."""
        for at, idle in LEFT_OUT.get(node.op_type, {}).items():
            array = graphs.array_of(node.inputs[at]) if at < len(node.inputs) else None
            if array is not None and array.size and _is_idle(array, idle) and self.draw():
                self.set(node, at, None)

    def _defaults(self, node: ir.Node, rank: int) -> None:
        """Attributes that are as if they were not there come and go."""
        has_auto_pad = "pads" not in node.attributes and graphs.attribute(node, "auto_pad", "NOTSET") != "NOTSET"
        for name, default in DEFAULTS.get(node.op_type, {}).items():
            if SINCE.get(name, 1) > self.opset or (name == "pads" and has_auto_pad) or not self.draw():
                continue
            whole: object = default
            if name in ("strides", "dilations", "output_padding", "pads"):
                assert isinstance(default, int)
                whole = (default,) * (rank - 2) * (2 if name == "pads" else 1)
            held = node.attributes.get(name)
            if held is None:
                node.attributes[name] = _attribute(name, whole)
            elif _alike(held.value, whole):
                node.attributes.pop(name)


def _is_idle(array: np.ndarray, idle: float) -> bool:
    if np.isinf(idle) and array.dtype.kind == "f":
        edge = np.finfo(array.dtype).max if idle > 0 else np.finfo(array.dtype).min
        return bool(((array == idle) | (array == edge)).all())
    return bool((array == idle).all())


def _alike(held: object, default: object) -> bool:
    if isinstance(default, float) and isinstance(held, float):
        return bool(np.float32(held) == np.float32(default))
    return tuple(held) == default if isinstance(default, tuple) and isinstance(held, Sequence) else held == default


def _attribute(name: str, value: object) -> ir.Attr:
    if isinstance(value, tuple):
        return ir.AttrInt64s(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    return ir.AttrFloat32(name, value) if isinstance(value, float) else ir.AttrInt64(name, int(str(value)))


# Of single operators


def _slice(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Axes from the back or left out, all axes named, steps given or left out, bounds in either type and direction."""
    bounds = [None if value is None else graphs.array_of(value) for value in (*node.inputs[1:], None, None)[:4]]
    starts, ends, axes, steps = bounds
    count = next((each.size for each in bounds if each is not None), None)
    if count is None or (axes is None and len(node.inputs) > 3 and node.inputs[3] is not None):
        return
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if starts is not None and ends is not None and shape is not None:
        has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
        if not has_steps or steps is not None:
            return _slice_by_numbers(spelling, node, list(shape), [starts, ends, axes, steps])
    kind = np.int64 if node.inputs[1] is None or node.inputs[1].dtype is None else node.inputs[1].dtype.numpy()
    named = np.arange(count) if axes is None else axes.reshape(-1) % rank
    flipped = np.where(spelling.rng.integers(0, 2, count) > 0, named - rank, named).astype(kind)
    left_out = np.array_equal(named, np.arange(count)) and spelling.draw()
    has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
    if not has_steps and spelling.draw():
        spelling.set(node, 4, spelling.given(np.ones(count, kind)))
    elif steps is not None and (steps == 1).all() and spelling.draw():
        spelling.set(node, 4, None)
    if len(node.inputs) > 3 or not left_out:
        spelling.set(node, 3, None if left_out else spelling.given(flipped))


def _slice_by_numbers(
    spelling: Respelling, node: ir.Node, shape: Sequence[object], bounds: Sequence[np.ndarray | None]
) -> None:
    rng, rank = spelling.rng, len(shape)
    kind = np.dtype(np.int32 if spelling.draw() else np.int64)
    far = int((np.iinfo(np.int32) if kind == np.int32 else np.iinfo(np.int64)).max)
    starts, ends, axes, steps = (None if each is None else [int(n) for n in each.reshape(-1)] for each in bounds)
    assert starts is not None and ends is not None
    named = [axis % rank for axis in (range(len(starts)) if axes is None else axes)]
    cuts = list(zip(named, starts, ends, steps or [1] * len(named), strict=True))
    if spelling.draw():
        cuts += [(axis, 0, far, 1) for axis in range(rank) if axis not in named]
    cuts = [cuts[at] for at in (rng.permutation(len(cuts)) if spelling.draw() else np.argsort([c[0] for c in cuts]))]
    columns: list[list[int]] = [[], [], [], []]
    for axis, start, end, step in cuts:
        size = shape[axis]
        if isinstance(size, int) and size and step > 0:
            start = max(start, -size) % size if start < size and spelling.draw() else start
            start = start - size if 0 <= start < size and spelling.draw() else start
            end = int(rng.choice([end, size, far])) if end >= size else end
            end = end - size if 0 < end < size and spelling.draw() else end
        values = (start, end, axis - rank if spelling.draw() else axis, step)
        for column, number in zip(columns, values, strict=True):
            column.append(int(np.clip(number, -far, far)))
    given = [spelling.given(np.array(column, kind)) for column in columns]
    first = [axis for axis, *_ in cuts] == list(range(len(cuts)))
    operands: list[ir.Value | None] = [node.inputs[0], *given]
    if columns[3] == [1] * len(cuts) and spelling.draw():
        operands[4] = None
    if first and spelling.draw():
        operands[3] = None
    node.resize_inputs(5)
    for at, value in enumerate(operands):
        spelling.set(node, at, value)


def _axes(spelling: Respelling, node: ir.Node, rank: int) -> None:
    array = graphs.array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if array is None:
        return
    flat = array.reshape(-1)
    turned = spelling.rng.integers(0, 2, flat.size) > 0
    flipped = np.where(turned, np.where(flat < 0, flat + rank, flat - rank), flat)
    if node.op_type != "CumSum":
        flipped = spelling.rng.permutation(flipped)
    everything = len(flat) == rank and node.op_type in REDUCTIONS and not _keeps_all(node)
    ones = [axis for axis, dim in enumerate(node.inputs[0].shape or ()) if dim == 1] if node.inputs[0] else []
    is_known = node.inputs[0] is not None and all(isinstance(dim, int) for dim in node.inputs[0].shape or (None,))
    squeezed = node.op_type == "Squeeze" and is_known and sorted(flat % rank) == ones
    if squeezed and spelling.draw():
        return node.resize_inputs(1)  # ONNX Runtime runs no Squeeze whose axes have an empty name
    if everything and spelling.draw():
        return spelling.set(node, 1, None)
    spelling.set(node, 1, spelling.given(flipped.reshape(array.shape).astype(array.dtype)))


def _keeps_all(node: ir.Node) -> bool:
    """Whether a reduction without axes reduces none."""
    return bool(graphs.int_attribute(node, "noop_with_empty_axes", 0))


def _reduced(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """No axes are an empty list of them."""
    given = node.inputs[1] if len(node.inputs) > 1 else None
    array = graphs.array_of(given)
    if given is None and spelling.opset >= 18 and spelling.draw():
        return spelling.set(node, 1, spelling.given(np.zeros(0, np.int64)))
    if array is not None and not array.size:
        return spelling.set(node, 1, None) if spelling.draw() else None
    return _axes(spelling, node, rank)


def _unsqueeze(spelling: Respelling, node: ir.Node, rank: int) -> None:
    array = graphs.array_of(node.inputs[1])
    if array is not None:
        _axes(spelling, node, rank + array.size)


def _pad(spelling: Respelling, node: ir.Node, rank: int) -> None:
    pads = graphs.array_of(node.inputs[1])
    if pads is None or (len(node.inputs) > 3 and node.inputs[3] is not None) or spelling.draw():
        return
    along = [at for at in range(rank) if pads[at] or pads[at + rank] or spelling.draw()]
    if along:
        spelling.set(node, 1, spelling.given(np.concatenate([pads[along], pads[[at + rank for at in along]]])))
        named = np.array([at - rank if spelling.draw() else at for at in along], np.int64)
        spelling.set(node, 3, spelling.given(named))


def _transpose(spelling: Respelling, node: ir.Node, rank: int) -> None:
    perm = tuple(reversed(range(rank)))
    if graphs.ints_attribute(node, "perm") in ((), perm) and spelling.draw():
        node.attributes.pop("perm", None)


def _split(spelling: Respelling, node: ir.Node, rank: int) -> None:
    parts = graphs.array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if parts is None or len(set(parts.tolist())) > 1 or spelling.draw():
        return
    node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(parts))
    node.resize_inputs(1)  # ONNX Runtime takes no empty name here


def _clip(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """A bound that is left out may be the farthest number of the type."""
    dtype = None if node.inputs[0] is None or node.inputs[0].dtype is None else node.inputs[0].dtype.numpy()
    for at in (1, 2):
        is_given = at < len(node.inputs) and node.inputs[at] is not None
        if not is_given and dtype is not None and np.issubdtype(dtype, np.floating) and spelling.draw():
            limits = np.finfo(dtype)
            spelling.set(node, at, spelling.given(np.array(limits.max if at == 2 else limits.min, dtype)))


def _windows(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """The size of a kernel that its weights say; padding by a rule that gives the same pads."""
    weights = None if node.op_type.endswith("Pool") else node.inputs[1]
    if weights is not None and weights.shape is not None and spelling.draw():
        if "kernel_shape" in node.attributes:
            node.attributes.pop("kernel_shape")
        else:
            node.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", [int(str(n)) for n in weights.shape[2:]])
    kernel = graphs.ints_attribute(node, "kernel_shape")
    if weights is not None and weights.shape is not None:
        kernel = tuple(int(str(dim)) for dim in weights.shape[2:])
    count = rank - 2
    pads = graphs.ints_attribute(node, "pads") or (0,) * 2 * count
    strides = graphs.ints_attribute(node, "strides") or (1,) * count
    dilations = graphs.ints_attribute(node, "dilations") or (1,) * count
    if node.op_type == "ConvTranspose" or graphs.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return
    if set(pads) == {0} and spelling.draw():
        node.attributes.pop("pads", None)
        node.attributes["auto_pad"] = ir.AttrString("auto_pad", "VALID")
        return
    sizes = None if node.inputs[0] is None else graphs.dims_of(node.inputs[0])
    if sizes is None:
        return
    needed = [_added(*each) for each in zip(sizes[2:], kernel, strides, strict=True)]
    if set(dilations) != {1} or graphs.int_attribute(node, "ceil_mode", 0):
        return
    halves = [None if each is None else (each // 2, -(-each // 2)) for each in needed]
    for rule, order in (("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 0))):
        around = [(None, None) if each is None else (each[order[0]], each[order[1]]) for each in halves]
        if list(pads) == [*(front for front, _ in around), *(behind for _, behind in around)] and spelling.draw():
            node.attributes.pop("pads", None)
            node.attributes["auto_pad"] = ir.AttrString("auto_pad", rule)
            return


def _added(size: graphs.Dim, kernel: int, stride: int) -> int | None:
    """What SAME pads along an axis; None where that depends on the length."""
    names = () if isinstance(size, int) else tuple(size.free_symbols)
    lengths = [int(size if isinstance(size, int) else size.subs(dict.fromkeys(names, n))) for n in range(3, 15)]
    totals = {max((-(-each // stride) - 1) * stride + kernel - each, 0) for each in lengths}
    return totals.pop() if len(totals) == 1 else None


def _recurrence(spelling: Respelling, node: ir.Node, rank: int) -> None:
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[node.op_type]
    ways = 2 if graphs.attribute(node, "direction", "forward") == "bidirectional" else 1
    if "activations" not in node.attributes and spelling.draw():
        node.attributes["activations"] = ir.AttrStrings("activations", usual * ways)
    elif "activations" in node.attributes and spelling.draw():
        named = list(map(str, node.attributes["activations"].as_strings()))
        if named == usual * ways:
            node.attributes.pop("activations")
    gates = {"LSTM": 8, "GRU": 6, "RNN": 2}[node.op_type]
    hidden = graphs.int_attribute(node, "hidden_size", 1)
    if (len(node.inputs) < 4 or node.inputs[3] is None) and spelling.draw():
        spelling.set(node, 3, spelling.given(np.zeros((ways, gates * hidden), np.float32)))


def _shape(spelling: Respelling, node: ir.Node, rank: int) -> None:
    start, end = graphs.int_attribute(node, "start", 0), graphs.int_attribute(node, "end", rank)
    first, last = max(min(start + rank * (start < 0), rank), 0), max(min(end + rank * (end < 0), rank), 0)
    node.attributes["start"] = ir.AttrInt64("start", first - rank if first < rank and spelling.draw() else first)
    if last == rank and spelling.draw():
        node.attributes.pop("end", None)
    else:
        node.attributes["end"] = ir.AttrInt64("end", last - rank if last < rank and spelling.draw() else last)


def _gather(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Constant entries, from the end where the axis is known, in either type of index."""
    indices, data = graphs.array_of(node.inputs[1]), node.inputs[0]
    if indices is None or data is None or data.shape is None:
        return
    size = data.shape[graphs.int_attribute(node, "axis", 0)]
    turned = indices
    if isinstance(size, int):
        turned = np.where(indices < 0, indices + size, indices)
        turned = np.where(spelling.rng.integers(0, 2, indices.shape) > 0, turned - size, turned)
    kind = np.int32 if spelling.draw() else np.int64
    spelling.set(node, 1, spelling.given(np.asarray(turned).astype(kind)))


def _places(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Constant entries of several axes, from the end where an axis is known."""
    places, data = graphs.array_of(node.inputs[1]), node.inputs[0]
    if places is None or data is None or data.shape is None:
        return
    first, turned = graphs.int_attribute(node, "batch_dims", 0), places.copy()
    for at in range(places.shape[-1]):
        size = data.shape[first + at]
        if isinstance(size, int):
            from_start = np.where(places[..., at] < 0, places[..., at] + size, places[..., at])
            is_turned = spelling.rng.integers(0, 2, from_start.shape) > 0
            turned[..., at] = np.where(is_turned, from_start - size, from_start)
    spelling.set(node, 1, spelling.given(turned))


def _one_hot(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """The new axis from either end, and how many classes there are as any number with or without an axis."""
    axis = graphs.int_attribute(node, "axis", -1) % (rank + 1)
    node.attributes["axis"] = ir.AttrInt64("axis", axis - (rank + 1) if spelling.draw() else axis)
    if axis == rank and spelling.draw():
        node.attributes.pop("axis")
    depth, indices = graphs.array_of(node.inputs[1]), node.inputs[0]
    if depth is not None and indices is not None and indices.dtype == ir.DataType.INT64:
        kind = (np.int64, np.int32, np.float32)[int(spelling.rng.integers(3))]
        shape = () if spelling.draw() else (1,)
        spelling.set(node, 1, spelling.given(depth.reshape(shape).astype(kind)))


def _attention(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Its scale, a mask that adds nothing, empty names of a cache that is not there, and results that nothing reads."""
    query = node.inputs[0]
    size = None if query is None or query.shape is None or rank != 4 else query.shape[3]
    if isinstance(size, int) and spelling.draw():
        usual, held = ir.AttrFloat32("scale", float(1 / np.sqrt(size))), node.attributes.get("scale")
        if held is None:
            node.attributes["scale"] = usual
        elif np.float32(held.as_float()) == np.float32(usual.as_float()):
            node.attributes.pop("scale")
    if len(node.inputs) == 3 and spelling.draw():
        node.resize_inputs(int(spelling.rng.integers(4, 7)))
    if len(node.outputs) == 1 and spelling.draw():
        node.resize_outputs(3)
        for at, name in enumerate(("present_keys", "present_values"), start=1):
            node.outputs[at].name = f"{node.outputs[0].name}_{name}"


def _einsum(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Spaces, other letters, capitals, and an output that is left out where it is what follows."""
    equation = str(graphs.attribute(node, "equation", "")).replace(" ", "")
    operands, _, result = equation.partition("->")
    letters = [each for each in operands if each.isalpha()]
    implied = "".join(sorted(each for each in set(letters) if letters.count(each) == 1))
    if result == implied and "." not in equation and spelling.draw():
        equation = operands
    if spelling.draw():
        equation = equation.replace(",", " , ").replace("->", " -> ")
    node.attributes["equation"] = ir.AttrString("equation", equation)


def _constant_of_shape(spelling: Respelling, node: ir.Node, rank: int) -> None:
    held = node.attributes.get("value")
    if held is None and spelling.draw():
        node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.zeros(1, np.float32)))
    elif held is not None and spelling.draw():
        array = held.as_tensor().numpy()
        if array.dtype == np.float32 and array.reshape(-1)[0] == 0:
            node.attributes.pop("value")


def _resize(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Scales of some axes only, an empty region given or left out."""
    if len(node.inputs) < 3 or spelling.opset < 18:
        return
    at = 2 if node.inputs[2] is not None else 3
    array = graphs.array_of(node.inputs[at]) if at < len(node.inputs) else None
    if (node.inputs[1] is None) and spelling.draw():
        spelling.set(node, 1, spelling.given(np.zeros(0, np.float32)))
    if at == 2 and array is not None and array.size == rank and "axes" not in node.attributes and spelling.draw():
        along = [axis for axis in range(rank) if array[axis] != 1 or spelling.draw()]
        if along:
            node.attributes["axes"] = ir.AttrInt64s("axes", [a - rank if spelling.draw() else a for a in along])
            spelling.set(node, at, spelling.given(array[along]))


def _gemm(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Weights on their side."""
    weights = graphs.array_of(node.inputs[1])
    if weights is not None and spelling.draw():
        node.attributes["transB"] = ir.AttrInt64("transB", 1 - graphs.int_attribute(node, "transB", 0))
        spelling.set(node, 1, spelling.given(np.ascontiguousarray(weights.T)))


def _dropout(spelling: Respelling, node: ir.Node, rank: int) -> None:
    if len(node.inputs) < 2 and spelling.draw():
        spelling.set(node, 1, spelling.given(np.array(0.3, np.float32)))
    if len(node.inputs) == 2 and spelling.draw():
        spelling.set(node, 2, spelling.given(np.array(False)))


def _more_outputs(spelling: Respelling, node: ir.Node, rank: int) -> None:
    """Outputs that nothing reads come and go."""
    most = {"LayerNormalization": 3, "LSTM": 3, "GRU": 2, "RNN": 2, "Dropout": 2, "MaxPool": 2}[node.op_type]
    if len(node.outputs) < most and spelling.draw():
        known = len(node.outputs)
        node.resize_outputs(most)
        for at in range(known, most):
            node.outputs[at].name = f"{node.outputs[0].name}_unread_{at}"


def _both(*rules: Callable[[Respelling, ir.Node, int], None]) -> Callable[[Respelling, ir.Node, int], None]:
    def both(spelling: Respelling, node: ir.Node, rank: int) -> None:
        for rule in rules:
            rule(spelling, node, rank)

    return both


RULES: Mapping[str, Callable[[Respelling, ir.Node, int], None]] = {
    "Slice": _slice, "Reduce": _reduced, "Squeeze": _axes, "CumSum": _axes, "Unsqueeze": _unsqueeze, "Pad": _pad,
    "Transpose": _transpose, "Split": _split, "Clip": _clip, "Conv": _windows, "ConvTranspose": _windows,
    "MaxPool": _both(_windows, _more_outputs), "AveragePool": _windows, "Shape": _shape, "Gather": _gather,
    "GatherElements": _gather, "ScatterElements": _gather, "GatherND": _places, "ScatterND": _places,
    "OneHot": _one_hot, "Attention": _attention, "Einsum": _einsum, "ConstantOfShape": _constant_of_shape,
    "Resize": _resize, "Gemm": _gemm, "Dropout": _both(_dropout, _more_outputs),
    "LSTM": _both(_recurrence, _more_outputs), "GRU": _both(_recurrence, _more_outputs),
    "RNN": _both(_recurrence, _more_outputs), "LayerNormalization": _more_outputs,
}  # fmt: skip
"""What else of an operator may be spelled otherwise."""
