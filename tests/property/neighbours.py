"""Attacks beside those of the tests: the same node with another content, layout, size, constant, operand or attribute.

A test draws what its author thought of. From each of its nodes a few steps are taken at random, so that values at
edges, axes aligned at the other end or joined of two, values that all rows share, constants that are computed and
numbers that follow from lengths come to every rule.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from compiler.errors import Refused
from compiler.proof.facts.facts import Index
from compiler.proof.facts.interval import ANYTHING, ONE, ZERO, Interval, of_array
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined
from tests.kit.attacked import BATCH, Node, Operand, axis_names, constant, number, size_at
from tests.property.corpus import REFUSAL, NodeAttack, Prepared, Tracer

SECONDS = 8.0
"""Of the processor to draw attacks in: a chain of movements takes as long as a hundred other nodes."""

STEPS = 3
"""The most changes of one node."""

CONTENTS = (
    ANYTHING, ZERO, ONE, Interval(0.0, 1.0), Interval(-1.0, 0.0), Interval(-3.0, 5.0), Interval(1.0, 2.0),
    Interval(-np.inf, np.inf), Interval(-np.inf, -1.0), Interval(2.0, np.inf), Interval(-1.0, 1.0, True),
    Interval(-3.4e38, -3.4e38), Interval(-1e30, 1e30), Interval(0.0, 3.0), Interval(-2.0, 2.0),
)  # fmt: skip
NUMBERS = ("{0}", "{0} - 1", "{0} + 1", "-{0}", "2*{0}", "1 - {0}", "{0} - 2")
SIZES = ("{0} + 1", "2*{0}", "{0} - 1", "3*{0} + 2")
KINDS = (ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
OPSETS = (13, 17, 18, 20, 21)
COUNTED = Interval(0.0, 2.0**31)
WORDS = {
    "auto_pad": ("VALID", "SAME_UPPER", "SAME_LOWER"),
    "direction": ("reverse", "bidirectional"),
    "mode": ("constant", "edge", "reflect", "wrap", "linear", "nearest", "cubic"),
    "coordinate_transformation_mode": ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"),
    "nearest_mode": ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor"),
    "reduction": ("add", "mul", "max", "min"),
    "approximate": ("tanh",),
}
"""What attributes that are texts may say."""

Draw = np.random.Generator


def neighbours(attacks: Sequence[NodeAttack], count: int, seed: int) -> Iterator[NodeAttack]:
    """So many attacks beside given ones, or those of `SECONDS`; nodes that the operator does not allow are left out."""
    rng, stop = np.random.default_rng(seed), time.process_time() + SECONDS
    for _ in range(count if attacks else 0):
        if time.process_time() > stop:
            return
        origin = attacks[int(rng.integers(len(attacks)))]
        tracer = Tracer()
        try:
            node = origin.node
            for _ in range(int(rng.integers(1, STEPS + 1))):
                node = _pick(rng, CHANGES)(node, rng)
            if node == origin.node:
                continue
            with tracer.on():
                seen = Prepared(node, origin.rule).seen
        except Refused:
            seen = REFUSAL
        except Exception:  # noqa: BLE001 - a node that the operator does not allow
            continue
        yield dataclasses.replace(origin, node=node, always_runs=False, seen=seen, lines=frozenset(tracer.lines))


def holds(attack: NodeAttack, trials: int) -> bool:
    """Whether an attack finds nothing against the rule as it is, so that what it finds is the mutant's."""
    if attack.seen.refused:
        return True
    try:
        prepared = Prepared(attack.node, attack.rule)
        prepared.open()
        rng = np.random.default_rng(0)
        for trial in range(trials):
            prepared.run(rng, trial, max(attack.tolerance, 1e-5), attack.extremes)
    except Exception:  # noqa: BLE001 - no lengths, or unsound
        return False
    return True


