"""The one comparison of arrays; every call names its tolerance."""

from compiler.build.verify.differences import max_abs_difference
from compiler.graph.stages import Array


def relative_difference(got: Array, expected: Array) -> float:
    """Largest absolute difference, relative to values above 1; infinite for other shapes and for one-sided NaN."""
    scale = max(1.0, float(abs(expected).max())) if expected.size else 1.0
    return max_abs_difference(got, expected) / scale


def assert_close(got: Array, expected: Array, *, tolerance: float, what: str) -> None:
    """Fail with the difference when it is above the tolerance; 0 asks for equal values."""
    difference = relative_difference(got, expected)
    assert difference <= tolerance, f"{what}: expected a difference of at most {tolerance:g}, got {difference:g}"
