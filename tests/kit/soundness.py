"""Attacks one rule: a node runs padded on ONNX Runtime, and without padding for each row alone, and both must agree.

    operands as facts -> lengths and contents drawn within them -> verdict -> fills, clamps and forms -> padded run
    (I1) every valid entry of a row equals the run of the row alone;  (I2) sizes are what the layouts say;
    (I3) every region holds what the output's fact claims;  pointwise verdicts commute with any order of the slots and
    mix none of them

`check_node` raises `Unsound` with the drawn figures; a refusal of the rule goes through.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime

from compiler.graph import model as graphs
from compiler.graph.model import Dim, Inserter
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import VALID, Clamp, Fact, Fill, Rewrite, Verdict, make_fact
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Side, size_of, symbols_of
from compiler.proof.padding.lowerings import NODE_LOWERINGS
from compiler.proof.padding.lowerings.site import Site
from compiler.proof.padding.valid_slots import Length, ValidSlots
from compiler.proof.propagation.judge import judge
from tests.kit.attacked import ANCHOR, BATCH, axis_names, fact_of, model_of, size_at
from tests.kit.attacked import Node as Node
from tests.kit.attacked import Operand as Operand
from tests.kit.attacked import constant as constant
from tests.kit.attacked import number as number
from tests.kit.slots import Batch, Lengths, agree, contents_of, evaluated, outside, places_of, positions_of
from tests.kit.slots import Unsound as Unsound

NARROW = (ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.INT4, ir.DataType.UINT4)
"""Types that arrays do not have: outputs are compared as float32."""

ORDINARY = Interval(-1e6, 1e6)
"""Where a verdict assumes finite entries."""

POSITIONAL = (
    "entries", "from_end", "hold", "last_index", "legal_numbers", "look_up_again", "look_up_positions", "mirror",
    "move_together", "newest", "own_entries", "run_of_entries", "sequence_lens",
)  # fmt: skip
"""Forms that read entries by where they lie."""


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


# --- the attack -------------------------------------------------------------------------------------------------------


class _Attack:
    def __init__(self, node: Node, rule: Callable[[Case], Verdict]) -> None:
        self.node = node
        self.names = axis_names(node)
        self.sides = {name: Side.RIGHT if name in node.right else Side.LEFT for name in self.names}
        self.alone = model_of(node)
        graphs.infer_shapes(self.alone)
        self.padded = graphs.clone(self.alone)
        target = next(each for each in self.padded.graph if each.name == "target")
        self.facts = [None if each is None else fact_of(each, self.sides) for each in node.operands]
        case = Case(target, self.facts, BATCH, self.sides, self._seen())
        self.verdict = rule(case)
        self.case = case
        assert len(self.verdict.outputs) == len(self.padded.graph.outputs), "one fact per output"
        self._write_forms(target)
        self.sessions = [_session(model, self._fed()) for model in (self.padded, self.alone)]

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
                places = ValidSlots(self.padded, lengths, BATCH, "kit")
                insert = Inserter(self.padded, "kit", before=target)
                facts = self.case.facts
                NODE_LOWERINGS[need.kind](
                    Site(self.padded, target, need.details, facts, self.verdict.outputs, places, insert)
                )

    def _fed(self) -> list[str]:
        fed = [
            f"x{at}" for at, each in enumerate(self.node.operands) if each and each.array is None and not each.number
        ]
        return [ANCHOR, *(f"{name}_length" for name in self.names), *fed]

    # one trial

    def run(self, rng: np.random.Generator, trial: int, tolerance: float, extremes: bool) -> None:
        batch, arrays, expected = self._case(rng, trial, extremes)
        filled, facts = self._filled(arrays, batch)
        lengths = {f"{name}_length": np.array([row[name] for row in batch.rows], np.int64) for name in self.names}
        anchor = np.zeros([batch.slots[name] for name in (BATCH, *self.names)], np.float32)
        try:
            padded = self._outputs(0, {ANCHOR: anchor, **lengths, **filled})
        except RuntimeError as error:
            raise Unsound(f"{self.node.op} does not run padded; {batch}: {error}\n{self._story()}") from error
        self._check_sizes(padded, batch)
        for row, alone in enumerate(expected):
            for output, (got, wanted) in enumerate(zip(padded, alone, strict=True)):
                self._check_row(output, got, wanted, batch, row, tolerance)
        if self.verdict.pointwise:
            self._check_local(arrays, expected, batch, rng)
            if not any(isinstance(need, Rewrite) for need in self.verdict.needs):
                self._check_pointwise(filled, facts, padded, anchor, lengths, batch, rng)

    def _case(
        self, rng: np.random.Generator, trial: int, extremes: bool
    ) -> tuple[Batch, dict[str, Array], list[list[Array]]]:
        """Lengths and contents that every row alone can run on, and what it answers."""
        failed: Exception | None = None
        for attempt in range(400):
            batch = self._batch(rng, alike=trial % 4 == 3 or attempt > 20)
            arrays = None if batch is None else self._arrays(batch, rng, extremes)
            if batch is None or arrays is None:
                continue
            try:
                rows = range(len(batch.rows))
                return batch, arrays, [self._outputs(1, self._alone_feeds(arrays, batch, row)) for row in rows]
            except RuntimeError as error:
                failed = error
        raise AssertionError(f"no lengths and contents give {self.node} a meaning: {failed}")

    def _batch(self, rng: np.random.Generator, alike: bool) -> Batch | None:
        count = int(rng.integers(1, 4))
        slots = {BATCH: count}
        least = {name: self.node.least.get(name, 1) for name in self.names}
        for name in self.names:
            slots[name] = int(rng.integers(least[name], max(self.node.most.get(name, 6), least[name]) + 1))
        rows: list[Lengths] = []
        for _ in range(count):
            drawn = {name: int(rng.integers(least[name], slots[name] + 1)) for name in self.names}
            rows.append({BATCH: 1, **(rows[0] if alike and rows else drawn)})
        for lengths in (slots, *rows):
            sizes = list(self.verdict.at_least_one)
            if any(evaluated(size, lengths) < 1 for size in sizes):
                return None
            dims = [size_at(dim) for operand in self.node.operands if operand for dim in operand.shape]
            if any(evaluated(dim, lengths) < 0 for dim in dims):
                return None
        return Batch(slots, rows)

    def _arrays(self, batch: Batch, rng: np.random.Generator, extremes: bool) -> dict[str, Array] | None:
        """One array per operand; None when an operand that rows share cannot suit them all."""
        arrays = {}
        for at, (operand, fact) in enumerate(zip(self.node.operands, self.facts, strict=True)):
            if operand is None or fact is None or operand.array is not None or operand.number is not None:
                continue
            shape = [evaluated(size_at(dim), batch.slots) for dim in operand.shape]
            if operand.index is not None:
                drawn = positions_of(operand.index, fact, operand.dtype, shape, batch)
            else:
                drawn = contents_of(self._as_assumed(at, fact), operand.dtype, shape, batch, rng, extremes)
            if drawn is None:
                return None
            arrays[f"x{at}"] = drawn
        return arrays

    def _as_assumed(self, operand: int, fact: Fact) -> Fact:
        """An operand's fact with what the verdict takes for granted of valid entries."""
        for each in self.verdict.assumes:
            if each.operand == operand:
                valid = dataclasses.replace(fact.valid, nan=False) if each.what == "no NaN" else ORDINARY
                return dataclasses.replace(fact, contents=((VALID, valid), *fact.contents[1:]))
        return fact

    def _filled(self, arrays: Mapping[str, Array], batch: Batch) -> tuple[dict[str, Array], list[Fact | None]]:
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
                rows: Axis = (Rows(graphs.symbol(BATCH)),)
                fact = make_fact({**fact.tracked, 0: rows}, fact.content)
                facts[need.operand] = fact
            for row, region in itertools.product(range(len(batch.rows)), fact.regions):
                if need.axis in region:
                    filled[name][places_of(fact, filled[name].shape, batch, row, region)] = need.value
        return filled, facts

    def _alone_feeds(self, arrays: Mapping[str, Array], batch: Batch, row: int) -> dict[str, Array]:
        """What the unpadded program is fed for one row: the valid entries."""
        feeds: dict[str, Array] = {
            ANCHOR: np.zeros([batch.rows[row][name] for name in (BATCH, *self.names)], np.float32)
        }
        for name in self.names:
            feeds[f"{name}_length"] = np.array([batch.rows[row][name]], np.int64)
        for name, array in arrays.items():
            fact = self.facts[int(name[1:])]
            assert fact is not None
            feeds[name] = np.asarray(array[places_of(fact, array.shape, batch, row, VALID)])
        return feeds

    def _outputs(self, which: int, feeds: Mapping[str, Array]) -> list[Array]:
        session = self.sessions[which]
        wanted = {each.name for each in session.get_inputs()}
        fed = {name: array for name, array in feeds.items() if name in wanted}
        try:
            return [np.asarray(each) for each in session.run([f"y{at}" for at in range(self.node.outputs)], fed)]
        except Exception as error:  # ONNX Runtime's own classes have no common name
            raise RuntimeError(str(error)) from error

    # the invariants

    def _check_sizes(self, outputs: Sequence[Array], batch: Batch) -> None:
        for at, (array, fact) in enumerate(zip(outputs, self.verdict.outputs, strict=True)):
            for axis, layout in fact.axes:
                if not axis < array.ndim or evaluated(size_of(layout), batch.slots) != array.shape[axis]:
                    raise Unsound(f"(I2) output {at} has shape {array.shape}, not {fact}; {batch}")

    def _check_row(self, at: int, got: Array, wanted: Array, batch: Batch, row: int, tolerance: float) -> None:
        fact = self.verdict.outputs[at]
        if fact.is_number:
            return  # differs as data: what reads it knows
        valid = got[places_of(fact, got.shape, batch, row, VALID)]
        where = f"output {at} of {self.node.op} {dict(self.node.attributes)}, row {row}; {batch}\n{self._story()}"
        if valid.shape != wanted.shape:
            raise Unsound(f"(I2) {wanted.shape} alone, {valid.shape} valid in {got.shape}: {where}")
        if not agree(valid, wanted, tolerance):
            raise Unsound(f"(I1) expected\n{wanted}\ngot\n{valid}\nin {where}")
        self._check_positions(got, wanted, fact, batch, row, where)
        for region in fact.regions:
            content = fact.content(region)
            entries = got[places_of(fact, got.shape, batch, row, region)]
            beyond = outside(entries, content)
            if beyond is not None:
                raise Unsound(f"(I3) region {sorted(region)} holds {beyond!r}, not {content}: {where}")

    def _check_positions(self, got: Array, wanted: Array, fact: Fact, batch: Batch, row: int, where: str) -> None:
        """A value that counts positions holds them alone; in the batch at every slot, in the padding, too."""
        if fact.index is None:
            return
        dtype, alone = ir.DataType.from_numpy(got.dtype), Batch(batch.rows[row], [batch.rows[row]])
        counted = positions_of(fact.index, fact, dtype, wanted.shape, alone)
        if counted is None or not np.array_equal(wanted, counted):
            raise Unsound(f"(I3) positions alone are\n{counted}\nnot\n{wanted}\nin {where}")
        if symbols_of(fact.index.offset):
            return
        counted = positions_of(fact.index, fact, dtype, got.shape, batch)
        if counted is None or not np.array_equal(got, counted):
            raise Unsound(f"(I3) positions are\n{counted}\nnot\n{got}\nin {where}")

    def _story(self) -> str:
        given = [str(fact) for fact in self.facts]
        verdict = self.verdict
        return (
            f"operands {given}, rule {verdict.rule}, needs {verdict.needs}, outputs {list(map(str, verdict.outputs))}"
        )

    def _check_local(
        self, arrays: Mapping[str, Array], expected: Sequence[Sequence[Array]], batch: Batch, rng: np.random.Generator
    ) -> None:
        """Another content of one slot of a layout, in a row alone, changes that slot of the outputs and no other."""
        layouts = {axis for fact in self.facts if fact is not None for _, axis in fact.axes}
        if any(isinstance(need, Rewrite) and need.kind in POSITIONAL for need in self.verdict.needs):
            raise Unsound(f"{self.node.op} is rewritten by position, so it is not pointwise\n{self._story()}")
        if any(axis not in layouts for fact in self.verdict.outputs for _, axis in fact.axes):
            return  # merged or split: a slot stands in several places
        row = int(rng.integers(len(batch.rows)))
        feeds = self._alone_feeds(arrays, batch, row)
        for layout in sorted(layouts, key=str):
            count = evaluated(size_of(layout), batch.rows[row])
            if count < 2:
                continue
            slot, other = rng.choice(count, 2, replace=False)
            changed = {
                name: _with_slot(array, self.facts[int(name[1:])], layout, slot, other) if name in arrays else array
                for name, array in feeds.items()
            }
            try:
                again = self._outputs(1, changed)
            except RuntimeError:
                continue  # without a meaning, such as indices out of range
            for at, (got, before) in enumerate(zip(again, expected[row], strict=True)):
                fact = self.verdict.outputs[at]
                kept = _without_slot(got, fact, layout, slot), _without_slot(before, fact, layout, slot)
                if not agree(*kept, 1e-5):
                    raise Unsound(f"output {at} of {self.node.op} mixes slots of {layout[0]}; {batch}\n{self._story()}")

    def _check_pointwise(
        self, filled: Mapping[str, Array], facts: Sequence[Fact | None], outputs: Sequence[Array], anchor: Array,
        lengths: Mapping[str, Array], batch: Batch, rng: np.random.Generator,
    ) -> None:  # fmt: skip
        """Any order of the slots of a layout, in all operands at once, comes out as that order."""
        layouts = {axis for fact in facts if fact is not None for _, axis in fact.axes}
        factors = {factor for axis in layouts for factor in axis}
        made = {factor for fact in self.verdict.outputs for _, axis in fact.axes for factor in axis} - factors
        if any(not isinstance(factor, Plain) for factor in made):
            raise Unsound(f"output of {self.node.op} has slots of no operand, so it is not pointwise\n{self._story()}")
        if any(axis not in layouts for fact in self.verdict.outputs for _, axis in fact.axes):
            return  # merged or split: slots have other neighbours
        orders = {axis: rng.permutation(evaluated(size_of(axis), batch.slots)) for axis in layouts}
        turned = {name: _turned(array, facts[int(name[1:])], orders) for name, array in filled.items()}
        again = self._outputs(0, {ANCHOR: anchor, **lengths, **turned})
        for at, (array, before) in enumerate(zip(again, outputs, strict=True)):
            if not agree(array, _turned(before, self.verdict.outputs[at], orders), 1e-5):
                raise Unsound(f"output {at} of {self.node.op} is not pointwise; {batch}\n{self._story()}")


