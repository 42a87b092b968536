"""Attacks one rule: a node runs padded on ONNX Runtime, and without padding for each row alone, and both must agree.

    operands as facts -> lengths and contents drawn within them -> verdict -> fills, clamps and forms -> padded run
    (I1) every valid entry of a row equals the run of the row alone;  (I2) sizes are what the layouts say;
    (I3) every region holds what the output's fact claims;  pointwise verdicts commute with any order of the slots

`check_node` raises `Unsound` with the drawn figures; a refusal of the rule goes through.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import onnxruntime

from compiler import ir as house
from compiler.analysis.case import Case
from compiler.analysis.facts import NUMBER, VALID, Clamp, Fact, Fill, Index, Region, Rewrite, Verdict, make_fact
from compiler.analysis.interval import ACTIVATION, ANYTHING, ASSUMED, TRUTH, Interval, hull, of_array
from compiler.analysis.judge import judge
from compiler.analysis.layout import Axis, Factor, Frames, Plain, Rows, Segment, Side, size_of, symbols_of
from compiler.evaluate import open_session
from compiler.ir import Dim, Inserter
from compiler.padding.arithmetic import Arithmetic
from compiler.padding.forms import FORMS
from compiler.padding.places import Length, Places
from compiler.padding.site import Site
from compiler.stages import Array

BATCH = "batch"
ANCHOR = "anchor"
"""Graph input [batch, one axis per length], of whose shape numbers are computed."""

Lengths: TypeAlias = Mapping[str, int]
"""A length per axis name; the batch is one of them."""


class Unsound(AssertionError):
    """A verdict that does not hold: which invariant, of which node, with the figures drawn."""


@dataclasses.dataclass(frozen=True)
class Operand:
    """One input of the node under attack.

    Attributes:
        shape: sizes; texts such as "batch", "time" or "2*time - 1" are expressions over axis names.
        dtype: element type.
        valid: what valid entries may be; by default anything of an integer type, finite numbers of others.
        padding: what padded entries may be: one interval for all regions, or one per region.
        axes: layouts where they are not one factor per axis; by position.
        index: the value counts positions; `valid` and `padding` have to agree.
        array: the content of an initializer; `shape`, `dtype` and `valid` follow from it.
        number: an expression over axis names: a scalar of `dtype` computed of it.
    """

    shape: tuple[int | str, ...] = ()
    dtype: ir.DataType = ir.DataType.FLOAT
    valid: Interval | None = None
    padding: Interval | Mapping[Region, Interval] = ANYTHING
    axes: Mapping[int, Axis] | None = None
    index: Index | None = None
    array: Array | None = None
    number: str | None = None


def constant(content: Any, dtype: Any = np.float32) -> Operand:
    """An initializer."""
    array = np.asarray(content, dtype)
    return Operand(array.shape, ir.DataType.from_numpy(array.dtype), array=array)


def number(expression: str, dtype: ir.DataType = ir.DataType.INT64) -> Operand:
    """A scalar computed from axis lengths."""
    return Operand((), dtype, number=expression)


@dataclasses.dataclass(frozen=True)
class Node:
    """The node under attack.

    Attributes:
        op: operator.
        operands: one per input, None for an absent optional one.
        attributes: plain values.
        outputs: how many.
        domain: of the operator.
        opset: of the operator's domain.
        right: names of right-aligned axes.
        least: smallest true length per axis name where it is not 1.
        most: largest number of slots per axis name where it is not 6.
    """

    op: str
    operands: Sequence[Operand | None]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    opset: int = 20
    right: Iterable[str] = ()
    least: Mapping[str, int] = dataclasses.field(default_factory=dict)
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)


def check_node(
    node: Node,
    *,
    rule: Callable[[Case], Verdict] = judge,
    trials: int = 6,
    seed: int = 0,
    tolerance: float = 1e-5,
    extremes: bool = False,
) -> Verdict:
    """Attack the verdict on one node with random lengths and contents.

    Args:
        node: the node and what its operands are.
        rule: the rule; by default the registry's.
        trials: batches drawn.
        seed: of the draws.
        tolerance: largest accepted difference of valid entries, relative to the largest entry of the output.
        extremes: draw valid entries from the ends of their interval, too; for operators that do not sum.

    Returns:
        The verdict, for what a test expects of it.

    Raises:
        Unsound: an invariant is broken.
        Refused: by the rule.
    """
    attack = _Attack(node, rule)
    rng = np.random.default_rng(seed)
    for trial in range(trials):
        attack.run(rng, trial, tolerance, extremes)
    return attack.verdict


# --- layouts in figures -----------------------------------------------------------------------------------------------


def _evaluated(size: Dim, lengths: Lengths) -> int:
    if isinstance(size, int):
        return size
    value = size.subs({house.symbol(name): length for name, length in lengths.items()})
    if not value.is_Integer:
        raise Unsound(f"(I2) the size {size} is {value} at {dict(lengths)}")
    return int(value)


@dataclasses.dataclass(frozen=True)
class _Batch:
    """Drawn figures: slots per axis name, batch included, and the true lengths of every row."""

    slots: Lengths
    rows: Sequence[Lengths]

    def __str__(self) -> str:
        return f"slots {dict(self.slots)}, rows {[dict(row) for row in self.rows]}"


def _marks(factor: Factor, batch: _Batch, row: int) -> np.ndarray:
    """Of every slot of a factor: 1 where it is a valid entry of the row, 2 where it is its padding, 0 of other rows."""
    if isinstance(factor, Rows):
        marks = np.zeros(_evaluated(factor.size, batch.slots), np.int64)
        marks[row] = 1
        return marks
    if isinstance(factor, Plain):
        return np.ones(_evaluated(factor.size, batch.slots), np.int64)
    parts = []
    for segment in factor.segments:
        slots, count = (_evaluated(segment.size, lengths) for lengths in (batch.slots, batch.rows[row]))
        if not 0 <= count <= slots:
            raise Unsound(f"(I2) a segment of {segment.size} has {count} entries in {slots} slots; {batch}")
        marks = np.full(slots, 2, np.int64)
        marks[: count if segment.side is Side.LEFT else None] = 1
        if segment.side is Side.RIGHT:
            marks[: slots - count] = 2
        parts.append(marks)
    return np.concatenate(parts)


def _axis_marks(axis: Axis | None, slots: int, batch: _Batch, row: int) -> np.ndarray:
    """Marks of the slots of an axis; of a merged axis a slot is padding when any of its factors is."""
    if axis is None:
        return np.ones(slots, np.int64)
    merged = np.ones(1, np.int64)
    for factor in axis:
        marks = _marks(factor, batch, row)
        both = np.maximum(merged[:, None], marks[None, :]) * ((merged[:, None] * marks[None, :]) > 0)
        merged = both.reshape(-1)
    return merged


def _places(fact: Fact, shape: Sequence[int], batch: _Batch, row: int, region: Region) -> tuple[np.ndarray, ...]:
    """Index of the entries of one row in one region, for `array[places]`."""
    wanted = [
        np.flatnonzero(_axis_marks(fact.axis(at), slots, batch, row) == (2 if at in region else 1))
        for at, slots in enumerate(shape)
    ]
    return np.ix_(*wanted)


# --- contents ---------------------------------------------------------------------------------------------------------


def _clipped_to(dtype: ir.DataType, content: Interval) -> Interval:
    """An interval without what a type cannot hold."""
    if dtype == ir.DataType.BOOL:
        limits = TRUTH
    elif dtype.is_integer():
        info = np.iinfo(dtype.numpy())
        limits = Interval(float(info.min), float(info.max))
    else:
        return content
    return Interval(max(content.low, limits.low), min(content.high, limits.high))


def _drawn(
    low: np.ndarray, high: np.ndarray, nan: np.ndarray, dtype: ir.DataType, rng: np.random.Generator, extremes: bool
) -> np.ndarray:
    """Entries within bounds given per place: moderate ones, and with `extremes` the ends, infinities and NaN."""
    normal = rng.standard_normal(low.shape) * rng.choice([0.5, 2.0, 30.0])
    with np.errstate(invalid="ignore"):
        between = (low + high) / 2
    middle = np.clip(np.where(np.isfinite(between), between, 0.0), low, high)
    choices = [np.clip(normal, low, high), np.clip(np.round(normal), low, high), np.clip(middle + normal, low, high)]
    if extremes:
        choices += [low, high, np.clip(0.0, low, high), np.clip(1e30 * normal, low, high), np.where(nan, np.nan, low)]
    picked = rng.integers(0, len(choices), low.shape)
    drawn = np.choose(picked, choices)
    kind = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return np.asarray(drawn > 0.5)
    if not dtype.is_integer():
        with np.errstate(over="ignore"):
            return np.asarray(drawn).astype(kind)
    whole = np.clip(np.round(drawn), np.ceil(low), np.floor(high))
    info = np.iinfo(kind)
    top = whole >= float(info.max)  # 2^63 - 1 is no float
    return np.where(top, info.max, np.where(top, 0, whole).astype(kind)).astype(kind)


# --- the attack -------------------------------------------------------------------------------------------------------


class _Attack:
    def __init__(self, node: Node, rule: Callable[[Case], Verdict]) -> None:
        self.node = node
        self.names = self._axis_names()
        self.sides = {name: Side.RIGHT if name in node.right else Side.LEFT for name in self.names}
        self.alone = self._model()
        house.infer_shapes(self.alone)
        self.padded = house.clone(self.alone)
        target = next(each for each in self.padded.graph if each.name == "target")
        self.facts = [None if each is None else self._fact(each) for each in node.operands]
        self.assumes = all(fact is None or fact.valid.is_finite for fact in self.facts)
        case = Case(target, self.facts, BATCH, self.sides, self._seen())
        self.sizes = [house.dims_of(value) for value in target.outputs]
        self.verdict = rule(case)
        self.case = case
        assert len(self.verdict.outputs) == len(target.outputs), "one fact per output"
        self._write_forms(target)
        self.sessions = [_session(model, self._fed()) for model in (self.padded, self.alone)]

    # the graph

    def _axis_names(self) -> list[str]:
        dims = [dim for operand in self.node.operands if operand for dim in (*operand.shape, operand.number or 1)]
        names = {str(name) for dim in dims for name in symbols_of(_dim(dim))}
        for operand in self.node.operands:
            for axis in (operand.axes or {}).values() if operand else ():
                names |= {str(name) for factor in axis for name in symbols_of(factor.size)}
        return sorted(names - {BATCH})

    def _model(self) -> ir.Model:
        node = self.node
        anchor = ir.val(ANCHOR, ir.DataType.FLOAT, [BATCH, *self.names])
        opsets = {"": node.opset, **({node.domain: node.opset} if node.domain else {})}
        if node.domain:
            opsets[""] = 20
        graph = ir.Graph([anchor], [], nodes=[], opset_imports=opsets, name="attack")
        model = ir.Model(graph, ir_version=10)
        lengths = [ir.val(f"{name}_length", ir.DataType.INT64, [BATCH]) for name in self.names]
        graph.inputs.extend(lengths)
        values = [self._value(model, at, operand) for at, operand in enumerate(node.operands)]
        outputs = [ir.Value(name=f"y{at}") for at in range(node.outputs)]
        attributes = [ir.convenience.convert_attribute(name, value) for name, value in node.attributes.items()]
        target = ir.Node(node.domain, node.op, values, attributes, outputs=outputs, name="target")
        graph.append(target)
        graph.outputs.extend(outputs)
        return model

    def _value(self, model: ir.Model, at: int, operand: Operand | None) -> ir.Value | None:
        if operand is None:
            return None
        if operand.array is not None:
            value = ir.Value(name=f"x{at}", const_value=ir.tensor(operand.array, name=f"x{at}"))
            value.shape, value.dtype = ir.Shape(operand.array.shape), operand.dtype
            model.graph.register_initializer(value)
            return value
        if operand.number is not None:
            return self._number(model, operand)
        shape = ir.Shape([dim if isinstance(dim, int) else str(_dim(dim)) for dim in operand.shape])
        value = ir.val(f"x{at}", operand.dtype, shape)
        model.graph.inputs.append(value)
        return value

    def _number(self, model: ir.Model, operand: Operand) -> ir.Value:
        insert = Inserter(model, "kit")
        anchor = model.graph.inputs[0]
        scalars = {}
        for at, name in enumerate([BATCH, *self.names]):
            size = insert.op("Shape", [anchor], {"start": at, "end": at + 1}, name=name, dtype=ir.DataType.INT64)
            scalars[name] = insert.op("Squeeze", [size, insert.int64s(0)], name=name, dtype=ir.DataType.INT64)
        value = Arithmetic(insert, scalars).value(_dim(operand.number or ""))
        if operand.dtype == ir.DataType.INT64:
            return value
        return insert.op("Cast", [value], {"to": operand.dtype}, name="number", dtype=operand.dtype)

    # facts

    def _fact(self, operand: Operand) -> Fact:
        if operand.number is not None:
            return NUMBER
        if operand.array is not None:
            return Fact(contents=((VALID, of_array(operand.array)),))
        axes = {at: axis for at, dim in enumerate(operand.shape) if (axis := self._layout(_dim(dim))) is not None}
        axes = {**axes, **(operand.axes or {})}
        if operand.valid is None:
            valid = ANYTHING if operand.dtype.is_integer() or operand.dtype == ir.DataType.BOOL else ACTIVATION
        else:
            valid = operand.valid

        def content(region: Region) -> Interval:
            if not region:
                return _clipped_to(operand.dtype, valid)
            given = operand.padding
            return _clipped_to(operand.dtype, given if isinstance(given, Interval) else given.get(region, ANYTHING))

        return make_fact(axes, content, operand.index)

    def _layout(self, size: Dim) -> Axis | None:
        names = {str(name) for name in symbols_of(size)}
        if not names:
            return None
        if BATCH in names:
            rows = house.symbol(BATCH)
            times = size / rows
            return (Rows(rows),) if times == 1 else (Rows(rows), Plain(int(times)))
        return (Frames((Segment(size, self.sides[names.pop()]),)),)

    def _seen(self) -> dict[Dim, Axis]:
        axes = [axis for fact in self.facts if fact is not None for _, axis in fact.axes]
        return {
            axis[0].size: axis
            for axis in axes
            if len(axis) == 1 and isinstance(axis[0], Frames) and len(axis[0].segments) > 1
        }

    # needs

    def _write_forms(self, target: ir.Node) -> None:
        for need in self.verdict.needs:
            if isinstance(need, Rewrite):
                by_name = {str(value.name): value for value in self.padded.graph.inputs}
                lengths = [Length(name, by_name[f"{name}_length"]) for name in self.names]
                places = Places(self.padded, lengths, BATCH, "kit")
                insert = Inserter(self.padded, "kit", before=target)
                facts = self.case.facts
                FORMS[need.kind](Site(self.padded, target, need.details, facts, self.verdict.outputs, places, insert))

    def _fed(self) -> list[str]:
        fed = [
            f"x{at}" for at, each in enumerate(self.node.operands) if each and each.array is None and not each.number
        ]
        return [ANCHOR, *(f"{name}_length" for name in self.names), *fed]

    # one trial

    def run(self, rng: np.random.Generator, trial: int, tolerance: float, extremes: bool) -> None:
        batch, arrays = self._batch_and_arrays(rng, trial, extremes)
        filled, facts = self._filled(arrays, batch)
        lengths = {f"{name}_length": np.array([row[name] for row in batch.rows], np.int64) for name in self.names}
        anchor = np.zeros([batch.slots[name] for name in (BATCH, *self.names)], np.float32)
        padded = self._outputs(0, {ANCHOR: anchor, **lengths, **filled}, batch)
        self._check_sizes(padded, batch)
        for row in range(len(batch.rows)):
            alone = self._alone_feeds(arrays, batch, row)
            expected = self._outputs(1, alone, batch)
            for output, (got, wanted) in enumerate(zip(padded, expected, strict=True)):
                self._check_row(output, got, wanted, batch, row, tolerance)
        if self.verdict.pointwise and not any(isinstance(need, Rewrite) for need in self.verdict.needs):
            self._check_pointwise(filled, facts, padded, anchor, lengths, batch, rng)

    def _batch_and_arrays(
        self, rng: np.random.Generator, trial: int, extremes: bool
    ) -> tuple[_Batch, dict[str, Array]]:
        for attempt in itertools.count():
            batch = self._batch(rng, alike=trial % 4 == 3 or attempt > 20)
            if batch is None:
                assert attempt < 400, f"no lengths give every size an entry: {self.node}"
                continue
            arrays = self._arrays(batch, rng, extremes)
            if arrays is not None:
                return batch, arrays
            assert attempt < 400, "the operands that all rows share contradict themselves"
        raise AssertionError

    def _batch(self, rng: np.random.Generator, alike: bool) -> _Batch | None:
        count = int(rng.integers(1, 4))
        slots = {BATCH: count}
        least = {name: self.node.least.get(name, 1) for name in self.names}
        for name in self.names:
            slots[name] = int(rng.integers(least[name], max(self.node.most.get(name, 6), least[name]) + 1))
        rows = []
        for _ in range(count):
            lengths = {name: int(rng.integers(least[name], slots[name] + 1)) for name in self.names}
            rows.append({BATCH: 1, **(rows[0] if alike and rows else lengths)})
        for lengths in (slots, *rows):
            sizes = list(self.verdict.at_least_one)
            if any(_evaluated(size, lengths) < 1 for size in sizes):
                return None
            dims = [_dim(dim) for operand in self.node.operands if operand for dim in operand.shape]
            if any(_evaluated(dim, lengths) < 0 for dim in dims):
                return None
        return _Batch(slots, rows)

    def _arrays(self, batch: _Batch, rng: np.random.Generator, extremes: bool) -> dict[str, Array] | None:
        """One array per operand; None when an operand that rows share cannot suit them all."""
        arrays = {}
        for at, (operand, fact) in enumerate(zip(self.node.operands, self.facts, strict=True)):
            if operand is None or fact is None or operand.array is not None or operand.number is not None:
                continue
            shape = [_evaluated(_dim(dim), batch.slots) for dim in operand.shape]
            if operand.index is not None:
                arrays[f"x{at}"] = _positions(operand, fact, shape, batch)
                continue
            drawn = _contents(fact, operand.dtype, shape, batch, rng, extremes)
            if drawn is None:
                return None
            arrays[f"x{at}"] = drawn
        return arrays

    def _filled(self, arrays: Mapping[str, Array], batch: _Batch) -> tuple[dict[str, Array], list[Fact | None]]:
        """The operands after fills and clamps, and their facts with the axes that fills added."""
        filled = {name: array.copy() for name, array in arrays.items()}
        facts = list(self.facts)
        for need in self.verdict.needs:
            if not isinstance(need, Fill | Clamp):
                continue
            name, fact = f"x{need.operand}", facts[need.operand]
            assert fact is not None and name in filled, "constants have no padding"
            if isinstance(need, Clamp):
                filled[name] = np.clip(filled[name], need.low, need.high).astype(filled[name].dtype)
                continue
            if fact.rows_axis is None and len(batch.rows) > 0:
                assert filled[name].shape[0] == 1, "a mask per row needs a place for the batch"
                filled[name] = np.repeat(filled[name], len(batch.rows), axis=0)
                rows: Axis = (Rows(house.symbol(BATCH)),)
                fact = make_fact({**fact.tracked, 0: rows}, fact.content)
                facts[need.operand] = fact
            for row, region in itertools.product(range(len(batch.rows)), fact.regions):
                if need.axis in region:
                    filled[name][_places(fact, filled[name].shape, batch, row, region)] = need.value
        return filled, facts

    def _alone_feeds(self, arrays: Mapping[str, Array], batch: _Batch, row: int) -> dict[str, Array]:
        """What the unpadded program is fed for one row: the valid entries."""
        feeds: dict[str, Array] = {
            ANCHOR: np.zeros([batch.rows[row][name] for name in (BATCH, *self.names)], np.float32)
        }
        for name in self.names:
            feeds[f"{name}_length"] = np.array([batch.rows[row][name]], np.int64)
        for name, array in arrays.items():
            fact = self.facts[int(name[1:])]
            assert fact is not None
            feeds[name] = array[_places(fact, array.shape, batch, row, VALID)]
        return feeds

    def _outputs(self, which: int, feeds: Mapping[str, Array], batch: _Batch) -> list[Array]:
        session = self.sessions[which]
        wanted = {each.name for each in session.get_inputs()}
        try:
            fed = {name: array for name, array in feeds.items() if name in wanted}
            return [np.asarray(each) for each in session.run([f"y{at}" for at in range(self.node.outputs)], fed)]
        except Exception as error:
            raise Unsound(f"{self.node.op} {'alone' if which else 'padded'} does not run; {batch}: {error}") from error

    # the invariants

    def _check_sizes(self, outputs: Sequence[Array], batch: _Batch) -> None:
        for at, (array, fact) in enumerate(zip(outputs, self.verdict.outputs, strict=True)):
            for axis, layout in fact.axes:
                if not axis < array.ndim or _evaluated(size_of(layout), batch.slots) != array.shape[axis]:
                    raise Unsound(f"(I2) output {at} has shape {array.shape}, not {fact}; {batch}")

    def _check_row(self, at: int, got: Array, wanted: Array, batch: _Batch, row: int, tolerance: float) -> None:
        fact = self.verdict.outputs[at]
        if fact.is_number:
            return  # differs as data: what reads it knows
        valid = got[_places(fact, got.shape, batch, row, VALID)]
        where = f"output {at} of {self.node.op} {dict(self.node.attributes)}, row {row}; {batch}\n{self._story()}"
        if valid.shape != wanted.shape:
            raise Unsound(f"(I2) {wanted.shape} alone, {valid.shape} valid in {got.shape}: {where}")
        if not _agree(valid, wanted, tolerance):
            raise Unsound(f"(I1) expected\n{wanted}\ngot\n{valid}\nin {where}")
        for region in fact.regions:
            content = fact.content(region)
            entries = got[_places(fact, got.shape, batch, row, region)]
            if not region and self.assumes:  # draws that break the assumption show nothing
                entries = entries[np.isfinite(entries) & (np.abs(entries.astype(np.float64)) <= ASSUMED)]
            outside = _outside(entries, content)
            if outside is not None:
                raise Unsound(f"(I3) region {sorted(region)} holds {outside!r}, not {content}: {where}")

    def _story(self) -> str:
        given = [str(fact) for fact in self.facts]
        verdict = self.verdict
        return (
            f"operands {given}, rule {verdict.rule}, needs {verdict.needs}, outputs {list(map(str, verdict.outputs))}"
        )

    def _check_pointwise(
        self, filled: Mapping[str, Array], facts: Sequence[Fact | None], outputs: Sequence[Array], anchor: Array,
        lengths: Mapping[str, Array], batch: _Batch, rng: np.random.Generator,
    ) -> None:  # fmt: skip
        """Any order of the slots of a layout, in all operands at once, comes out as that order."""
        layouts = {axis for fact in facts if fact is not None for _, axis in fact.axes}
        if any(axis not in layouts for fact in self.verdict.outputs for _, axis in fact.axes):
            return  # merged or split: slots have other neighbours
        orders = {axis: rng.permutation(_evaluated(size_of(axis), batch.slots)) for axis in layouts}
        turned = {name: _turned(array, facts[int(name[1:])], orders) for name, array in filled.items()}
        again = self._outputs(0, {ANCHOR: anchor, **lengths, **turned}, batch)
        for at, (array, before) in enumerate(zip(again, outputs, strict=True)):
            if not _agree(array, _turned(before, self.verdict.outputs[at], orders), 1e-5):
                raise Unsound(f"output {at} of {self.node.op} is not pointwise; {batch}\n{self._story()}")


def _turned(array: Array, fact: Fact | None, orders: Mapping[Axis, np.ndarray]) -> Array:
    for at, axis in fact.axes if fact is not None else ():
        array = np.take(array, orders[axis], axis=at) if array.shape[at] == len(orders[axis]) else array
    return array


def _dim(dim: int | str) -> Dim:
    return dim if isinstance(dim, int) else house.expression(dim)


def _session(model: ir.Model, fed: Sequence[str]) -> onnxruntime.InferenceSession:
    """A session of a copy whose inputs may have any sizes."""
    plain = house.clone(model)
    house.forget_shapes(plain)
    for value in plain.graph.inputs:
        value.shape = ir.Shape([None] * len(value.shape or ()))
    for value in plain.graph.outputs:
        value.shape = None
    for value in [value for value in plain.graph.inputs if value.name not in fed]:
        plain.graph.inputs.remove(value)
    return open_session(house.serialized(plain))


def _contents(
    fact: Fact, dtype: ir.DataType, shape: Sequence[int], batch: _Batch, rng: np.random.Generator, extremes: bool
) -> Array | None:
    """Entries within the intervals of all regions of all rows; None when rows that share a value contradict."""
    low, high = np.full(shape, -math.inf), np.full(shape, math.inf)
    nan, valid = np.ones(shape, np.bool_), np.zeros(shape, np.bool_)
    for row, region in itertools.product(range(len(batch.rows)), fact.regions):
        places = _places(fact, shape, batch, row, region)
        content = fact.content(region)
        low[places] = np.maximum(low[places], content.low)
        high[places] = np.minimum(high[places], content.high)
        nan[places] &= content.nan
        valid[places] |= not region
    if np.any(low > high):
        return None
    calm = _drawn(low, high, nan, dtype, rng, extremes)
    wild = _drawn(low, high, nan, dtype, rng, True)
    return np.where(valid, calm, wild).astype(calm.dtype)


def _positions(operand: Operand, fact: Fact, shape: Sequence[int], batch: _Batch) -> Array:
    """Offset plus the number of valid entries before the slot; padded slots go on in the same steps."""
    assert operand.index is not None
    array = np.zeros(shape, operand.dtype.numpy())
    at = operand.index.axis
    layout = fact.axis(at)
    for row in range(len(batch.rows)):
        marks = _axis_marks(layout, shape[at], batch, row)
        offset = _evaluated(operand.index.offset, batch.rows[row])
        slots = np.arange(shape[at])
        counted = offset + slots - (marks[: int(np.argmax(marks == 1))] == 2).sum()
        line = counted.reshape([-1 if axis == at else 1 for axis in range(len(shape))])
        if fact.rows_axis is None:
            array[...] = line
            continue
        own = [slice(None)] * len(shape)
        own[fact.rows_axis] = slice(row, row + 1)
        array[tuple(own)] = line
    return array


def _agree(got: Array, wanted: Array, tolerance: float) -> bool:
    if got.dtype.kind not in "f":
        return bool(np.array_equal(got, wanted)) if got.dtype.kind in "biu" else got.tobytes() == wanted.tobytes()
    finite = np.isfinite(wanted)
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0.0)))
    return bool(np.allclose(got / scale, wanted / scale, rtol=0.0, atol=tolerance, equal_nan=True))


def _outside(entries: Array, content: Interval) -> float | None:
    """An entry that lies beyond an interval, rounding aside, or None."""
    if entries.size == 0:
        return None
    numbers = entries.astype(np.float64).reshape(-1)
    if np.isnan(numbers).any():
        if not content.nan:
            return math.nan
        numbers = numbers[~np.isnan(numbers)]
    ends = [abs(end) for end in (content.low, content.high) if math.isfinite(end)]
    room = 0.0 if content.is_zero else 1e-5 * max(ends, default=0.0)
    low = content.low - (room if content.low != 0.0 else 0.0)
    high = content.high + (room if content.high != 0.0 else 0.0)
    beyond = numbers[(numbers < low) | (numbers > high)]
    return float(beyond[0]) if beyond.size else None


# --- many nodes -------------------------------------------------------------------------------------------------------


def interval_of(rng: np.random.Generator) -> Interval:
    """A random content: constants, one-sided, bounded, huge and anything."""
    ends = sorted(float(x) for x in np.round(rng.standard_normal(2) * rng.choice([0.1, 2.0, 1e3, 1e20, 1e30]), 3))
    kinds: list[Callable[[], Interval]] = [
        lambda: ANYTHING, lambda: Interval(0.0, 0.0), lambda: Interval(1.0, 1.0), lambda: Interval(ends[0], ends[0]),
        lambda: Interval(*ends), lambda: Interval(0.0, abs(ends[1])), lambda: Interval(-math.inf, ends[1]),
        lambda: Interval(ends[0], math.inf), lambda: hull(Interval(*ends), Interval(0.0, 0.0)),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]()


def subsets(axes: Iterable[int]) -> Iterator[Region]:
    """Every region of padding over some axes."""
    listed = list(axes)
    for count in range(1, len(listed) + 1):
        yield from (frozenset(each) for each in itertools.combinations(listed, count))
