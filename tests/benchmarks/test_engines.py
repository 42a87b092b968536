"""engines: a row for every engine of a recipe, on doubles; the builder itself is run in tests/rtx."""

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import engines
from compiler.base.cache import store
from compiler.errors import DataError, Refused, ToolchainAbsent
from compiler.graph.operators.traits import PRODUCTS
from compiler.targets.base import EngineLayer, Part, TrialEngine
from compiler.targets.tensorrt import trial
from tests.kit.models.project import stream_project


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A graph of one screen in a folder of its own."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    stream_project(tmp_path, tmp_path / "cache").replace("stream.yaml", "{kind: onnx_static}", "{kind: tensorrt_rtx}")
    return "stream.yaml"


def test_without_the_builder_its_package_is_named(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, trial.PACKAGE, None)
    with pytest.raises(ToolchainAbsent, match="TensorRT-RTX builder: no package tensorrt_rtx; pip install tensorrt-"):
        engines.main(["--recipe", recipe])


class Builder:
    """Builds engines whose products compute in float32, the last of them in another type, and none for Turing."""

    def __init__(self, last: str = "float32") -> None:
        self.last = last
        self.builds = 0

    def __call__(self, bundle: Path, plan: Any, engine: Any, capabilities: Sequence[str]) -> tuple[TrialEngine, bytes]:
        if "7.5" in capabilities:
            raise Refused("no float32 for 7.5")
        self.builds += 1
        nodes = onnx.load(bundle / engine["graph"], load_external_data=False).graph.node
        *others, last = (node.name for node in nodes if node.op_type in PRODUCTS)
        kinds = {**dict.fromkeys(others, "float32"), last: self.last}
        layers = tuple(
            EngineLayer(node, frozenset({node}), True, frozenset({kind}), (), frozenset(), False)
            for node, kind in kinds.items()
        )
        content = bytes(1_000_000 + 10_000 * len(capabilities))
        device = f"compute capability {', '.join(capabilities)}"
        return TrialEngine("RTX", device, hashlib.sha256(content).hexdigest(), len(content), layers), content


def printed(
    arguments: list[str], builder: Builder, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> tuple[int, list[list[str]]]:
    """What the benchmark returns, and the cells of its rows."""
    part = Part("builder", trial.VERSION)
    monkeypatch.setattr(engines, "trial_part", lambda is_needed: part)
    monkeypatch.setattr("compiler.targets.tensorrt.rtx_target.trial_part", lambda is_needed: part)
    monkeypatch.setattr(trial, "built_trial", builder)
    failed = engines.main(arguments)
    rows = [line.strip("│\n").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return failed, [[cell.strip() for cell in row] for row in rows]


def test_a_row_says_what_the_layers_of_an_engine_compute_in(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, rows = printed(["--recipe", recipe], Builder(), monkeypatch, capsys)
    assert failed == 0
    assert [row[:3] for row in rows] == [
        ["stream", f"net, batch={size}", "compute capability 8.6, 8.9, 12.0"] for size in (1, 2)
    ]
    assert all(re.fullmatch(r"\d+\.\d", row[3]) for row in rows)
    assert [row[4:] for row in rows] == [["1.0", "2", "-", "-", "2 of 2"]] * 2
    failed, rows = printed(["--recipe", recipe], Builder("float16"), monkeypatch, capsys)
    assert (failed, [row[-1] for row in rows]) == (2, ["1 of 2"] * 2), "a failure for each engine"


def test_a_row_compares_an_engine_for_all_devices_with_those_for_each(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder()
    failed, rows = printed(["--recipe", recipe, "--capabilities", "8.6", "12.0"], builder, monkeypatch, capsys)
    assert (failed, builder.builds) == (0, 2 * 4)
    assert [row[2:] for row in rows] == [["1.01", "1.01", "1.02", "1.010", "same bytes"]] * 2
    failed, rows = printed(["--recipe", recipe, "--capabilities", "7.5"], builder, monkeypatch, capsys)
    assert (failed, rows[0][2]) == (2, "refused: no float32 for 7.5")


def test_a_recipe_for_other_devices_is_named(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(recipe).read_text()
    Path(recipe).write_text(text.replace("tensorrt_rtx", "onnx_static"))
    monkeypatch.setattr(engines, "trial_part", lambda is_needed: Part("builder", trial.VERSION))
    with pytest.raises(DataError, match=r"stream\.yaml: expected a target of TensorRT's, got none; correct --recipe"):
        engines.main(["--recipe", recipe])