def _pick(rng: Draw, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _with(node: Node, at: int, operand: Operand | None) -> Node:
    operands = list(node.operands)
    operands[at] = operand
    return dataclasses.replace(node, operands=tuple(operands))


def _operand(node: Node, rng: Draw, suits: Callable[[Operand], bool]) -> tuple[int, Operand] | None:
    found = [(at, each) for at, each in enumerate(node.operands) if each is not None and suits(each)]
    return _pick(rng, found) if found else None


def _is_data(operand: Operand) -> bool:
    return operand.array is None and operand.number is None and operand.index is None


def _content(node: Node, rng: Draw) -> Node:
    """What the valid entries of an operand, or those of its padding, may be."""
    found = _operand(node, rng, _is_data)
    if found is None:
        return node
    at, operand = found
    field = _pick(rng, ("valid", "padding"))
    edges = [float(each) for each in node.attributes.values() if isinstance(each, int | float)]
    at_edges = [Interval(edge + low, edge + high) for edge in edges for low, high in ((-2, 0), (0, 0), (0, 2))]
    return _with(node, at, dataclasses.replace(operand, **{field: _pick(rng, (*CONTENTS, *at_edges))}))


def _away(node: Node, rng: Draw) -> Node:
    """All contents near one number, the padding near one, too: a bound that is too narrow shows."""
    valid, padding = (Interval(low, low + _pick(rng, (0.0, 1.0))) for low in rng.choice((-3.0, -1.0, 1.0, 2.0, 5.0), 2))

    def moved(operand: Operand | None) -> Operand | None:
        return dataclasses.replace(operand, valid=valid, padding=padding) if operand and _is_data(operand) else operand

    return dataclasses.replace(node, operands=tuple(map(moved, node.operands)))


def _side(node: Node, rng: Draw) -> Node:
    """An axis aligned at the other end."""
    names = axis_names(node)
    return dataclasses.replace(node, right=set(node.right) ^ {_pick(rng, names)}) if names else node


def _shapes(node: Node, change: Callable[[int | str], int | str], only: int | None = None) -> Node:
    operands = [
        dataclasses.replace(each, shape=tuple(change(dim) for dim in each.shape))
        if each is not None and each.array is None and each.number is None and not each.axes and only in (None, at)
        else each
        for at, each in enumerate(node.operands)
    ]
    return dataclasses.replace(node, operands=tuple(operands))


def _size(node: Node, rng: Draw) -> Node:
    """Another size of an axis, in all operands or in one."""
    dims = sorted({dim for each in node.operands if each is not None for dim in each.shape}, key=str)
    if not dims:
        return node
    old = _pick(rng, dims)
    new = _pick(rng, (1, 2, 3, 4, 6, *(size.format(name) for name in axis_names(node) for size in SIZES)))
    new = 1 if old == BATCH else new
    only = int(rng.integers(len(node.operands))) if rng.random() < 0.5 else None
    return _shapes(node, lambda dim: new if dim == old else dim, only)


def _swapped(node: Node, rng: Draw) -> Node:
    """Two axes of all operands in each other's place."""
    ranks = [len(each.shape) for each in node.operands if each is not None and _is_data(each) and not each.axes]
    if not ranks or max(ranks) < 2:
        return node
    one, other = rng.choice(max(ranks), 2, replace=False)

    def turned(operand: Operand | None) -> Operand | None:
        if operand is None or not _is_data(operand) or operand.axes or max(one, other) >= len(operand.shape):
            return operand
        shape = list(operand.shape)
        shape[one], shape[other] = shape[other], shape[one]
        return dataclasses.replace(operand, shape=tuple(shape))

    return dataclasses.replace(node, operands=tuple(map(turned, node.operands)))


def _laid_out(node: Node, name: str, axis: Axis, size: str) -> Node:
    """All axes of a name laid out otherwise."""

    def changed(operand: Operand | None) -> Operand | None:
        if operand is None or not _is_data(operand) or operand.axes or name not in operand.shape:
            return operand
        axes = {at: axis for at, dim in enumerate(operand.shape) if dim == name}
        return dataclasses.replace(
            operand, shape=tuple(size if dim == name else dim for dim in operand.shape), axes=axes
        )

    return dataclasses.replace(node, operands=tuple(map(changed, node.operands)))


def _fixed_beside(node: Node, rng: Draw) -> Node:
    """Some frames that every row has, in front of the padded ones or behind them."""
    names = axis_names(node)
    if not names:
        return node
    name = _pick(rng, names)
    padded = Segment(size_at(name), Side.RIGHT if name in node.right else Side.LEFT)
    count = int(rng.integers(1, 4))
    parts = [Segment(count), padded] if rng.random() < 0.5 else [padded, Segment(count)]
    return _laid_out(node, name, joined(parts), f"{name} + {count}")


def _merged(node: Node, rng: Draw) -> Node:
    """Two neighbouring axes of all operands as one, as a Reshape leaves them."""
    names = set(axis_names(node))
    ranks = [len(each.shape) for each in node.operands if each is not None and _is_data(each) and not each.axes]
    if not ranks or max(ranks) < 2:
        return node
    at = int(rng.integers(0, max(ranks) - 1))

    def factor(dim: int | str) -> Rows | Frames | Plain | None:
        if dim == BATCH:
            return Rows(size_at(BATCH))
        if dim in names:
            return Frames((Segment(size_at(dim), Side.RIGHT if dim in node.right else Side.LEFT),))
        return Plain(dim) if isinstance(dim, int) else None

    def changed(operand: Operand | None) -> Operand | None:
        if operand is None or not _is_data(operand) or operand.axes or at + 1 >= len(operand.shape):
            return operand
        both = operand.shape[at : at + 2]
        factors = tuple(each for dim in both if (each := factor(dim)) is not None)
        if len(factors) < 2 or all(isinstance(each, Plain) for each in factors):
            return operand
        shape = (*operand.shape[:at], "*".join(f"({dim})" for dim in both), *operand.shape[at + 2 :])
        return dataclasses.replace(operand, shape=shape, axes={at: factors})

    return dataclasses.replace(node, operands=tuple(map(changed, node.operands)))


def _another_axis(node: Node, rng: Draw) -> Node:
    """An axis more in all operands, or in one: of a few entries, or padded, too."""
    size = _pick(rng, (1, 2, 3, *axis_names(node), "other"))
    only = int(rng.integers(len(node.operands))) if rng.random() < 0.4 else None
    front = bool(rng.integers(0, 2))

    def changed(at: int, operand: Operand | None) -> Operand | None:
        if operand is None or not _is_data(operand) or operand.axes or only not in (None, at):
            return operand
        place = (
            len(operand.shape) - 1 if not front and operand.shape else 0 if not front else min(1, len(operand.shape))
        )
        return dataclasses.replace(operand, shape=(*operand.shape[:place], size, *operand.shape[place:]))

    return dataclasses.replace(node, operands=tuple(changed(at, each) for at, each in enumerate(node.operands)))


def _shared(node: Node, rng: Draw) -> Node:
    """An operand that all rows share: its batch is one entry, or no axis."""
    found = _operand(node, rng, lambda each: _is_data(each) and BATCH in each.shape and not each.axes)
    if found is None:
        return node
    at, operand = found
    if rng.random() < 0.5:
        shape = tuple(1 if dim == BATCH else dim for dim in operand.shape)
    else:
        shape = tuple(dim for dim in operand.shape if dim != BATCH)
    return _with(node, at, dataclasses.replace(operand, shape=shape))


def _positions(node: Node, rng: Draw) -> Node:
    """An operand of whole numbers that counts along one of its axes."""
    found = _operand(node, rng, lambda each: _is_data(each) and each.dtype == ir.DataType.INT64 and len(each.shape) > 0)
    if found is None:
        return node
    at, operand = found
    index = Index(int(rng.integers(len(operand.shape))), _pick(rng, (0, 0, 1, 2)))
    return _with(node, at, dataclasses.replace(operand, valid=COUNTED, padding=COUNTED, index=index))


def _two_segments(node: Node, rng: Draw) -> Node:
    """Frames behind a cache: an axis of two segments, aligned at one another."""
    names = axis_names(node)
    if not names or "cache" in names:
        return node
    name = _pick(rng, names)
    layout = (Frames((Segment(size_at("cache"), Side.RIGHT), Segment(size_at(name), Side.LEFT))),)
    laid_out = _laid_out(node, name, layout, f"cache + {name}")
    return dataclasses.replace(laid_out, right={*node.right, "cache"} - {name})


def _attribute(node: Node, rng: Draw) -> Node:
    """An attribute at another value, or at its default."""
    if not node.attributes:
        return node
    name = _pick(rng, sorted(node.attributes))
    value = node.attributes[name]
    if rng.random() < 0.15:
        return dataclasses.replace(node, attributes={each: v for each, v in node.attributes.items() if each != name})
    return dataclasses.replace(node, attributes={**node.attributes, name: _other(value, rng)})


def _new_attribute(node: Node, rng: Draw) -> Node:
    """An attribute that the operator has and the node leaves out."""
    try:
        known = onnx.defs.get_schema(node.op, node.opset, node.domain).attributes
    except onnx.defs.SchemaError:
        return node
    found = [each for name, each in sorted(known.items()) if name not in node.attributes]
    if not found:
        return node
    new = _pick(rng, found)
    value = _value_of(new, node, rng)
    return node if value is None else dataclasses.replace(node, attributes={**node.attributes, new.name: value})


def _value_of(new: Any, node: Node, rng: Draw) -> Any:
    """Some value of an attribute: beside its default, as long as other lists of the node, or as its operands go."""
    kinds, rank = onnx.defs.OpSchema.AttrType, max((len(each.shape) for each in node.operands if each), default=0)
    match new.type:
        case kinds.INT:
            return _pick(rng, (0, 1, 2, -1, rank - 1))
        case kinds.FLOAT:
            return _pick(rng, (0.0, 0.5, 1.0, 2.0, -1.0))
        case kinds.INTS:
            lists = [len(each) for each in node.attributes.values() if isinstance(each, list | tuple)]
            count = _pick(rng, (*lists, 2 * max(lists, default=1), rank, max(rank - 2, 1), 2 * max(rank - 2, 1)))
            return [int(each) for each in rng.integers(0 if new.name == "pads" else -1, 3, count)]
        case kinds.STRING:
            return _pick(rng, WORDS.get(new.name, ("",)))
    return None


def _another_operand(node: Node, rng: Draw) -> Node:
    """An optional operand that the node leaves out, of sizes of another one."""
    try:
        most = onnx.defs.get_schema(node.op, node.opset, node.domain).max_input
    except onnx.defs.SchemaError:
        most = len(node.operands) + 2
    places = [at for at in range(min(most, 9)) if at >= len(node.operands) or node.operands[at] is None]
    if not places:
        return node
    at = _pick(rng, places[:2])
    model = _pick(rng, [each for each in node.operands if each is not None])
    dims = [dim for dim in model.shape if dim != BATCH]
    shape = _pick(rng, (model.shape, tuple(dims[-1:]), tuple(dims[:1]), (), (1,)))
    fixed = all(isinstance(dim, int) for dim in shape)
    dtype = _pick(rng, (model.dtype, ir.DataType.INT64))
    if fixed and rng.random() < 0.7 and dtype in (ir.DataType.FLOAT, ir.DataType.INT64):
        operand = constant(rng.integers(-2, 4, [int(dim) for dim in shape]), dtype.numpy())
    else:
        operand = Operand(shape, dtype, valid=_pick(rng, (None, *CONTENTS)))
    operands = [*node.operands, *[None] * (at + 1 - len(node.operands))]
    operands[at] = operand
    return dataclasses.replace(node, operands=tuple(operands))


def _other(value: Any, rng: Draw) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return _pick(rng, (0, 1, 2, -1, value + 1, value - 1, -value))
        case float():
            return _pick(rng, (0.0, 1.0, -value, 2 * value, value / 2, 1e-30))
        case list() | tuple() if value:
            at = int(rng.integers(len(value)))
            return [_other(each, rng) if here == at else each for here, each in enumerate(value)]
    return value


def _constant(node: Node, rng: Draw) -> Node:
    """An entry of a constant at another value; or the constant computed."""
    found = _operand(node, rng, lambda each: each.array is not None and each.array.size > 0)
    if found is None:
        return node
    at, operand = found
    assert operand.array is not None
    array = operand.array.copy()
    if rng.random() < 0.3:
        return _with(node, at, Operand(array.shape, operand.dtype, valid=of_array(array)))
    names = axis_names(node)
    if array.dtype == np.int64 and array.size == 1 and names and rng.random() < 0.5:
        return _with(node, at, number(_pick(rng, NUMBERS).format(_pick(rng, names)), shape=array.shape))
    flat = array.reshape(-1)
    if array.dtype.kind == "f":
        flat[int(rng.integers(flat.size))] = _pick(rng, (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -2.5))
    elif array.dtype.kind in "iu":
        entry = int(rng.integers(flat.size))
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        wanted = _pick(rng, (0, 1, 2, -1, -2, int(flat[entry]) + 1, int(flat[entry]) - 1, -int(flat[entry])))
        flat[entry] = min(max(wanted, low), high)
    else:
        array = ~array if array.dtype == np.bool_ else array
    return _with(node, at, constant(array, array.dtype))


def _absent(node: Node, rng: Draw) -> Node:
    """An operand left out."""
    if len(node.operands) < 2:
        return node
    at = int(rng.integers(1, len(node.operands)))
    return (
        dataclasses.replace(node, operands=tuple(node.operands[:at])) if rng.random() < 0.5 else _with(node, at, None)
    )


def _turned(node: Node, rng: Draw) -> Node:
    """Two operands in each other's place."""
    if len(node.operands) < 2:
        return node
    one, other = rng.choice(len(node.operands), 2, replace=False)
    operands = list(node.operands)
    operands[one], operands[other] = operands[other], operands[one]
    return dataclasses.replace(node, operands=tuple(operands))


def _kind(node: Node, rng: Draw) -> Node:
    """Another element type wherever one occurs."""
    found = _operand(node, rng, _is_data)
    if found is None:
        return node
    old, new = found[1].dtype, _pick(rng, KINDS)

    def changed(operand: Operand | None) -> Operand | None:
        if operand is None or operand.dtype != old or operand.number is not None:
            return operand
        if operand.array is not None:
            return constant(operand.array, new.numpy())
        return dataclasses.replace(operand, dtype=new)

    with np.errstate(all="ignore"):
        return dataclasses.replace(node, operands=tuple(map(changed, node.operands)))


def _lengths(node: Node, rng: Draw) -> Node:
    """Rows without any entry, and long ones."""
    least: Mapping[str, int] = dict.fromkeys(axis_names(node), 0)
    return dataclasses.replace(node, least=least, most=dict.fromkeys(axis_names(node), 9))


def _older(node: Node, rng: Draw) -> Node:
    """Another version of the operator."""
    return node if node.domain else dataclasses.replace(node, opset=_pick(rng, OPSETS))


CHANGES = (
    _content, _content, _content, _away, _away, _side, _size, _size, _swapped, _two_segments, _attribute, _attribute,
    _constant, _constant, _absent, _turned, _kind, _lengths, _older, _new_attribute, _new_attribute, _another_operand,
    _another_axis, _fixed_beside, _merged, _shared, _positions,
)  # fmt: skip
"""What is done to a node; the more often it is named the likelier."""