def _turned(array: Array, fact: Fact | None, orders: Mapping[Axis, np.ndarray]) -> Array:
    for at, axis in fact.axes if fact is not None else ():
        array = np.take(array, orders[axis], axis=at) if array.shape[at] == len(orders[axis]) else array
    return array


def _with_slot(array: Array, fact: Fact | None, layout: Axis, slot: int, other: int) -> Array:
    """One slot of every axis of a layout holds what another one holds."""
    for at, axis in fact.axes if fact is not None else ():
        if axis == layout:
            order = np.arange(array.shape[at])
            order[slot] = other
            array = np.take(array, order, axis=at)
    return array


def _without_slot(array: Array, fact: Fact, layout: Axis, slot: int) -> Array:
    for at, axis in fact.axes:
        if axis == layout:
            array = np.delete(array, slot, axis=at)
    return array


def _session(model: ir.Model, fed: Sequence[str]) -> onnxruntime.InferenceSession:
    """A session of a copy whose inputs may have any sizes."""
    plain = graphs.clone(model)
    graphs.forget_shapes(plain)
    for value in plain.graph.inputs:
        value.shape = ir.Shape([None] * len(value.shape or ()))
    for at, value in enumerate(list(plain.graph.outputs)):
        value.shape = None
        if value.dtype in NARROW:
            value.name, name = f"{value.name}_narrow", value.name
            to_float = {"to": ir.DataType.FLOAT}
            plain.graph.outputs[at] = Inserter(plain, "kit").op("Cast", [value], to_float, name=str(name))
            plain.graph.outputs[at].name, plain.graph.outputs[at].dtype = name, ir.DataType.FLOAT
    for value in [value for value in plain.graph.inputs if value.name not in fed]:
        plain.graph.inputs.remove(value)
    return open_session(graphs.serialized(plain))
