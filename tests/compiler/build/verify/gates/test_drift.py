"""The gate on drift: of what grows a state is named before an output, and growth is asked for or not."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from compiler.base.records.drift_curves import DriftCurve
from compiler.build.verify.gates.drift import _Tally, chained_feeds, drift_findings, measure_drift, require_bounded
from compiler.errors import GateFailed
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Array, Feed, Lowered, State
from compiler.recipe.gates import DriftGate
from tests.kit.deep_stream import STEP, WIDTH, deep_stream, round_weights
from tests.kit.graphs import parse

SUM = """(float[1,4] x, float[1,4] total, float[1,4] level)
 => (float[1,4] y, float[1,4] next_total, float[1,4] next_level)
 <float kept = {%s}, float part = {0.5}> { old = Mul(total, kept) next_total = Add(old, x)
 half = Mul(level, part) next_level = Add(half, x) y = Add(next_total, next_level) }"""


GATE = DriftGate()


def summing(kept: float) -> Lowered:
    states = (State("total", "next_total", None), State("level", "next_level", None))
    return Lowered("net", parse(SUM % kept), None, states)


def curves(after: Lowered, before: Lowered, feeds: Iterable[Feed]) -> list[DriftCurve]:
    original = runner_of(before)

    def run(given: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for feed in given:
            outputs = original.step(feed)
            yield outputs, dict(original.states)

    return measure_drift(after, runner_of(after), run, feeds)


def chunks(name: str, shape: tuple[int, ...], count: int) -> list[Feed]:
    rng = np.random.default_rng(0)
    return [{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


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


def test_a_state_that_adds_up_its_error_is_named() -> None:
    found = curves(summing(1.0), summing(0.9999), chunks("x", (1, 4), 400))
    by_name = {curve.tensor: curve for curve in found}
    assert set(by_name) == {"y", "total", "level"}
    assert by_name["total"].growth > 1.5
    assert by_name["level"].growth == 0.0
    with pytest.raises(GateFailed, match=r"stage drift, graph net, tensor total: expected the error of total to stay "):
        require_bounded("net", found, GATE)


def test_an_error_that_stays_is_left_alone() -> None:
    found = curves(summing(0.5), summing(0.51), chunks("x", (1, 4), 400))
    assert require_bounded("net", found, GATE).growth < 1.5
    assert max(curve.early for curve in found) > 1e-3


def test_caches_of_a_window_are_judged_once_they_are_full() -> None:
    rounded = deep_stream(2)
    round_weights(rounded.model)
    found = curves(rounded, deep_stream(2), chunks("x_0", (1, STEP, WIDTH), 60))
    assert {curve.warm for curve in found} == {2}
    assert {curve.tensor for curve in found if curve.is_state} == {"cache_0", "cache_1"}
    assert require_bounded("net", found, GATE).growth < 1.5


def test_an_error_that_is_no_number_fails() -> None:
    found = curves(summing(float(np.float32(3e38))), summing(1.0), chunks("x", (1, 4), 20))
    with pytest.raises(GateFailed, match="total"):
        require_bounded("net", found, GATE)


def test_streams_are_chained_and_begin_again() -> None:
    streams = [chunks("x", (1,), 3), chunks("x", (1,), 2)]
    values = [float(feed["x"][0]) for feed in chained_feeds(streams, 12)]
    assert values[:5] == values[5:10] == [float(feed["x"][0]) for stream in streams for feed in stream]
    assert len(values) == 12


def test_a_curve_is_short() -> None:
    long = curves(summing(0.5), summing(0.51), chunks("x", (1, 4), 500))
    assert {len(curve.errors) for curve in long} == {200}


@pytest.mark.parametrize(("flips", "growth"), [((), 1.0), ((150,), 1.0), ((5, 150), 1.0), (range(100, 200, 2), 7.07)])
def test_classes_that_flip_seldom_do_not_drift(flips: Iterable[int], growth: float) -> None:
    """Of 200 calls with a label each: as many may differ as the limits allow, however far apart the labels are."""
    tally = _Tally(is_state=False)
    for call in range(200):
        tally.add(np.array([9999 if call in flips else call]), np.array([call]))
    assert tally.curve("labels", 0, 0.99).growth == pytest.approx(growth, abs=0.01)
    assert tally.curve("labels", 0, 1.0).growth > 1e6 or set(flips) in (set(), {5, 150})
