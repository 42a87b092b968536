"""Describes how a convolution or pooling kernel slides along an axis: its positions, and the entries that they read.

A place o of the unpadded axis reads entries o*stride - begin + dilation*[0, kernel). In the padded axis the same place
lies at another slot, by the number of padded slots in front; that is a whole number of strides or the rule refuses.
"""

import dataclasses
import math

import sympy

from compiler.graph.lengths.symbolic_values import same
from compiler.graph.model import Dim
from compiler.graph.operators import windows
from compiler.graph.sizes.expressions import normal_form
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Region, refuse
from compiler.proof.facts.layout import Axis, Frames, Segment, Side, joined
from compiler.proof.rules.length import is_known


@dataclasses.dataclass(frozen=True)
class Window:
    """A kernel along one axis.

    Attributes:
        kernel: entries read at one place.
        stride: entries between places.
        dilation: entries between those that are read.
        begin: entries imagined in front of the axis.
        end: entries imagined behind it; None when one per stride decides.
        ceil: whether a last place counts that begins on the axis or in front of it and hangs over its end.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int | None = 0
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Return the distance from the first entry that a kernel reads to the last."""
        return self.dilation * (self.kernel - 1)

    @property
    def is_point(self) -> bool:
        """Whether every position reads the entry at that position alone."""
        return (self.kernel, self.stride, self.begin, self.end) == (1, 1, 0, 0)

    def places(self, size: Dim) -> Dim:
        """Return the number of positions of a kernel on an axis of `size` entries."""
        if self.end is None:
            return normal_form(sympy.ceiling(sympy.sympify(size) / self.stride))
        span = size + self.begin + self.end - self.reach - 1
        if not self.overruns(size):
            return normal_form(sympy.floor(sympy.sympify(span) / self.stride) + 1)
        places = sympy.ceiling(sympy.sympify(span) / self.stride) + 1
        if self.stride > self.reach + 1 - self.end:  # the last place may begin behind the axis: then it does not count
            on_axis = sympy.floor(sympy.sympify(size + self.begin - 1) / self.stride) + 1
            return normal_form(sympy.Min(places, on_axis))
        return normal_form(places)

    def overruns(self, size: Dim) -> bool:
        """Whether rounding up may add a position, as the last stride may be partial."""
        if not self.ceil or self.end is None:
            return False
        return residues(size + self.begin + self.end - self.reach - 1, self.stride) != {0}

    def overhang(self, size: Dim) -> int:
        """Return the largest number of entries behind the axis that a position reads, for any value of `size`."""
        if self.end is None:
            rests = residues(size - 1, self.stride)
            return max(max(self.reach - rest, 0) - self.begin for rest in rests)
        rests = residues(size + self.begin + self.end - self.reach - 1, self.stride)
        up = self.stride if self.ceil else 0
        return max(self.end - rest + (up if rest else 0) for rest in rests)


def residues(size: Dim, modulus: int) -> set[int]:
    """Return the remainders that a size may leave, at any length."""
    constant, step = period(size)
    step = math.gcd(step, modulus)
    return {(constant + rest) % modulus for rest in range(0, modulus, step)}


def period(size: Dim) -> tuple[int, int]:
    """Return a constant and a step: a size is the constant plus a multiple of the step, which is 0 for a fixed size."""
    whole = normal_form(size)
    if isinstance(whole, int):
        return whole, 0
    constant, rest = whole.as_coeff_Add()
    steps = []
    for term in sympy.Add.make_args(rest):
        factor, others = term.as_coeff_Mul()
        if not (factor.is_Integer and others.is_integer):
            return 0, 1
        steps.append(int(factor))
    return (int(constant), math.gcd(*steps)) if constant.is_Integer else (0, 1)


def windows_of(case: Case, kernel: tuple[int, ...]) -> tuple[Window, ...]:
    """Return the windows of a Conv or a pooling, one per spatial axis of its first input.

    Raises:
        Refused: the padding is automatic and depends on sizes, or attributes contradict each other.
    """
    view = operator_view(case)
    if view.pads is None:
        dims = case.dims()[2:]
        return tuple(
            _same(case, view.automatic, *sizes_of_axis)
            for sizes_of_axis in zip(dims, kernel, view.strides, view.dilations, strict=True)
        )
    return tuple(
        Window(size, stride, dilation, *pair, view.rounds_up and stride > 1)
        for size, stride, dilation, pair in zip(kernel, view.strides, view.dilations, view.pads, strict=True)
    )


