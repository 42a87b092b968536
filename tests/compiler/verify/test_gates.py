"""The gates on what ships: each holds when it should, and fails with what was promised and what was found."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import GateFailed
from compiler.recipe.gates import BudgetGate, ParityGate
from compiler.records.build_report import SpeedRow
from compiler.stages import Lowered
from compiler.targets.base import Emitted
from compiler.verify import gates
from compiler.verify.differences import Difference
from tests.kit.models.project import Project, digest_of
from tests.kit.models.shared import shared_project

GATE = ParityGate(max_abs=1e-5, chained_steps=4)


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return shared_project(tmp_path_factory).copy_to(tmp_path / "project")


def emitted(folder: Path, text: str, sizes: dict[str, int], batch: str | None = "batch") -> Emitted:
    """A graph from text as an artefact."""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\ng {text}')
    name = "_".join(["g", *map(str, sizes.values())]) + ".onnx"
    (folder / name).write_bytes(ir.to_proto(model).SerializeToString())
    return Emitted(sizes, name, (), Lowered("net", model, batch_axis=batch))


def relu(rows: int) -> str:
    return f"(float[{rows},2] x) => (float[{rows},2] y) {{ y = Relu(x) }}"


def feeds(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    numbers = np.random.default_rng(seed).standard_normal((count, 1, 2)).astype(np.float32)
    return [{"x": chunk} for chunk in numbers]


def test_parity_names_the_tensor_that_uses_most_of_its_limit() -> None:
    fine, wide = Difference("a", 4, 9e-6, 1.0, 0, 0, 0), Difference("b", 4, 2e-5, 1.0, 3, 0, 0)
    gates.require_parity("net", "verify", [fine], GATE, "report it")
    with pytest.raises(GateFailed) as caught:
        gates.require_parity("net", "verify", [fine, wide], GATE, "report it")
    assert "tensor b" in str(caught.value)
    assert "difference of 2e-05 at chained step 3; report it" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "int64", "int8", "bool"])
def test_speed_is_measured_on_every_type(dtype: str, tmp_path: Path) -> None:
    artefact = emitted(tmp_path, f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ y = Identity(x) }}", {"batch": 1})
    (row,) = gates.measure_speed(tmp_path, [artefact], "net")
    assert (row.graph, row.sizes, row.threads) == ("net", "batch=1", 1)
    assert 0 < row.p50_ms <= row.p95_ms


SPEED = [SpeedRow("net", "batch=1", 1.0, 2.0, 1), SpeedRow("net", "batch=16", 10.0, 20.0, 1)]


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (None, None),
        (BudgetGate(), None),
        (BudgetGate(size_mb=1.0, p95_ms=2.0), None),
        (BudgetGate(size_mb=0.5), "at most 0.5 MB, got 1.0 MB; raise gates.budget.size_mb"),
        (BudgetGate(p95_ms=1.5), "within 1.5 ms (p95), got 2.00 ms at batch=1; raise gates.budget.p95_ms"),
    ],
)
def test_budget_counts_all_bytes_and_the_smallest_bucket(gate: BudgetGate | None, words: str | None) -> None:
    if words is None:
        gates.check_budget(gate, 1_000_000, SPEED)
        return
    with pytest.raises(GateFailed) as caught:
        gates.check_budget(gate, 1_000_000, SPEED)
    assert words in str(caught.value)


FORGETFUL = """
CALLS = [0]


def decode(outputs: list[Feed]) -> str:
    CALLS[0] += 1
    return SAID[CALLS[0] % 2]  # original, bundle, original, bundle
"""


@pytest.mark.parametrize(
    ("said", "max_increase", "code", "words"),
    [
        (["B" * 32, "A" * 32], 0.0, 4, "expected 2 identical results, got 2 others: ['r0', 'r1']"),
        (["C" * 32, "A" * 32], 0.4, 4, "expected error_rate to rise by at most 0.4, got 0.5 (0.5000 to 1.0000)"),
        (["A" * 32, "C" * 32], 0.0, 4, "expected 2 identical results"),
        (["A" * 32, "A" * 32], 0.0, 0, ""),
    ],
)
def test_task_gate(said: list[str], max_increase: float, code: int, words: str, project: Project) -> None:
    text = (project.folder / "tiny_task.py").read_text()
    body = text[: text.index("def decode")] + f"SAID = {said}\n" + FORGETFUL + "\n\n" + text[text.index("def error") :]
    project.write("tiny_task.py", body)
    first = project.build("--set", f"gates.task.max_increase={max_increase}")
    assert first.code == code, first.err
    assert words in first.message
    assert code == 0 or "stage task" in first.message
    assert (project.folder / "bundle").exists() == (code == 0)


def test_task_that_need_not_be_identical_reports_how_many_are(project: Project) -> None:
    text = (project.folder / "tiny_task.py").read_text()
    said = ["A" * 31 + "B", "A" * 32]
    body = text[: text.index("def decode")] + f"SAID = {said}\n" + FORGETFUL + "\n\n" + text[text.index("def error") :]
    project.write("tiny_task.py", body)
    ended = project.build("--set", "gates.task.identical=false", "--set", "gates.task.max_increase=0.1")
    assert ended.code == 0, ended.err
    assert (ended.report["task"]["identical"], ended.report["task"]["recordings"]) == (0, 2)
    assert digest_of(project.folder / "bundle")
