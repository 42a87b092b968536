"""Compares a graph with the original model over chained calls, and finds the first value that differs.

The reference is the original in its own framework, its caches cut to the window before each call. What is compared:
every output and every state, as the passes so far have reshaped it, in every step. Floats differ by a distance;
integers and booleans are classes, equal or not.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.calib.classes import Agreement, are_classes
from compiler.calib.noise import Noise
from compiler.graph.runners.ahead import ahead
from compiler.graph.runners.coded_states import states_in_numbers
from compiler.graph.runners.stream import OriginalCall, Stepper, expected_of
from compiler.graph.stages import Array, Lowered
from compiler.recipe.gates import Tolerance


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of one tensor over all steps.

    Attributes:
        tensor: output or state name.
        steps: compared steps.
        max_abs: largest absolute difference; NaN or infinity where one side has them alone.
        reference_max: largest absolute value of the reference.
        worst_step: step of the largest difference.
        early: largest difference in the first half of the steps, to show growth.
        late: largest difference in the second half.
        sqnr_db: signal to quantisation noise over all steps, 10 log10(sum of squares / sum of squared differences);
            None without a difference, without a signal, or of classes.
        classes: how many entries are equal, of whole numbers and truths; None of real numbers.
    """

    tensor: str
    steps: int
    max_abs: float
    reference_max: float
    worst_step: int
    early: float
    late: float
    sqnr_db: float | None = None
    classes: Agreement | None = None

    @property
    def relative(self) -> float:
        """Return the largest difference over the largest reference value, or over 1 where that is larger."""
        return self.max_abs / max(1.0, self.reference_max)

    def limit(self, limits: Tolerance) -> float:
        """Return the accepted difference, relative to values above 1."""
        return limits.max_abs * max(1.0, self.reference_max)

    def holds(self, limits: Tolerance) -> bool:
        """Whether the difference is within the limits; NaN never is."""
        if self.classes is not None:
            return self.classes.holds(limits.min_equal)
        return self.used(limits) <= 1.0

    def used(self, limits: Tolerance) -> float:
        """Return the used share of the limits: above 1 it does not hold, infinity stands for NaN."""
        if self.classes is not None:
            return self.classes.used(limits.min_equal)
        share = self.max_abs / self.limit(limits)
        if math.isnan(share) or limits.sqnr_db is None or self.sqnr_db is None:
            return math.inf if math.isnan(share) else share
        return max(share, math.pow(10.0, (limits.sqnr_db - self.sqnr_db) / 20.0))

    def exceeded(self, limits: Tolerance) -> str:
        """Return expected and measured figures as text, for messages."""
        if self.classes is not None:
            return (
                f"equal to the original's in {percent(limits.min_equal)} of its entries, as classes, got "
                f"{class_words(self.classes)}"
            )
        if self.max_abs <= self.limit(limits):
            return f"at least {limits.sqnr_db:g} dB above its rounding noise, got {self.sqnr_db:.1f} dB"
        return (
            f"within {self.limit(limits):.3g} of the original, got a difference of {self.max_abs:.3g} at chained step "
            f"{self.worst_step}"
        )


def percent(share: float) -> str:
    """Return a share as text: `all`, or `at least 99.5 %`."""
    return "all" if share >= 1.0 else f"at least {100.0 * share:.4g} %"


def class_words(classes: Agreement, *, in_order: bool = True) -> str:
    """Return how many entries are equal, and the first different one, as text.

    Args:
        classes: counts of equal and different entries.
        in_order: whether the steps are chained, so that a step's number identifies it.
    """
    step = f" at chained step {classes.first_step}" if in_order else ""
    first = f", the first other one{step}: {classes.first}" if classes.first else ""
    return f"{classes.compared - classes.differing} of {classes.compared} equal{first}"


Parts = Mapping[str, Sequence[str]]
"""The model's states by the tensor that a pass has packed them into."""

NO_PARTS: Parts = types.MappingProxyType({})

SHOWN = 4
"""Most states of one tensor that are named."""


def states_of(tensor: str, parts: Parts) -> str:
    """Return the model's names of the states in a tensor, as the start of a message; often empty."""
    names = parts.get(tensor, ())
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"states {', '.join(names[:SHOWN])}{more}; " if names else ""


class Tally:
    """Largest difference of one tensor, step by step."""

    def __init__(self, tensor: str) -> None:
        self.tensor = tensor
        self.errors: list[float] = []
        self.reference_max = 0.0
        self.noise = Noise()
        self.classes: Agreement | None = None

    def add(self, got: Array, expected: Array) -> None:
        if are_classes(expected):
            self.classes = (self.classes or Agreement()).plus(got, expected, len(self.errors))
        self.errors.append(max_abs_difference(got, expected))
        if expected.size:
            size = np.abs(expected.astype(np.float64))
            finite = np.isfinite(size)  # what the original answers otherwise has no size; it must be the same
            self.reference_max = max(self.reference_max, float(np.max(size, initial=0.0, where=finite)))
            self.noise.add(got, expected)

    def difference(self) -> Difference:
        worst = int(np.argmax(np.nan_to_num(np.array(self.errors), nan=np.inf)))
        half = max(len(self.errors) // 2, 1)
        late = self.errors[half:] or self.errors
        return Difference(
            self.tensor,
            len(self.errors),
            self.errors[worst],
            self.reference_max,
            worst,
            max(self.errors[:half]),
            max(late),
            self.noise.sqnr_db,
            self.classes,
        )


def max_abs_difference(got: Array, expected: Array) -> float:
    """Return the largest absolute difference; infinite for different shapes, or one-sided NaN or infinity."""
    if got.shape != expected.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if np.isfinite(worst := float(np.max(difference))):
        return worst
    same = (got == expected) | (np.isnan(got) & np.isnan(expected) if got.dtype.kind == "f" else False)
    worst = float(np.max(np.where(same, 0.0, difference)))
    return float("inf") if np.isnan(worst) else worst


def compare(
    lowered: Lowered, runner: Stepper, steps: Sequence[OriginalCall], advance: Callable[[int], None] = lambda _: None
) -> list[Difference]:
    """Run the graph on the recorded steps, and return the differences of every output and state.

    The original's states after the passes take as long to compute as a call, so they are computed in parallel.

    Args:
        lowered: the record of the graph.
        runner: a fresh runner of the graph.
        steps: the original's calls, in order.
        advance: called with the number of compared steps.
    """
    tallies: dict[str, Tally] = {}
    expectations = ahead(expected_of(lowered, step) for step in steps)
    answers = ahead({**runner.step(step.feed), **states_in_numbers(lowered, runner.states)} for step in steps)
    for count, (right, got) in enumerate(zip(expectations, answers, strict=True), start=1):
        for name, expected in right.items():
            if name in got:
                tallies.setdefault(name, Tally(name)).add(got[name], expected)
        advance(count)
    return [tally.difference() for tally in tallies.values()]


def worst_of(differences: Sequence[Difference], limits: Tolerance) -> Difference:
    """Return the difference that uses most of its limits."""
    return max(differences, key=lambda difference: difference.used(limits))
