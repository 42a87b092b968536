"""Proves how padding acts on Resize, which computes each output from entries around a position (rules RS1 and RS2).

Rule ids: RS1 every valid place reads valid entries alone, RS2 the nearest valid entry stands in the padding. Positions
and what is read around them are exact fractions here.
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import sympy

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.axes import resized_axes
from compiler.graph.sizes.expressions import normal_form
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import FINITE, Assumption, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Axis, Frames, Segment, Side
from compiler.proof.rules.convolution import largest_sum
from compiler.proof.rules.kernel_windows import period, regions_read, residues, stated

MOST_PLACES = 3
"""Kernels that interpolate treat every axis of a value with at most this many axes as a spatial axis."""

MOST_PARTS = 64
"""The largest denominator of a scale that is taken to be meant exactly."""

HALF = Fraction(1, 2)

POSITIONS: dict[str, Callable[[int, Fraction], Fraction]] = {
    "asymmetric": lambda place, scale: place / scale,
    "half_pixel": lambda place, scale: (place + HALF) / scale - HALF,
    "half_pixel_symmetric": lambda place, scale: (place + HALF) / scale - HALF,
    "pytorch_half_pixel": lambda place, scale: (place + HALF) / scale - HALF,
}
"""The position on the input axis of a place, where it does not depend on the size of the axis."""

NEAREST: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda position: math.ceil(position - HALF),
    "round_prefer_ceil": lambda position: math.floor(position + HALF),
}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How places read entries.

    Attributes:
        mode: nearest, linear or cubic.
        position: position of a place.
        nearest: which entry is nearest, for mode nearest.
    """

    mode: str
    position: Callable[[int, Fraction], Fraction]
    nearest: Callable[[Fraction], int]

    def reads(self, place: int, scale: Fraction) -> tuple[int, int]:
        """Return the first and the last entry that a position reads, as if the axis had no ends."""
        position = self.position(place, scale)
        if self.mode == "nearest":
            return self.nearest(position), self.nearest(position)
        before = math.floor(position)
        return (before, before + 1) if self.mode == "linear" else (before - 1, before + 2)

    def may_clamp(self, scale: Fraction) -> bool:
        """Whether runtimes weight the last entry alone differently from beside a copy of itself with weight 0.

        Of the positions that read the last entry of some size, the first lies within one period.
        """
        sizes = range(1, scale.denominator + 1)
        return self.mode == "linear" and any(
            max(self.position(place, scale), 0) == size - 1
            for size in sizes
            for place in range(math.floor(size * scale))
        )

    def sees_front(self, scale: Fraction) -> bool:
        """Whether a valid position reads in front of the axis."""
        return any(self.reads(place, scale)[0] < 0 for place in range(2 * scale.numerator))

    def sees_back(self, scale: Fraction) -> bool:
        """Whether a valid position reads behind the axis, for any size; sizes of one period suffice."""
        sizes = range(1, 2 * scale.denominator + 1)
        lasts = [(size, math.floor(size * scale) - 1) for size in sizes]
        return any(self.reads(last, scale)[1] > size - 1 for size, last in lasts if last >= 0)


