"""Tracks time axes through a Reshape by the factors of their sizes."""

from collections.abc import Sequence

import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped
from compiler.graph.model import Dim

RULE_CURE = (
    "write that part with operators of which one frame is computed of one frame, or as attention under a mask; or "
    "export the model with its caches as inputs"
)


def regrouped(
    before: Sequence[tuple[Dim, ...]], after: Sequence[Dim], frames: Dim
) -> dict[int, tuple[int, tuple[Dim, ...]]]:
    """Map each time axis of a Reshape's operand to an axis of the result, with the factors counted there.

    Args:
        before: for every axis of the operand, the factors of its size, the outermost first.
        after: the shape of the result.
        frames: the number of frames.

    Raises:
        NotMapped: frames would be split, or merged in another order.
    """
    axes: dict[int, tuple[int, tuple[Dim, ...]]] = {}
    old_axis = new_axis = 0
    while old_axis < len(before) or new_axis < len(after):
        here, there = [old_axis] if old_axis < len(before) else [], [new_axis] if new_axis < len(after) else []
        while True:
            entries = sympy.sympify(sympy.prod([size for axis in here for size in before[axis]]))
            ratio = sympy.cancel(entries / sympy.sympify(sympy.prod([after[axis] for axis in there])))
            if ratio == 1:
                break
            is_more = ratio.is_polynomial() and sympy.denom(ratio) == 1
            if (is_more or old_axis + len(here) >= len(before)) and new_axis + len(there) < len(after):
                there.append(new_axis + len(there))
            elif old_axis + len(here) < len(before):
                here.append(old_axis + len(here))
            else:
                raise NotMapped(f"a Reshape of {[*before]} to {[*after]}")
        times = [axis for axis in here if any(_counts(size, frames) for size in before[axis])]
        if times:
            axes |= _group(before, here, after, there, times, frames)
        old_axis, new_axis = old_axis + len(here), new_axis + len(there)
    return axes


def _group(
    before: Sequence[tuple[Dim, ...]],
    here: Sequence[int],
    after: Sequence[Dim],
    there: Sequence[int],
    times: Sequence[int],
    frames: Dim,
) -> dict[int, tuple[int, tuple[Dim, ...]]]:
    """Map one group of axes that holds equally many entries before and after; factors keep their order.

    A factor that counts no frames, such as rows times heads, may be split.
    """
    factors = [(size, old_axis) for old_axis in here for size in before[old_axis] if size != 1]
    axes: dict[int, tuple[int, tuple[Dim, ...]]] = {}
    for axis in there:
        taken: list[tuple[Dim, int]] = []
        while (missing := _times(after[axis], [size for size, _ in taken])) not in (1, None) and factors:
            assert missing is not None
            size, old_axis = factors.pop(0)
            inner = None if _counts(size, frames) or _times(missing, [size]) is not None else _times(size, [missing])
            taken.append((size if inner is None else missing, old_axis))
            factors[:0] = [] if inner is None else [(inner, old_axis)]
        if missing != 1:
            raise NotMapped(f"a Reshape that parts or merges time into an axis of {after[axis]} entries")
        held = [old_axis for size, old_axis in taken if _counts(size, frames)]
        if len(held) > 1:
            raise NotMapped("a Reshape that merges two time axes")
        if held:
            axes[held[0]] = axis, tuple(size for size, _ in taken)
    if len(axes) != len(times):
        raise NotMapped("a Reshape that merges two time axes")
    return axes


def _times(size: Dim, of: Sequence[Dim]) -> Dim | None:
    """Return the factor by which a size is a multiple of a product of sizes; None where it is no integer polynomial."""
    ratio = sympy.cancel(sympy.sympify(size) / sympy.sympify(sympy.prod(of)))
    terms = (term.as_coeff_Mul() for term in sympy.Add.make_args(sympy.expand(ratio)))
    is_whole = all(number.is_Integer and rest.is_polynomial() for number, rest in terms)
    return graphs.normal_form(ratio) if is_whole else None


def _counts(size: Dim, frames: Dim) -> bool:
    """Whether a size depends on the number of frames."""
    return graphs.mentions(size, str(frames))
