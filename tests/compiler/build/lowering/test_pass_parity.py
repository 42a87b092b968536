"""A graph after a pass answers as the original, or the pass is named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest

from compiler.build.lowering.pass_parity import PassParity
from compiler.build.verify.differences import Difference
from compiler.errors import GateFailed, Refused, SlipwayError
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from compiler.recipe.gates import LossyTolerance, ParityGate
from tests.kit.contract import recorded
from tests.kit.graphs import copy_of, feeds_of, parse, streaming


def parity(lowered: Lowered, tmp_path: Path, fault: SlipwayError | None = None) -> PassParity:
    gate = ParityGate(max_abs=1e-5, chained_steps=6, lossy=LossyTolerance(max_abs=0.5))
    steps = recorded(lowered, feeds_of(lowered, 6), 1)
    original: Any = SimpleNamespace(
        name="net", gate=gate, steps=lambda count: steps[:count], edges=list, fault=lambda feeds: fault
    )
    return PassParity(original, tmp_path / "failure")


def compared(
    held: PassParity, before: Lowered, after: Lowered, *, was_rounded: bool = False, is_rounded: bool = False
) -> tuple[Difference, float]:
    return held.compare(
        "simplify", before, after, lambda done, total: None, was_rounded=was_rounded, is_rounded=is_rounded
    )


def shift(lowered: Lowered) -> Lowered:
    """The attention is normalised along the wrong axis."""
    (node,) = [node for node in lowered.model.graph if node.op_type == "Softmax"]
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    return lowered


def test_the_worst_difference_and_what_is_allowed(tmp_path: Path) -> None:
    origin = streaming()
    worst, limit = compared(parity(origin, tmp_path), origin, copy_of(origin))
    assert worst.max_abs == 0.0 and limit >= 1e-5


def test_more_is_allowed_from_the_first_pass_on_that_rounds(tmp_path: Path) -> None:
    origin = streaming()
    _, limit = compared(parity(origin, tmp_path), origin, copy_of(origin), is_rounded=True)
    _, later = compared(parity(origin, tmp_path), origin, copy_of(origin), was_rounded=True, is_rounded=True)
    assert limit == later >= 0.5


def test_a_pass_that_breaks_parity_is_named_with_its_reproducer(tmp_path: Path) -> None:
    origin = streaming()
    with pytest.raises(GateFailed) as failed:
        compared(parity(origin, tmp_path), origin, shift(copy_of(origin)))
    assert "stage simplify, graph tiny, node weights_softmax" in str(failed.value) and "remove simplify" in str(
        failed.value
    )
    assert (tmp_path / "failure" / "reproduce.py").is_file()


def test_a_captured_graph_that_differs_is_its_originals_fault_or_the_exporters(tmp_path: Path) -> None:
    origin = streaming()
    held = parity(origin, tmp_path, Refused("the model draws random numbers"))
    with pytest.raises(Refused, match="draws random numbers"):
        compared(held, shift(origin), copy_of(origin))


def test_a_captured_graph_that_differs_by_rounding_alone_wants_looser_limits(tmp_path: Path) -> None:
    origin = streaming()
    held = parity(origin, tmp_path)
    with pytest.raises(
        GateFailed, match=r"stage capture.* kernels of torch and ONNX Runtime round differently; compare"
    ):
        compared(held, shift(origin), copy_of(origin))


def test_a_captured_graph_that_does_not_run_is_the_exporters_fault(tmp_path: Path) -> None:
    origin = streaming()
    held = parity(origin, tmp_path, Refused("torch's exporter has written a graph that ONNX Runtime does not run"))
    with pytest.raises(Refused, match="does not run"):
        compared(held, closed(origin), copy_of(origin))


def test_a_graph_that_does_not_run_though_it_was_captured_well_is_ours(tmp_path: Path) -> None:
    origin = streaming()
    with pytest.raises(Exception, match="Softmax"):
        compared(parity(origin, tmp_path, Refused("never said")), origin, closed(copy_of(origin)))


def closed(lowered: Lowered) -> Lowered:
    """The attention is normalised along an axis that there is not."""
    (node,) = [node for node in lowered.model.graph if node.op_type == "Softmax"]
    node.attributes["axis"] = ir.AttrInt64("axis", 9)
    return lowered


def test_a_pass_that_rounds_is_told_what_to_keep_and_not_to_report_it(tmp_path: Path) -> None:
    origin = streaming()
    held = parity(origin, tmp_path)
    held.gate = held.gate.model_copy(update={"lossy": LossyTolerance(max_abs=1e-4)})
    with pytest.raises(GateFailed) as failed:
        compared(held, origin, shift(copy_of(origin)), is_rounded=True)
    assert all(word in failed.value.cure for word in ("smooth_channels", "keep_float", "sqnr_db", "as far as"))
    assert "report" not in failed.value.cure


LABELLED = """(float[1,200,4] x) => (int64[1,200] labels) <float kept = {%s}> {
    ahead = Mul(x, kept)  scores = Add(ahead, x)  labels = ArgMax<axis = 2, keepdims = 0>(scores) }"""


@pytest.mark.parametrize(("flips", "is_rounded"), [(2, True), (3, True), (1, False)])
def test_labels_are_held_to_the_share_that_is_equal(
    tmp_path: Path, flips: int, is_rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Lowered("tiny", parse(LABELLED % 1.0), None, data_outputs=("labels",))
    held = parity(origin, tmp_path)
    steps = [_with_flips(step, flips) for step in recorded(origin, feeds_of(origin, 1), 1)]
    monkeypatch.setattr(held.original, "steps", lambda count: steps)
    monkeypatch.setattr(held, "require_captured", lambda *_: None)
    if flips == 2:
        worst, _ = compared(held, origin, copy_of(origin), is_rounded=is_rounded)
        assert worst.classes is not None and worst.classes.equal == 0.99 and worst.sqnr_db is None
        return
    with pytest.raises(
        GateFailed, match=rf"got {200 - flips} of 200 equal, the first other one at chained step 0: "
    ) as failed:
        compared(held, origin, copy_of(origin), is_rounded=is_rounded)
    assert f"gates.parity.net.{'lossy.' if is_rounded else ''}min_equal" in failed.value.cure


def _with_flips(step: OriginalCall, flips: int) -> OriginalCall:
    labels = step.outputs["labels"].copy()
    labels[0, :flips] += 9999
    return OriginalCall(step.feed, {"labels": labels}, step.states)