def resize(case: Case) -> Verdict:
    """Judge Resize: a position reads entries by the scale alone, which are valid or equal the last one.

    The ends of an axis differ from its middle for infinities: there, linear weights of 0 appear.
    """
    scales = _scales(case)
    mode = str(case.attribute("mode", "nearest"))
    if mode not in ("nearest", "linear", "cubic"):
        raise refuse(f"Resize by {mode!r}", "resize by nearest, linear or cubic")
    for axis, _ in case.fact().axes:
        if scales[axis] != 1:
            case.refuse_rows(0, axis, "resizes")
    resized = {axis: scale for axis, scale in scales.items() if scale != 1 and case.fact().axis(axis) is not None}
    sampling = _sampling(case, mode) if resized else None
    axes: dict[int, Axis] = {}
    sizes: list[Dim] = []
    held: list[int] = []
    assumes: tuple[Assumption, ...] = ()
    for axis, scale in resized.items():
        assert sampling is not None and scale is not None
        frames = case.simple_frames(0, axis)
        assert frames is not None
        axes[axis], size = _stretched(case, axis, frames, scale)
        sizes += [size, *_at_least_two(case, size, scale)]
        front = frames.segments[0].side is Side.RIGHT
        if sampling.sees_front(scale) if front else sampling.sees_back(scale):
            held.append(axis)
            sizes.append(frames.size)
            assumes = FINITE if mode == "linear" and (front or sampling.may_clamp(scale)) else assumes
    if mode != "nearest":
        held += _neighbours(case, mode, set(resized))
    if held:
        if case.fact().rows_axis is None and case.batch is not None:
            raise refuse("Resize of a value that all rows share", "give the value a batch axis")
        case.rewrite("hold", tuple(held))
    if mode != "nearest" and not case.int_attribute("antialias", 0):
        _set_rows_apart(case)
    fact, sliding = case.fact(), set(resized)
    spread = sum(scale != 1 for scale in scales.values()) if mode == "cubic" else 0

    def content(region: Region) -> Interval:
        here = region - set(held)
        read = iv.hull(*(fact.content(region_read) for region_read in regions_read(fact, here, sliding)))
        if mode == "nearest":
            return read
        if not read.is_finite or read.magnitude * 1.5**spread > largest_sum(case):
            return ANYTHING
        return iv.bounded(read.magnitude * 1.5**spread) if mode == "cubic" else read

    out = case.output({**fact.tracked, **axes}, content)
    reason = "the nearest valid entry stands in the padding" if held else "places read valid entries"
    pointwise = not resized and mode == "nearest"
    rule = "RS2" if held else "RS1"
    return case.verdict(rule, reason, out, pointwise=pointwise, at_least_one=sizes, assumes=assumes)


def _scales(case: Case) -> dict[int, Fraction | None]:
    """Return the scale of every axis; None for a fixed axis that is resized in some other way.

    Raises:
        Refused: a tracked axis is not stretched by a short fraction, whatever its size.
    """
    rank = case.rank()
    axes = resized_axes(case.node, rank)
    scale_of: dict[int, Fraction | None] = dict.fromkeys(range(rank), Fraction(1))
    scales = case.array(2) if case.has(2) else None
    if scales is not None and scales.size == len(axes):
        scale_of |= {axis: Fraction(float(scale)) for axis, scale in zip(axes, scales.reshape(-1), strict=True)}
    else:
        sizes = symbolic_values_of(case.node.inputs[3]) if case.has(3) else None
        if sizes is None or len(sizes) != len(axes):
            raise refuse("Resize by scales or to sizes that follow from data", "give scales as constants")
        if str(case.attribute("keep_aspect_ratio_policy", "stretch")) != "stretch":
            raise refuse("Resize that keeps the aspect ratio of sizes", "give scales as constants")
        scale_of |= {axis: _ratio(size, case.dims()[axis]) for axis, size in zip(axes, sizes, strict=True)}
    for axis, _ in case.fact().axes:
        scale = scale_of[axis]
        if scale is None or not scale > 0 or scale.denominator > MOST_PARTS or scale.numerator > 2**16:
            raise refuse(
                f"Resize of axis {axis}, which is padded or holds the batch, from {case.dims()[axis]} entries to "
                f"{case.out_dims()[axis]}: no short fraction of it",
                "resize by a constant scale such as 2 or 0.5",
            )
    return scale_of


def _ratio(size: Dim, before: Dim) -> Fraction | None:
    ratio = sympy.cancel(sympy.sympify(size) / before) if before != 0 else sympy.nan
    return Fraction(int(ratio.p), int(ratio.q)) if ratio.is_Rational else None


