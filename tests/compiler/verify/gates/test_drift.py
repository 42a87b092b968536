"""The gate on drift: of what grows a state is named before an output, and growth is asked for or not."""

import pytest

from compiler.errors import GateFailed
from compiler.recipe.gates import DriftGate
from compiler.records.drift_curves import DriftCurve
from compiler.verify.gates.drift import drift_findings, require_bounded

GATE = DriftGate()


def test_states_that_are_all_over_the_place_do_not_hide_an_output() -> None:
    curve = DriftCurve("y", False, 100, 0, 1.0, 1e-3, 1e-2, ())
    with pytest.raises(GateFailed, match=r"error of y to stay within 1\.5 times its first half over 100"):
        require_bounded("net", [curve, DriftCurve("total", True, 100, 0, 1.0, 1e-3, 1e-3, ())], GATE)


def test_every_curve_is_a_finding() -> None:
    grows, stays = (DriftCurve(name, True, 100, 0, 1.0, 1e-3, late, ()) for name, late in (("a", 2e-3), ("b", 1e-3)))
    assert [(each.subject, each.measured, each.holds) for each in drift_findings("net", [grows, stays], GATE)] == [
        ("a", 2.0, False),
        ("b", 1.0, True),
    ]
