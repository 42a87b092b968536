"""plan: which keys follow from what, and which results are known."""

from pathlib import Path

from compiler.build.lowering.emission import emit
from compiler.build.lowering.lowering import lower
from compiler.targets.forms import SEARCH
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.models.planned import planned_stream


def test_a_plan_is_known_once_graph_and_artefacts_have_been_made(tmp_path: Path) -> None:
    plan = planned_stream(tmp_path)
    assert not plan.is_known()
    lowering = lower(plan)
    assert not plan.is_known(), "the artefacts are still to be written"
    emit(lowering)
    assert plan.is_known() and planned_stream(tmp_path).is_known()


def test_options_of_the_target_change_the_key_of_the_artefacts_alone(tmp_path: Path) -> None:
    plan, other = planned_stream(tmp_path), planned_stream(tmp_path, OnnxStatic(forms=()))
    assert plan.key == other.key == plan.passes[-1].key
    assert plan.target_key != other.target_key


def test_a_search_is_recalled_with_the_variants_that_it_found(tmp_path: Path) -> None:
    searching = OnnxStatic(forms=SEARCH, search_s=0.5)
    plan = planned_stream(tmp_path, searching)
    assert plan.target.searches and not plan.is_known()
    lowered = lower(plan)
    again = planned_stream(tmp_path, searching)
    assert again.searched is not None and lowered.plan.searched is not None
    assert again.searched.plan == lowered.plan.searched.plan
    assert not again.target.searches and again.target_key == lowered.plan.target_key


def test_a_plan_rounds_if_one_of_its_passes_does(tmp_path: Path) -> None:
    assert not planned_stream(tmp_path / "exact").is_rounded
    rounding = planned_stream(tmp_path / "rounding", rounds=True)
    assert rounding.is_rounded and [planned.is_rounded for planned in rounding.passes][-2:] == [False, True]