def operator_view(case: Case) -> windows.Window:
    """Return the view of a convolution or pool.

    Raises:
        Refused: attributes contradict each other or the rank, a pad is negative, or pads follow from sizes in a way
            that is not known.
    """
    view = windows.window_of(case.node, case.rank())
    if view is None or any(min(pair) < 0 for pair in view.pads or ()):
        raise refuse(
            f"{case.op} whose attributes do not fit {case.rank() - 2} spatial axes, or with negative pads",
            "give one kernel size, stride and dilation of 1 or more and two pads per spatial axis",
        )
    if view.automatic not in ("", "SAME_UPPER", "SAME_LOWER"):
        raise refuse(f"{case.op} with auto_pad {view.automatic!r}", "give pads as numbers")
    return view


def _same(case: Case, auto: str, size: Dim, kernel: int, stride: int, dilation: int) -> Window:
    """Return the window of auto_pad SAME: one position per stride, an odd pad behind (UPPER) or in front (LOWER).

    Raises:
        Refused: the pad in front depends on the size.
    """
    if dilation > 1:
        raise refuse(f"{case.op} with auto_pad {auto} and dilations, which runtimes read differently", "give pads")
    if kernel < stride:
        raise refuse(f"{case.op} with auto_pad {auto} and gaps between its places", "give pads as numbers")
    totals = {max(kernel - 1 - rest, 0) for rest in residues(size - 1, stride)}
    begins = {total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals}
    if len(begins) > 1:
        raise refuse(
            f"{case.op} with auto_pad {auto} in steps of {stride} pads {size} entries by {sorted(begins)} in front, "
            "depending on the length",
            "give pads as numbers",
        )
    begin = begins.pop()
    return Window(kernel, stride, dilation, begin, totals.pop() - begin if len(totals) == 1 else None)


@dataclasses.dataclass(frozen=True)
class Slid:
    """A padded axis after a kernel slid along it.

    Attributes:
        axis: the layout.
        size: places.
        least: sizes that have to be 1 or more.
        sees_front: whether a valid place reads slots in front of the valid entries.
        sees_back: whether a valid place reads slots behind them.
    """

    axis: Axis
    size: Dim
    least: tuple[Dim, ...] = ()
    sees_front: bool = False
    sees_back: bool = False

    @property
    def sees_padding(self) -> bool:
        """Whether a valid position reads padded slots."""
        return self.sees_front or self.sees_back


def slide(case: Case, at: int, window: Window) -> Slid | None:
    """Return how a window slides along an axis of the first input; None where the axis is not tracked.

    Raises:
        Refused: a position would read other entries than in the unpadded program.
    """
    axis = case.fact().axis(at)
    if axis is None:
        return None
    if window.is_point:
        return Slid(axis, case.dims()[at])
    frames = case.simple_frames(0, at)
    assert frames is not None
    size = stated(case, at, window.places(frames.size))
    overhang = window.overhang(frames.size)
    if frames.is_suffix_padded:
        return Slid((Frames((Segment(size),)),), size, (size,), sees_back=overhang > 0)
    front = frames.segments[0]
    shift, step = period(front.size)
    if front.side is Side.RIGHT and not front.is_full and step % window.stride == 0:
        if frames.is_prefix_padded:
            return Slid((Frames((Segment(size, Side.RIGHT),)),), size, (size,), sees_front=window.begin > 0)
        if len(frames.segments) == 2 and not frames.segments[1].is_full:  # the valid entries are next to each other
            before = normal_form((front.size - shift) / window.stride)
            axis = joined([Segment(before, Side.RIGHT), Segment(normal_form(size - before), Side.LEFT)])
            return Slid(axis, size, (size, *_not_negative(axis)), window.begin > 0, overhang > 0)
    raise refuse(
        f"{case.op} in steps of {window.stride} along {frames}: the padding in front is no whole number of steps, or "
        "lies between valid entries",
        "act on the new frames before joining them, or in steps of 1",
    )


def _not_negative(axis: Axis) -> list[Dim]:
    """Return sizes that are at least 1 where no segment has a negative size."""
    return [segment.size + 1 for factor in axis if isinstance(factor, Frames) for segment in factor.segments]


def regions_read(fact: Fact, region: Region, sliding: set[int]) -> list[Region]:
    """Return the regions that a region of the output reads.

    A position in the padding of an axis along which a kernel slides reads padding and may read valid entries.
    """
    return [each for each in fact.regions if each <= region and each - sliding == region - sliding]


def stated(case: Case, at: int, computed: Dim) -> Dim:
    """Return the size of an output axis: as shape inference writes it where that is right, else as computed.

    Raises:
        Refused: shape inference contradicts the operator.
    """
    inferred = case.out_dims()[at]
    if not is_known(case, inferred):
        return computed
    if not same(inferred, computed):
        raise refuse(
            f"axis {at} of {case.op} has {computed} entries, and shape inference or the file states {inferred}",
            "state in the recipe's inputs the shapes that the model is run with, and export it again",
        )
    return inferred
