"""The gate on forms: what rounds on purpose loses nothing by them; a form that does is refused, and named."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.differences import Difference
from compiler.build.verify.gates.forms import EXACT_DB, HALF_DB, LOSS, variant_findings
from compiler.calib.classes import Agreement
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.numerics.quantization.held_weights import INTEGER_PRODUCT
from compiler.passes.lower_integers import LowerIntegers
from compiler.targets import TARGETS
from compiler.targets.forms import Variant
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.formed import ToyStatic
from tests.kit.models.project import Ended, Project, stream_project
from tests.kit.models.quantised import quantised

STATIC = "quantize_static: {pins: []}"


def difference(tensor: str, sqnr_db: float | None) -> Difference:
    return Difference(tensor, 24, 1e-3, 1.0, 0, 0.0, 0.0, sqnr_db)


@pytest.mark.parametrize(
    ("complete", "plain", "lost"),
    [
        (33.5, 33.0, -0.5),
        (32.0, 33.0, 1.0),
        (31.9, 33.0, 1.1),
        (None, None, 0.0),
        (124.0, 131.0, 0.0),
        (124.0, None, 0.0),
        (40.0, None, EXACT_DB - 40.0),
        (float("-inf"), 30.0, float("inf")),
        (float("-inf"), float("-inf"), float("nan")),
    ],
)
def test_a_loss_is_counted_down_to_the_noise_of_sums_of_float32(
    complete: float | None, plain: float | None, lost: float
) -> None:
    (found,) = variant_findings("net", [difference("y", complete)], [difference("y", plain)], 1.0)
    assert found.measured == pytest.approx(lost, nan_ok=True)
    assert found.holds == (lost <= 1.0)
    assert found.figures == {"steps": 24, "sqnr_db": complete, "sqnr_db_without_forms": plain}


def test_classes_lose_nothing_that_is_measured_in_decibels() -> None:
    labels = dataclasses.replace(difference("labels", None), classes=Agreement(100, 1, "3 at [0], not 9", 0))
    assert list(variant_findings("net", [labels], [labels], 1.0)) == []


@pytest.mark.parametrize(("complete", "plain", "lost"), [(67.0, 71.0, 0.0), (60.0, 71.0, 2.0), (61.5, None, 0.5)])
def test_in_half_precision_a_loss_is_counted_down_to_one_rounding_more(
    complete: float, plain: float | None, lost: float
) -> None:
    given = [difference("y", complete)], [difference("y", plain)]
    (found,) = variant_findings("net", *given, 1.0, exact_db=HALF_DB[ir.DataType.FLOAT16])
    assert found.measured == pytest.approx(lost)


def test_both_figures_and_the_states_of_a_packed_tensor_are_named() -> None:
    parts = {"packed": ("k0", "v0")}
    (found,) = variant_findings("net", [difference("packed", None)], [difference("packed", 33.04)], 1.0, parts)
    assert found.detail == "states k0, v0; no noise with forms, 33.0 dB without"


@dataclasses.dataclass(frozen=True)
class Mistaken:
    """The form that lowers integers, but for the scale of the data of a product."""

    name: ClassVar[str] = LowerIntegers.name
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        outcome = LowerIntegers().apply(lowered)
        model = outcome.lowered.model
        node = next(node for node in graphs.nodes_of(model) if node.op_type == INTEGER_PRODUCT)
        scale = graphs.array_of(node.inputs[2])
        assert scale is not None
        wrong = graphs.Inserter(model, self.name, before=node).constant((scale * np.float32(1.03)), "wrong")
        node.replace_input_with(2, wrong)
        return outcome


@dataclasses.dataclass(frozen=True)
class MistakenStatic(OnnxStatic):
    """ONNX Runtime with that form."""

    offers: ClassVar[tuple[Variant, ...]] = tuple(
        Variant(Mistaken(), is_standard=True) if variant.name == Mistaken.name else variant
        for variant in OnnxStatic.offers
    )


def rows_of(ended: Ended) -> list[dict[str, Any]]:
    return [row for row in ended.report["gates"] if row["gate"] == LOSS]


def test_what_is_lowered_keeps_its_ratio_and_table_and_report_have_both(project: Project) -> None:
    ended = quantised(project, STATIC)
    assert ended.code == 0, ended.err
    by_name = {row["subject"]: row for row in rows_of(ended)}
    assert by_name.keys() >= {"logits"}
    for row in by_name.values():
        assert row["holds"] is True and row["limit"] == 1.0
    ratios = [by_name["logits"]["figures"][key] for key in ("sqnr_db", "sqnr_db_without_forms")]
    assert all(20.0 < ratio < 80.0 for ratio in ratios)
    assert f"{ratios[0]:.1f} dB with forms, {ratios[1]:.1f} dB without" in ended.out


def test_a_wrong_scale_within_the_limits_of_parity_is_refused_and_the_form_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TARGETS, "onnx_static", MistakenStatic)
    ended = quantised(project, STATIC)
    assert ended.code == 4, ended.out
    assert "stage lower_integers, graph net, tensor logits: expected logits with the target's forms" in ended.message
    assert " dB with forms, " in ended.message and " dB without" in ended.message
    assert "the limit is gates.parity.net.max_form_loss_db" in ended.message
    assert "before the form lower_integers it holds; take it out" in ended.message
    assert all(row["holds"] for row in ended.report["gates"] if row["gate"] == "parity.max_abs")
    assert not (project.folder / "bundle").exists()
    held = project.build("--set", "gates.parity.net.max_form_loss_db=40", recipe="stream.yaml")
    assert held.code == 0, held.err


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A graph of one screen that no pass rounds, for a target with toy forms."""
    monkeypatch.setitem(TARGETS, "onnx_static", ToyStatic)
    return stream_project(tmp_path / "project", tmp_path / "cache")


@pytest.mark.parametrize(
    ("forms", "is_held"),
    [
        ("[swap_operands]", False),  # nothing rounds on purpose
        ("[round_operand]", False),  # every form does
        ("[scale_operand.by_one, round_operand]", True),
        ("[refuse_all, round_operand]", False),  # what does not has changed nothing
    ],
)
def test_forms_that_round_on_purpose_are_on_both_sides(forms: str, is_held: bool, stream: Project) -> None:
    ended = stream.build(
        "--set", f"targets.0.forms={forms}", "--set", "gates.parity.net.lossy={max_abs: 0.01}", recipe="stream.yaml"
    )
    assert ended.code == 0, ended.err
    assert bool(rows_of(ended)) == is_held
    assert all(abs(row["measured"]) < 0.5 for row in rows_of(ended))
