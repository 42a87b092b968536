"""Derives symbolically, for every number of frames, the source index of each entry that a chain of movements returns.

    scores [N, 2N-1] -> pad a column -> [N, 2N] -> [2N, N] -> drop a row -> [N, 2N-1] -> cut to [N, N]
    out[i, j] = scores[i, j - i + N - 1]

The chain is read backwards. An index of the result is counted through: a Reshape makes one number of it and divides
that by the sizes in front, f = q d + r, where 0 <= r < d has to hold for all indices and all N >= 1; where it does not,
the cases are followed separately. The compared expression is a sum of products of indices and sizes: its smallest value
on a box of indices lies at a corner, and there it is a polynomial of N - 1, which is never negative if no coefficient
is.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir
import sympy

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim, dims_of, is_op
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.slices import FAR, slice_of
from compiler.proof.facts.executed_index_map import pad_value, uniform

FRAMES, ROWS = sympy.symbols("frames rows", integer=True, positive=True)
"""The number of frames that all sizes are made of, and of rows."""

MOST_CASES = 64

Box: TypeAlias = tuple[tuple[sympy.Symbol, sympy.Expr], ...]
"""Indices with the sizes of their axes."""

Sizes: TypeAlias = Mapping[sympy.Basic, sympy.Expr]
"""What the parts of sizes are in terms of `FRAMES` and `ROWS`."""

Guards: TypeAlias = tuple[sympy.Expr, ...]
"""Numbers that are 0 or more in a case."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where entries of the result come from in one case.

    Attributes:
        guards: the case, in terms of the index of the result.
        index: of the operand, or None for an added number.
        added: that number.
    """

    guards: Guards
    index: tuple[sympy.Expr, ...] | None
    added: float = 0.0


@dataclasses.dataclass(frozen=True)
class IndexMap:
    """All cases.

    Attributes:
        box: index of the result with the sizes of its axes.
        sources: cases that cover it.
    """

    box: Box
    sources: tuple[Source, ...]


@functools.lru_cache(maxsize=100_000)
def never_negative(number: sympy.Expr, guards: Guards, box: Box) -> bool:
    """Whether a number is proved to be at least 0 for all sizes from 1 on and all indices of a case."""
    for count in range(min(len(guards), 3) + 1):
        for chosen in itertools.combinations(guards, count):
            if _is_never_negative(sympy.expand(number - sum(chosen)), box):
                return True
    return False


def _is_never_negative(number: sympy.Expr, box: Box) -> bool:
    used = [(index, size) for index, size in box if number.has(index)]
    if any(sympy.degree(number, index) > 1 for index, _ in used):
        return False
    for ends in itertools.product((0, 1), repeat=len(used)):
        corner = number.subs({index: (size - 1) * end for (index, size), end in zip(used, ends, strict=True)})
        names = sorted(corner.free_symbols, key=str)
        moved = sympy.expand(corner.subs({name: name + 1 for name in names if name.is_positive}))
        coefficients = sympy.Poly(moved, *names).coeffs() if names else [moved]
        if any(coefficient < 0 for coefficient in coefficients):
            return False
    return True


def is_impossible(guards: Guards, box: Box) -> bool:
    """Whether a case is proved to contain no index."""
    return never_negative(sympy.Integer(-1), guards, box)


def derive(nodes: Sequence[ir.Node], dims: Sequence[Dim], known: Sizes) -> IndexMap:
    """Return, for every entry of a chain's result, the index of the operand's entry that it copies.

    Args:
        nodes: a chain of movements.
        dims: shape of the operand whose entries it moves.
        known: sizes by the names in them.

    Raises:
        ValueError: it cannot be derived.
    """
    shapes = [_sized(dims, known)]
    steps = []
    current = None
    for node in nodes:
        step = _Movement(node, current, shapes[-1], known)
        shapes.append(step.shape)
        steps.append(step)
        current = node.outputs[0]
    box = tuple(
        (sympy.Symbol(f"i{number}", integer=True, nonnegative=True), size) for number, size in enumerate(shapes[-1])
    )
    cases = [Source((), tuple(index for index, _ in box))]
    for step in reversed(steps):
        cases = [sources for case in cases for sources in ([case] if case.index is None else step.back(case, box))]
        cases = [case for case in cases if not is_impossible(case.guards, box)]
        if len(cases) > MOST_CASES:
            raise ValueError("too many cases")
    return IndexMap(box, tuple(_without_unknown(case) for case in cases))


def _without_unknown(case: Source) -> Source:
    """Return a case without the guards on unknown quotients, so that it covers more indices.

    Raises:
        ValueError: the source index itself contains an unknown quotient.

    Raises:
        ValueError: the source index itself contains an unknown quotient.
    """
    if any(at.atoms(sympy.Dummy) for at in case.index or ()):
        raise ValueError("a quotient is not known")
    return dataclasses.replace(case, guards=tuple(each for each in case.guards if not each.atoms(sympy.Dummy)))


def _sized(dims: Sequence[Dim], known: Sizes) -> tuple[sympy.Expr, ...]:
    return tuple(_size(dim, known) for dim in dims)


def _size(dim: Dim, known: Sizes) -> sympy.Expr:
    size = sympy.expand(sympy.sympify(dim).subs(known))
    if size.free_symbols - {FRAMES, ROWS} or not size.is_polynomial():
        raise ValueError(f"{dim} is no polynomial of the number of frames")
    return size


class _Movement:
    """One movement of known sizes.

    Raises:
        ValueError: its sizes or bounds are not known.
    """

    def __init__(
        self,
        node: ir.Node,
        current: ir.Value | None,
        before: tuple[sympy.Expr, ...],
        known: Sizes,
    ) -> None:
        self.node, self.before, self.known = node, before, known
        self.offsets: list[sympy.Expr] = []
        self.steps = [1] * len(before)
        if is_op(node, "Slice"):
            self.shape = self._slice()
        elif is_op(node, "Pad"):
            self.shape = self._pad()
        elif is_op(node, "Concat"):
            self.shape = self._concat(current)
        elif is_op(node, "Transpose"):
            self.perm = perm_of(node, len(before))
            self.shape = tuple(before[position] for position in self.perm)
        else:
            self.shape = self._reshaped()

    def _slice(self) -> tuple[sympy.Expr, ...]:
        view = slice_of(self.node)
        axis_slices = None if view is None else view.axis_slices(symbolic_values_of)
        if axis_slices is None:
            raise ValueError("the axes of Slice are not known")
        shape, self.offsets = list(self.before), [sympy.Integer(0)] * len(self.before)
        for sliced in axis_slices:
            if sliced.step != 1 or sliced.start is None or sliced.end is None:
                raise ValueError("in steps, or by bounds that are not known")
            axis = sliced.axis
            first, last = (self._bound(_size(bound, self.known), shape[axis]) for bound in (sliced.start, sliced.end))
            if not never_negative(sympy.expand(last - first - 1), (), ()):
                raise ValueError(f"{last - first} entries")
            self.offsets[axis], shape[axis] = first, sympy.expand(last - first)
        return tuple(shape)

    def _bound(self, bound: sympy.Expr, size: sympy.Expr) -> sympy.Expr:
        """Return a slice bound counted from the front, which lies within the axis for all lengths."""
        if bound.is_Integer and bound >= FAR:
            return size
        counted = bound if never_negative(bound, (), ()) else sympy.expand(size + bound)
        is_negative = counted is bound or never_negative(sympy.expand(-bound - 1), (), ())
        inside = never_negative(counted, (), ()) and never_negative(sympy.expand(size - counted), (), ())
        if not inside or not is_negative:
            raise ValueError(f"a cut at {bound} of {size}")
        return counted

    def _pad(self) -> tuple[sympy.Expr, ...]:
        pad = pad_of(self.node, symbolic_values_of, len(self.before))
        if pad is None or pad.mode != "constant":
            raise ValueError("not a constant Pad by amounts that are known")
        ends = {axis: [_size(amount, self.known) for amount in pair] for axis, pair in pad.added.items()}
        if not all(never_negative(amount, (), ()) for pair in ends.values() for amount in pair):
            raise ValueError("takes entries away")
        added = pad_value(self.node)
        if added is None:
            raise ValueError("adds a number that is computed")
        self.added, nothing = added, [sympy.Integer(0)] * 2
        self.offsets = [ends.get(axis, nothing)[0] for axis in range(len(self.before))]
        return tuple(sympy.expand(size + sum(ends.get(axis, nothing))) for axis, size in enumerate(self.before))

    def _concat(self, current: ir.Value | None) -> tuple[sympy.Expr, ...]:
        self.axis = axis_of(self.node, len(self.before))
        self.parts: list[tuple[sympy.Expr, float | None]] = []
        for value in self.node.inputs:
            added = None if value is None or value is current else uniform(value)
            dims = dims_of(value) if value is not None and added is not None else None
            if added is not None and dims is None:
                raise ValueError("joins something else")
            self.parts.append((self.before[self.axis] if dims is None else _size(dims[self.axis], self.known), added))
        if sum(added is None for _, added in self.parts) != 1:
            raise ValueError("joins something else")
        shape = list(self.before)
        shape[self.axis] = sympy.expand(sum(size for size, _ in self.parts))
        return tuple(shape)

    def _reshaped(self) -> tuple[sympy.Expr, ...]:
        """Return the shape of the result; one size that shape inference left open is computed from the others."""
        dims = list(dims_of(self.node.outputs[0]) or ())
        sizes: list[sympy.Expr | None] = []
        for dim in dims:
            try:
                sizes.append(_size(dim, self.known))
            except ValueError:
                sizes.append(None)
        whole = sympy.expand(sympy.prod(self.before))
        if sizes.count(None) == 1:
            rest = sympy.cancel(whole / sympy.prod([size for size in sizes if size is not None]))
            sizes = [sympy.expand(rest) if size is None else size for size in sizes]
        known_sizes = tuple(size for size in sizes if size is not None)
        if len(known_sizes) != len(sizes) or any(not size.is_polynomial() for size in known_sizes):
            raise ValueError("a shape is not known")
        if sympy.expand(sympy.prod(known_sizes) - whole) != 0:
            raise ValueError(f"{whole} entries as {known_sizes}")
        return known_sizes

    def back(self, case: Source, box: Box) -> Iterator[Source]:
        """Yield the cases that map an index of the result to an index of the operand."""
        index = case.index
        assert index is not None
        if is_op(self.node, "Slice"):
            moved = tuple(
                sympy.expand(place_index + offset) for place_index, offset in zip(index, self.offsets, strict=True)
            )
            yield Source(case.guards, moved)
        elif is_op(self.node, "Transpose"):
            places = {old: new for new, old in enumerate(self.perm)}
            yield Source(case.guards, tuple(index[places[axis]] for axis in range(len(self.perm))))
        elif is_op(self.node, "Pad"):
            yield from self._unpadded(case, box)
        elif is_op(self.node, "Concat"):
            yield from self._parted(case)
        else:
            for guards, operand_index in _divided(case.guards, index, self.shape, self.before, box):
                yield Source(guards, operand_index)

    def _unpadded(self, case: Source, box: Box) -> Iterator[Source]:
        assert case.index is not None
        moved = tuple(sympy.expand(at - offset) for at, offset in zip(case.index, self.offsets, strict=True))
        inside = case.guards
        for at, size in zip(moved, self.before, strict=True):
            for guard in (at, sympy.expand(size - 1 - at)):
                if not never_negative(guard, inside, box):
                    yield Source((*inside, sympy.expand(-1 - guard)), None, self.added)
                    inside = (*inside, guard)
        yield Source(inside, moved)

    def _parted(self, case: Source) -> Iterator[Source]:
        assert case.index is not None
        start = sympy.Integer(0)
        for size, added in self.parts:
            at = sympy.expand(case.index[self.axis] - start)
            guards = (*case.guards, at, sympy.expand(size - 1 - at))
            index = (*case.index[: self.axis], at, *case.index[self.axis + 1 :])
            yield Source(guards, index) if added is None else Source(guards, None, added)
            start += size


def _divided(
    guards: Guards, index: Sequence[sympy.Expr], after: Sequence[sympy.Expr], before: Sequence[sympy.Expr], box: Box
) -> Iterator[tuple[Guards, tuple[sympy.Expr, ...]]]:
    """Yield an index of one shape as an index of another with the same number of entries, by case."""
    cases: list[tuple[Guards, tuple[sympy.Expr, ...]]] = [(guards, ())]
    for here, there in _groups(after, before):
        place = sympy.Integer(0)
        for after_axis in here:
            place = sympy.expand(place * after[after_axis] + index[after_axis])
        if len(here) == len(there) == 1:
            cases = [(known, (*index_so_far, place)) for known, index_so_far in cases]
            continue
        cases = [
            (more, (*index_so_far, *inner))
            for known, index_so_far in cases
            for more, inner in _places(known, place, [before[before_axis] for before_axis in there], box)
        ]
    yield from cases


def _places(
    guards: Guards, place: sympy.Expr, sizes: Sequence[sympy.Expr], box: Box
) -> Iterator[tuple[Guards, tuple[sympy.Expr, ...]]]:
    """Yield a linear position as an index of axes of these sizes, by case."""
    if len(sizes) <= 1:
        yield guards, (place,) * len(sizes)
        return
    for more, whole, rest in _quotients(guards, place, sizes[-1], box):
        for known, outer in _places(more, whole, sizes[:-1], box):
            yield known, (*outer, rest)


def _quotients(
    guards: Guards, place: sympy.Expr, size: sympy.Expr, box: Box
) -> Iterator[tuple[Guards, sympy.Expr, sympy.Expr]]:
    """Yield quotient and remainder of a linear position by a size, by case.

    A quotient that is not within one of its estimate by leading terms is left unknown: a Reshape behind a slice of
    whole rows multiplies it by the same size again, and it cancels.
    """
    whole, _ = sympy.div(place, size, FRAMES) if size.has(FRAMES) else (sympy.expand(place / size), 0)
    terms = sympy.expand(whole).as_coefficients_dict().items()
    guess = sum((sympy.floor(factor) * term for term, factor in terms), sympy.Integer(0))
    rest = sympy.expand(place - guess * size)
    if not never_negative(sympy.expand(rest + size), guards, box) or not never_negative(
        sympy.expand(2 * size - 1 - rest), guards, box
    ):
        unknown = sympy.Dummy("quotient", integer=True, nonnegative=True)
        left = sympy.expand(place - unknown * size)
        yield (*guards, left, sympy.expand(size - 1 - left)), unknown, left
        return
    for more in (-1, 0, 1):
        left = sympy.expand(rest - more * size)
        known = (
            *guards,
            *(bound for bound in (left, sympy.expand(size - 1 - left)) if not never_negative(bound, guards, box)),
        )
        if known == guards or not is_impossible(known, box):
            yield known, sympy.expand(guess + more), left
            if known == guards:
                return


def _groups(after: Sequence[sympy.Expr], before: Sequence[sympy.Expr]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest groups of neighbouring axes of two shapes that hold equally many entries."""
    here: list[int] = []
    there: list[int] = []
    after_axis = to = 0
    while after_axis < len(after) or to < len(before):
        if not here and after_axis < len(after):
            here.append(after_axis)
            after_axis += 1
        elif not there and to < len(before):
            there.append(to)
            to += 1
        else:
            mine, other = (sympy.prod([shape[k] for k in part]) for shape, part in ((after, here), (before, there)))
            gap = sympy.expand(mine - other)
            if gap == 0:
                yield here, there
                here, there = [], []
            elif after_axis < len(after) and (to == len(before) or never_negative(-gap, (), ())):
                here.append(after_axis)
                after_axis += 1
            elif to < len(before):
                there.append(to)
                to += 1
            else:
                break
    if here or there:
        yield here, there
