"""emission: artefacts with all variants, with some, and before anything is rounded."""

import dataclasses
from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.build.lowering.emission import emit, emit_exact, emit_with, explain_variant, recall_variants
from compiler.build.lowering.lowering import lower
from compiler.errors import GateFailed, Refused
from compiler.targets.base import Built
from tests.kit.models.planned import planned_stream


def test_variants_are_reported_when_they_are_made_and_when_they_are_recalled(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path))
    built = emit(lowering)
    told = [report.stage for report in lowering.plan.progress.stages]
    assert told[-len(built.forms) :] == [outcome.variant for outcome in built.forms] != []
    again = planned_stream(tmp_path)
    recall_variants(lower(again))
    assert [report.stage for report in again.progress.stages][-len(built.forms) :] == told[-len(built.forms) :]


def test_artefacts_with_some_variants_have_those_alone(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path))
    assert emit_with(lowering, ()).forms == ()
    assert [outcome.variant for outcome in emit_with(lowering, ("merge_rows",)).forms] == ["merge_rows"]


def test_artefacts_before_rounding_hold_no_half_precision(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path, rounds=True))

    def has_half(built: Built) -> bool:
        values = [value for each in built.artifacts for node in each.lowered.model.graph for value in node.outputs]
        return ir.DataType.FLOAT16 in {value.dtype for value in values}

    assert has_half(emit(lowering)) and not has_half(emit_exact(lowering))


def test_a_bucket_outside_the_proved_lengths_is_refused_with_stage_and_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowering = lower(planned_stream(tmp_path))

    def refuse(*_: object) -> None:
        raise Refused("too long", cure="drop the bucket")

    monkeypatch.setattr("compiler.build.lowering.emission.check_buckets", refuse)
    with pytest.raises(Refused, match="stage onnx_static, graph net: too long"):
        emit(lowering)


def test_the_nodes_of_a_variant_are_searched_in_the_artefact_of_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowering, error = lower(planned_stream(tmp_path)), GateFailed("off", cure="none")
    searched = list[GateFailed]()

    def explained(failed: GateFailed, *_: object, **__: object) -> GateFailed:
        searched.append(failed)
        return failed

    monkeypatch.setattr("compiler.build.lowering.pass_parity.explained", explained)
    steps, limits = lowering.plan.original.steps(2), lowering.plan.gate
    one = emit_with(lowering, ())
    assert explain_variant(lowering, (), one, error, steps, limits, lambda done, total: None) is error
    assert len(searched) == 1
    several = dataclasses.replace(one, artifacts=one.artifacts[::-1])
    monkeypatch.setattr("compiler.build.lowering.emission.emit_with", lambda *_: several)
    assert explain_variant(lowering, (), several, error, steps, limits, lambda done, total: None) is error
    assert len(searched) == 1, "two rows are not searched"
