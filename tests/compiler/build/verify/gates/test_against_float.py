"""The gate on what rounding saves: time and size are held to their bounds, where a pass has rounded."""

from unittest import mock

import pytest

from compiler.base.records.timings import Ratio
from compiler.build.verify.gates.against_float import check_ratios
from compiler.errors import GateFailed
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.gates import BudgetGate
from tests.kit.models.project import Project
from tests.kit.models.quantised import quantised


def test_bounds_on_time_and_size() -> None:
    gate = BudgetGate(max_time_ratio=0.5, max_size_ratio=0.35)
    good, slow = Ratio("batch1", 0.5, 0.45, 0.55, 0.49, 0.5, 30), Ratio("batch16", 0.51, 0.4, 0.6, 0.504, 0.52, 45)
    check_ratios(gate, [good], 0.35, "net")
    with pytest.raises(
        GateFailed, match=r"at most 0\.5 of the time before rounding, got batch16 0\.51 .*within 0\.504"
    ):
        check_ratios(gate, [good, slow], 0.3, "net")
    with pytest.raises(GateFailed, match=r"at most 0\.35 of the bytes"):
        check_ratios(gate, [good], 0.36, "net")
    check_ratios(BudgetGate(size_mb=1.0), [slow], 2.0, "net")


def test_what_is_quantised_runs_on_integers_and_is_timed_beside_itself(project: Project) -> None:
    with mock.patch.object(PadAxes, "apply", autospec=True, side_effect=PadAxes.apply) as padded:
        ended = quantised(project, "quantize_static: {pins: []}", ", max_time_ratio: 100, max_size_ratio: 100")
    assert ended.code == 0, ended.err
    assert "1 integer kernels; time batch=1 " in ended.out and "steps replayed" in ended.out
    assert padded.call_count == 1  # what is compared with is the graph that has come by, not one made anew


def test_a_bound_that_is_not_kept_fails_the_build(project: Project) -> None:
    ended = quantised(project, "quantize_static: {pins: []}", ", max_size_ratio: 0.001")
    assert ended.code == 4, ended.out
    assert "stage against float, graph net: expected at most 0.001 of the bytes before rounding, got " in ended.message
    (row,) = (row for row in ended.report["gates"] if row["gate"] == "budget.max_size_ratio")
    assert row["holds"] is False and row["measured"] > row["limit"] == 0.001
    assert not (project.folder / "bundle").exists()