def _sampling(case: Case, mode: str) -> Sampling:
    """Return how a tracked axis is sampled.

    Raises:
        Refused: positions or weights depend on the size of the axis.
    """
    how = str(case.attribute("coordinate_transformation_mode", "half_pixel"))
    nearest = str(case.attribute("nearest_mode", "round_prefer_floor"))
    if how not in POSITIONS or nearest not in NEAREST:
        raise refuse(
            f"Resize by {how} positions, which depend on the length of the axis", "use asymmetric or half_pixel"
        )
    if case.int_attribute("antialias", 0):
        raise refuse("Resize with antialiasing, whose weights depend on the ends of the axis", "turn it off")
    sharpness = case.attribute("cubic_coeff_a", -0.75)
    if mode == "cubic" and (
        case.int_attribute("exclude_outside", 0) or not isinstance(sharpness, float) or not -1.0 <= sharpness <= 0.0
    ):
        raise refuse("cubic Resize with weights that depend on the ends of the axis", "set exclude_outside to 0")
    return Sampling(mode, POSITIONS[how], NEAREST[nearest])


def _stretched(case: Case, at: int, frames: Frames, scale: Fraction) -> tuple[Axis, Dim]:
    """Return the layout and the size of a padded axis after it was resized.

    Raises:
        Refused: the padding in front is not stretched to whole slots, or lies between valid entries.
    """
    how = str(case.attribute("coordinate_transformation_mode", "half_pixel"))
    if how == "half_pixel_symmetric" and residues(frames.size, scale.denominator) != {0}:
        raise refuse(f"Resize by {how} of {frames} by {scale}", "use half_pixel")
    size = stated(case, at, normal_form(sympy.floor(sympy.sympify(frames.size) * sympy.Rational(str(scale)))))
    side = frames.segments[0].side
    whole_shift = side is Side.LEFT or period(frames.size)[1] % scale.denominator == 0
    if len(frames.segments) != 1 or not whole_shift:
        raise refuse(f"Resize of {frames} by {scale}", "resize the new frames before joining them")
    return (Frames((Segment(size, side),)),), size


def _at_least_two(case: Case, size: Dim, scale: Fraction) -> list[Dim]:
    """Return the sizes that must be at least 1 for `pytorch_half_pixel`, which puts a single position at 0."""
    how = str(case.attribute("coordinate_transformation_mode", "half_pixel"))
    return [normal_form(size - 1)] if how == "pytorch_half_pixel" and scale < 1 else []


def _neighbours(case: Case, mode: str, resized: set[int]) -> list[int]:
    """Fill padding beside axes of scale 1 with finite numbers; return the axes on which a copy of the last entry does.

    Runtimes multiply the neighbours of a position by a weight of 0 along such axes, too, and 0 * infinity is NaN. At
    the end of an axis a linear kernel reads the last entry alone, a cubic one several times.

    Raises:
        Refused: the padding lies between valid entries.
    """
    held = []
    for axis in case.fact().padded:
        if axis in resized:
            continue
        frames = case.simple_frames(0, axis)
        if frames is None or len(frames.segments) != 1:
            raise refuse(f"interpolation next to {frames}", "resize the new frames before joining them")
        if mode == "cubic":
            held.append(axis)
        elif not case.fact().padding(axis).is_finite:
            case.fill(0, axis, 0.0)
    return held


def _set_rows_apart(case: Case) -> None:
    """Separate the batch from resized axes, as kernels of up to three axes multiply neighbouring rows by 0.

    Raises:
        Refused: the batch is not the first axis, so that no axis can be put between it and the others.
    """
    rows = case.fact().rows_axis
    if rows not in (None, 0):
        raise refuse("interpolation next to the batch axis: rows of one batch would mix", "put the batch in front")
    if rows == 0 and case.rank() <= MOST_PLACES:
        case.rewrite("resize_apart")
