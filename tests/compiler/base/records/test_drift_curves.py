"""drift_curves: what growth is, and that a curve comes back from JSON."""

import json

import pytest

from compiler.base.records.drift_curves import DriftCurve, curve_of


@pytest.mark.parametrize(
    ("early", "late", "growth"),
    [(0.0, 0.0, 0.0), (1e-9, 5e-8, 0.42), (1e-3, 3e-3, 3.0), (1e-3, float("inf"), float("inf"))],
)
def test_growth_counts_from_what_rounding_leaves(early: float, late: float, growth: float) -> None:
    assert DriftCurve("y", False, 10, 0, 1.0, early, late, ()).growth == pytest.approx(growth, rel=0.01)


def test_curves_survive_json() -> None:
    errors = tuple(float(at) for at in range(3))
    for curve in (
        DriftCurve("y", True, 1000, 8, 1.5, 1e-3, 2e-3, errors),
        DriftCurve("y", False, 1000, 8, 1.5, 1e-3, float("inf"), (*errors, float("inf"))),
    ):
        assert curve_of(json.loads(json.dumps(curve.to_json(), allow_nan=False))) == curve
