"""Promises of a recipe are numbers that can be kept or missed."""

from pathlib import Path

import pytest

from tests.kit.recipes import GOOD, changed, load, refusal

WRONG_VALUES = [
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: .nan",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a finite number, got .nan; change the value",
        id="tolerance that is no number",
    ),
    pytest.param(
        "max_abs: 1.0e-5",
        "max_abs: 0.0",
        "tiny.yaml:28: gates.parity.encoder.max_abs: expected a number above 0, got 0.0; change the value",
        id="tolerance of zero",
    ),
    pytest.param(
        "chained_steps: 100}",
        "chained_steps: 100, drift: {steps: 4}}",
        "tiny.yaml:28: gates.parity.encoder.drift.steps: expected a number of at least 8, got 4; change the value",
        id="drift of few steps",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_VALUES)
def test_wrong_value_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


def test_optional_parts(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        GOOD
        + """\
  task:
    recordings: data:recordings
    decode: decode:text
    metric: metric:wer
    max_increase: 0
  budget: {size_mb: 40}
front_end: {sample_rate_hz: 16000, dither: 0.0, window: povey, snip_edges: true}
""",
    )
    assert recipe.gates.task is not None
    assert recipe.gates.task.identical is False
    assert recipe.gates.budget is not None
    assert recipe.gates.budget.p95_ms is None
    assert recipe.front_end == {"sample_rate_hz": 16000, "dither": 0.0, "window": "povey", "snip_edges": True}


def test_kinds_of_edge_feeds_are_known_by_name(tmp_path: Path) -> None:
    text = changed("chained_steps: 100}", "chained_steps: 100, edges: [silence, noise]}")
    assert "gates.parity.encoder.edges.1: expected one of the known names, got 'noise'" in refusal(tmp_path, text)


def test_limits_of_a_target_take_the_place_of_those_of_all(tmp_path: Path) -> None:
    by_target = "chained_steps: 100, lossy: {max_abs: 0.1}, targets: {npu: {max_abs: 0.5, sqnr_db: 20}}}"
    gate = load(tmp_path, changed("chained_steps: 100}", by_target)).gates.parity["encoder"]
    assert gate.limits(lossy=True).max_abs == 0.1
    for label, limit in (("npu", 0.5), ("other", 0.1)):
        of_target = gate.for_target(label)
        assert (of_target.limits(lossy=True).max_abs, of_target.targets) == (limit, None)
        assert of_target.limits(lossy=False).max_abs == 1e-5
