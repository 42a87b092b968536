"""Defines the case that a rule judges: a node, its operands' facts, shapes and constants, and the rule's needs."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph.model import Dim, array_of, attribute, dims_of, int_attribute, integers_of, ints_attribute, symbol
from compiler.graph.operators.axes import axis_of, axis_operand
from compiler.proof.facts.facts import (
    Assumption,
    Clamp,
    Fact,
    Fill,
    Index,
    Need,
    Region,
    Rewrite,
    Verdict,
    make_fact,
    refuse,
)
from compiler.proof.facts.interval import Interval, hull
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, has_rows, size_of, symbols_of

NEWEST_OPSET = 23


class Case:
    """One node under judgement.

    Args:
        node: the node.
        facts: one fact per input, in order; None for an absent optional input.
        batch: the axis name of the batch, or None.
        sides: which end of each padded axis, by name, holds the valid entries.
        seen: layouts with several or right-aligned segments met so far, by size; for positions counted by length.
        fed: values computed from the callers' feeds; needed without a batch axis, where no axis marks them.
    """

    def __init__(
        self,
        node: ir.Node,
        facts: Sequence[Fact | None],
        batch: str | None,
        sides: Mapping[str, Side],
        seen: Mapping[Dim, Axis] | None = None,
        fed: Collection[ir.Value] = (),
    ) -> None:
        self.node = node
        self.facts = list(facts)
        self.batch = batch
        self.sides = sides
        self.seen = seen or {}
        self.fed = fed
        self.needs: list[Need] = []

    @property
    def op(self) -> str:
        """Return the operator's name."""
        return self.node.op_type

    def has(self, operand: int) -> bool:
        """Whether an optional input is given."""
        return operand < len(self.facts) and self.facts[operand] is not None

    @property
    def present(self) -> list[int]:
        """Return the indices of the inputs that are given."""
        return [index for index in range(len(self.facts)) if self.has(index)]

    def fact(self, operand: int = 0) -> Fact:
        """Return the fact of an input, with the fills stated before."""
        fact = self.facts[operand] if operand < len(self.facts) else None
        assert fact is not None
        return fact

    def is_of_rows(self, operand: int) -> bool:
        """Whether an input has an entry per row; without a batch axis, whether it is fed data."""
        fact = self.fact(operand)
        is_fed = self.batch is None and not fact.is_number and self.node.inputs[operand] in self.fed
        return is_fed or fact.rows_axis is not None

    def dims(self, operand: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an input.

        Raises:
            Refused: its rank is unknown.
        """
        return self._dims(self.node.inputs[operand] if operand < len(self.node.inputs) else None)

    def out_dims(self, output: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an output.

        Raises:
            Refused: its rank is unknown.
        """
        return self._dims(self.node.outputs[output])

    def _dims(self, value: ir.Value | None) -> tuple[Dim, ...]:
        dims = None if value is None else dims_of(value)
        if dims is None:
            raise refuse(
                f"the rank of {value.name if value is not None else 'an absent input'!r} is unknown",
                "reshape the value to a fixed number of axes in front of it",
            )
        return dims

    def rank(self, operand: int = 0) -> int:
        """Return the number of axes of an input."""
        return len(self.dims(operand))

    def axis(self) -> int:
        """Return the axis that the node works along, counted from the front.

        Raises:
            Refused: the rank of its first input is unknown, or the axis is computed.
        """
        operand = axis_operand(self.node)
        named = None if operand is None else self.constants(self.node.inputs.index(operand), "axis")[0]
        return axis_of(self.node, self.rank(), named)

    def attribute(self, name: str, default: object = None) -> object:
        """Return an attribute's plain value."""
        return attribute(self.node, name, default)

    def int_attribute(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return int_attribute(self.node, name, default)

    def ints_attribute(self, name: str) -> tuple[int, ...]:
        """Return an integer-list attribute; empty when absent."""
        return ints_attribute(self.node, name)

    def array(self, operand: int) -> np.ndarray | None:
        """Return the content of a constant input, else None."""
        return array_of(self.node.inputs[operand]) if operand < len(self.node.inputs) else None

    def integers(self, operand: int) -> tuple[Dim, ...] | None:
        """Return the elements of a small integer input: constants or expressions over axis names; else None."""
        return integers_of(self.node.inputs[operand]) if self.has(operand) else None

    def known(self, output: int) -> tuple[Dim, ...] | None:
        """Return the elements of a small integer output that shape inference knows; None if unknown."""
        return integers_of(self.node.outputs[output])

    @property
    def opset(self) -> int:
        """The opset of the node's domain in its graph; the newest when it stands alone."""
        if self.node.version is not None:
            return self.node.version
        imports = {} if self.node.graph is None else self.node.graph.opset_imports
        return imports.get(self.node.domain, 1 if self.node.domain else NEWEST_OPSET)

    def constants(self, operand: int, what: str) -> tuple[int, ...]:
        """Return the elements of a constant integer input.

        Raises:
            Refused: they are not constant.
        """
        found = self.integers(operand)
        numbers = tuple(number for number in found or () if isinstance(number, int))
        if found is None or len(numbers) != len(found):
            raise refuse(f"{self.op} with computed {what}", f"give {what} as constants")
        return numbers

    def dtype(self, operand: int = 0) -> ir.DataType:
        """Return the element type of an input.

        Raises:
            Refused: it is unknown.
        """
        value = self.node.inputs[operand]
        if value is None or value.dtype is None:
            raise refuse(f"the type of {self.op}'s input {operand} is unknown", "export the model with known types")
        return value.dtype

    @property
    def tracked(self) -> bool:
        """Whether any input has a tracked axis or is a number."""
        return any(fact is not None and not fact.is_plain for fact in self.facts)

    def lowest(self, operand: int = 0) -> float:
        """Return the smallest finite number of an input's type."""
        return _extreme(self.dtype(operand), -1)

    def highest(self, operand: int = 0) -> float:
        """Return the largest finite number of an input's type."""
        return _extreme(self.dtype(operand), 1)

    def depends(self, size: Dim) -> bool:
        """Whether a size depends on the batch or on a padded axis."""
        return any(str(name) == self.batch or str(name) in self.sides for name in symbols_of(size))

    def layout(self, size: Dim) -> Axis | None:
        """Return the layout of an axis that the node creates with a computed size; None for a fixed size.

        Raises:
            Refused: the size mixes the batch with lengths, or lengths of different sides.
        """
        names = {str(name) for name in symbols_of(size)}
        padded = names & set(self.sides)
        if self.batch in names:
            rows = symbol(str(self.batch))
            times = size / rows
            if names == {self.batch} and not isinstance(times, int) and times.is_Integer and times > 0:
                return (Rows(rows),) if times == 1 else (Rows(rows), Plain(int(times)))
            raise refuse(f"{self.op} makes an axis of {size} entries", "keep the batch an axis of its own")
        if not padded:
            return None
        if size in self.seen:
            return self.seen[size]
        sides = {self.sides[name] for name in padded}
        if len(sides) > 1:
            raise refuse(
                f"{self.op} makes an axis of {size} entries, of differently aligned axes",
                "give the axes of which it is computed one side: pad all of them behind, or none",
            )
        return (Frames((Segment(size, sides.pop()),)),)

    def fill(self, operand: int, axis: int, value: float) -> Fact:
        """Require that the padding of one axis of an operand holds `value`; does nothing where it already does.

        Returns:
            The operand's fact afterwards.

        Raises:
            Refused: rows have lengths of their own, and the shared operand has no axis for the batch.
        """
        fact = self.fact(operand)
        padding = fact.padding(axis)
        if padding.is_constant and padding.low == value:
            return fact
        filled = fact.filled(axis, value)
        if fact.rows_axis is None and self.batch is not None:
            filled = self._with_rows(filled, operand)
        self.facts[operand] = filled
        self.needs.append(Fill(operand, axis, value))
        return filled

    def clamp(self, operand: int, low: int, high: int) -> Fact:
        """Require that an operand of indices stays within bounds wherever it is padding; does nothing where it does.

        Returns:
            The operand's fact afterwards.
        """
        fact = self.fact(operand)
        bounds = Interval(low, high)
        if all(low <= fact.content(r).low and fact.content(r).high <= high for r in fact.regions if r):
            return fact
        contents = tuple((r, bounds if r else fact.valid) for r in fact.regions)
        clamped = dataclasses.replace(fact, contents=contents)
        self.facts[operand] = clamped
        self.needs.append(Clamp(operand, low, high))
        return clamped

    def _with_rows(self, fact: Fact, operand: int) -> Fact:
        dims = self.dims(operand)
        if not dims or dims[0] != 1 or fact.axis(0) is not None:
            raise refuse(
                f"{self.op} needs a mask on a value of shape {[str(d) for d in dims]} that all rows share",
                "give the value a leading axis of size 1, or the batch axis",
            )
        assert self.batch is not None
        rows: Axis = (Rows(symbol(self.batch)),)
        return make_fact({**fact.tracked, 0: rows}, fact.content)

    def rewrite(self, kind: str, *details: object) -> None:
        """Require that the node is rewritten in another form."""
        self.needs.append(Rewrite(kind, details))

    def verdict(
        self,
        rule: str,
        reason: str,
        *outputs: Fact,
        pointwise: bool = False,
        at_least_one: Iterable[Dim] = (),
        assumes: Iterable[Assumption] = (),
    ) -> Verdict:
        """Return the verdict with the needs stated before; a single fact stands for every output."""
        facts = outputs if len(outputs) == len(self.node.outputs) else outputs[:1] * len(self.node.outputs)
        assumed = tuple(
            assumption for assumption in assumes if assumption.is_needed(self.fact(assumption.operand).valid)
        )
        return Verdict(rule, facts, reason, tuple(self.needs), pointwise, tuple(at_least_one), assumed)

    def output(
        self, axes: Mapping[int, Axis], content: Callable[[Region], Interval], index: Index | None = None
    ) -> Fact:
        """Return the fact of an output."""
        return make_fact(axes, content, index)

    def moved(self, operand: int, positions: Mapping[int, int]) -> Fact:
        """Return the fact of an operand whose axes move to new positions; untracked axes need not be listed.

        Raises:
            Refused: a tracked axis has no new position.
        """
        fact = self.fact(operand)
        lost = [position for position, _ in fact.axes if position not in positions]
        if lost:
            raise refuse(
                f"{self.op} removes axis {lost[0]}, which is padded or holds the batch",
                "keep the axis, or reduce over it by a mean, sum or maximum first",
            )
        back = {new: old for old, new in positions.items()}
        index = fact.index
        if index is not None:
            index = Index(positions[index.axis], index.offset) if index.axis in positions else None
        return make_fact(
            {positions[position]: axis for position, axis in fact.axes},
            lambda region: fact.content(back[position] for position in region),
            index,
        )

    def refuse_rows(self, operand: int, axis: int, verb: str) -> None:
        """Refuse a node that acts along the axis of the batch.

        Raises:
            Refused: the axis holds the batch.
        """
        found = self.fact(operand).axis(axis)
        if found is not None and has_rows(found):
            raise refuse(
                f"{self.op} {verb} the batch axis: rows of one batch would mix",
                "act along other axes, or keep the batch apart from them",
            )

    def simple_frames(self, operand: int, axis: int) -> Frames | None:
        """Return the frames of an axis that the node acts along; None where it is not padded.

        Raises:
            Refused: the axis holds the batch, or was merged with another axis.
        """
        self.refuse_rows(operand, axis, "acts along")
        factors = self.fact(operand).axis(axis)
        if factors is None:
            return None
        if len(factors) > 1:
            raise refuse(
                f"{self.op} acts along axis {axis}, which a Reshape merged of {' * '.join(map(str, factors))}",
                "act on the axis before it is merged",
            )
        (factor,) = factors
        assert isinstance(factor, Frames)
        return factor

    def reduced_size(self, operand: int, axis: int) -> Dim | None:
        """Return the size of a padded axis, merged or not, that the node reduces; None where it is not padded.

        Raises:
            Refused: the axis holds the batch.
        """
        self.refuse_rows(operand, axis, "reduces over")
        found = self.fact(operand).axis(axis)
        return None if found is None else size_of(found)


def _extreme(dtype: ir.DataType, sign: int) -> float:
    kind = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return 0.0 if sign < 0 else 1.0
    if dtype.is_floating_point():
        return sign * float(np.finfo(kind).max) if kind.kind == "f" else sign * 3.0e38
    limits = np.iinfo(kind)
    return float(limits.min if sign < 0 else limits.max)


def broadcast(case: Case, operands: Sequence[int], out_rank: int) -> dict[int, Axis]:
    """Return the layouts of a broadcast output; an operand with one value everywhere takes the layout it meets.

    Raises:
        Refused: a tracked axis meets another layout, or a fixed number of entries other than 1.
    """
    axes: dict[int, Axis] = {}
    for operand in sorted(operands, key=lambda operand: case.fact(operand).anywhere.is_constant):
        shift, is_even = out_rank - case.rank(operand), case.fact(operand).anywhere.is_constant
        for position, axis in case.fact(operand).axes:
            known = axes.setdefault(position + shift, axis)
            if known != axis and not (is_even and size_of(known) == size_of(axis)):
                raise refuse(
                    f"{case.op} joins {' * '.join(map(str, known))} with {' * '.join(map(str, axis))}",
                    "pad and join both operands alike",
                )
    for operand in operands:
        dims = case.dims(operand)
        shift = out_rank - len(dims)
        for position, axis in axes.items():
            own_position = position - shift
            if own_position >= 0 and case.fact(operand).axis(own_position) is None and dims[own_position] != 1:
                value = case.node.inputs[operand]
                raise refuse(
                    f"{case.op} joins {' * '.join(map(str, axis))} with {value.name if value else ''!r}, which has "
                    f"{dims[own_position]} entries there",
                    "look the table up by the true length, or slice it to one entry",
                )
    return axes


def region_of(case: Case, operand: int, region: Region, out_rank: int) -> Region:
    """Return the region of a broadcast operand that is read for a region of the output."""
    shift = out_rank - case.rank(operand)
    padded = case.fact(operand).padded
    return frozenset(at - shift for at in region if at - shift in padded)


def read(case: Case, operand: int, region: Region, out_rank: int) -> Interval:
    """Return the interval of what a region of a broadcast output reads from one operand."""
    return case.fact(operand).content(region_of(case, operand, region, out_rank))


def everywhere(fact: Fact, region: Region, along: int) -> Interval:
    """Return the interval of all entries along an axis, valid and padded, in a region of the other axes."""
    others = frozenset(region) - {along}
    with_padding = [others | {along}] if along in fact.padded else []
    return hull(*(fact.content(each) for each in (others, *with_padding)))
