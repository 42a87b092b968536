"""Whole builds of a recogniser of twelve blocks with passes that break it: the right node and its line are named."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from tests.kit.deep_stream import behind, round_to_bits
from tests.kit.models.project import HERE, Project
from tests.kit.sabotage import sabotage

BLOCKS = 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The recogniser of one screen with twelve blocks, built once."""
    folder = tmp_path_factory.mktemp("deep")
    project = Project(folder / "project", folder / "cache")
    project.folder.mkdir()
    for name in ("tiny_asr.py", "tiny_data.py", "tiny_task.py", "tiny.yaml"):
        (project.folder / name).write_bytes((HERE / name).read_bytes())
    project.write("level.txt", "1.0\n")
    project.replace("tiny_asr.py", "8, 2, 4, 2, 40, 3, 64", f"8, 2, 4, {BLOCKS}, 40, 3, 64")
    text = (project.folder / "tiny.yaml").read_text().replace("{0..1}", f"{{0..{BLOCKS - 1}}}")
    text = text.replace(", checkpoint: tiny.safetensors", "")
    text = text[: text.index("  task:")].replace("kind: onnx_static", 'kind: "null"')
    project.write("tiny.yaml", text)
    ended = project.build("--set", "gates.parity.net.max_abs=1.0e-4")
    assert ended.code == 0, ended.err
    return project


def softmax_of(block: int) -> Callable[[ir.Model], ir.Node]:
    return lambda model: [node for node in model.graph if node.op_type == "Softmax"][block]


def over_rows(model: ir.Model) -> None:
    softmax_of(6)(model).attributes["axis"] = ir.AttrInt64("axis", 2)


def wrong_weight(model: ir.Model) -> None:
    (convolution,) = [node for node in model.graph if node.op_type == "Conv"][7:8]
    weight = convolution.inputs[1]
    array = graphs.array_of(weight)
    assert weight is not None and array is not None
    new = graphs.Inserter(model, "test", before=convolution).constant(np.roll(array, 1, axis=0), "rolled")
    convolution.replace_input_with(1, new)


def few_bits(model: ir.Model) -> None:
    round_to_bits(model, str(softmax_of(5)(model).outputs[0].name), 6, low=0.0, high=1.0)


def too_large(model: ir.Model) -> None:
    behind(model, str(softmax_of(8)(model).outputs[0].name), "Mul", np.array(1.01, np.float32), "too_large")


def two(model: ir.Model) -> None:
    over_rows(model)
    wrong_weight(model)


CASES = [
    pytest.param("canonicalize_reshapes", over_rows, {"Softmax": "self.attend(joined, positions)"}, id="axis"),
    pytest.param("select_states", wrong_weight, {"Conv": "self.depthwise"}, id="weight"),
    pytest.param("window_states", few_bits, {"Add": "self.attend(joined, positions)"}, id="bits"),
    pytest.param("project_positions", too_large, {"Mul": "self.attend(joined, positions)"}, id="scale"),
    pytest.param("pack_states", two, {"Softmax": "self.attend", "Conv": "self.depthwise"}, id="two at once"),
]


@pytest.mark.parametrize(("name", "spoil", "expected"), CASES)
def test_the_broken_node_of_twelve_blocks_is_named(
    name: str,
    spoil: Callable[[ir.Model], None],
    expected: dict[str, str],
    deep: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = deep.copy_to(tmp_path / "project")
    sabotage(monkeypatch, name, spoil)
    ended = project.build("--set", "gates.parity.net.max_abs=1.1e-4")
    assert ended.code == 4, ended.err
    assert f"stage {name}, graph net, node " in ended.message
    found = json.loads((project.folder / "bundle.failure/findings.json").read_text())
    assert {each["op"] for each in found["culprits"]} == set(expected), ended.message
    for each in found["culprits"]:
        assert expected[each["op"]] in each["source"], each["source"]
    assert "the gate holds" in ended.message
    done = subprocess.run([sys.executable, "bundle.failure/reproduce.py"], cwd=project.folder, capture_output=True)
    assert done.returncode == 1, done.stderr
