"""reproducer: a folder that shows the defect without us, the same every time, replaced as a whole."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.build.culprits.records import Findings
from compiler.build.culprits.reproducer import failure_folder, remove_reproducer, reproducer_files, write_reproducer
from compiler.build.culprits.search import BEYOND, find_culprits
from compiler.errors import RecipeError
from compiler.graph.stages import Lowered
from compiler.passes.pack_states import PackStates
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.recipe.gates import Tolerance
from tests.kit.deep_stream import behind, change_weight, deep_stream, in_half, steps_of
from tests.kit.models.project import digest_of

LAYERS = 3
STEPS = steps_of(deep_stream(LAYERS), 4)


def searched(after: Lowered, before: Lowered | None = None) -> Findings:
    found = find_culprits(before or deep_stream(LAYERS), after, STEPS, Tolerance(max_abs=1e-3))
    assert found is not None
    assert found.culprits
    return found


def broken() -> Lowered:
    after = deep_stream(LAYERS)
    change_weight(after.model, "wk_1", 2.0)
    return after


def padded() -> Lowered:
    return WindowStates().apply(PadAxes().apply(deep_stream(LAYERS)).lowered).lowered


def run(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(folder / "reproduce.py")], capture_output=True, text=True, cwd=folder.parent
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_script_shows_the_difference_and_nothing_once_it_is_mended(tmp_path: Path) -> None:
    script = write_reproducer(searched(broken()), tmp_path / "bundle.failure", "some_pass", BEYOND)
    code, said = run(script.parent)
    assert code == 1
    assert "key_1 (MatMul key_1_matmul, tiny.py:" in said
    assert said.endswith("differs\n")
    found = json.loads((script.parent / "findings.json").read_text())
    assert (found["stage"], found["graph"]) == ("some_pass", "net")
    assert found["culprits"][0]["before"][-1]["tensor"] == "key_1"
    (script.parent / "after.onnx").write_bytes((script.parent / "before.onnx").read_bytes())
    inputs = dict(np.load(script.parent / "inputs.npz"))
    np.savez(script.parent / "inputs.npz", **inputs)
    assert run(script.parent) == (0, run(script.parent)[1])


def test_only_the_region_is_cut_out() -> None:
    files = reproducer_files(searched(broken()), "some_pass", BEYOND)
    assert len(files["after.onnx"]) < 4_000
    graphs = ["after.onnx", "after.weights", "before.onnx", "before.weights"]
    assert sorted(files) == [*graphs, "findings.json", "inputs.npz", "reproduce.py"]


def test_the_folder_is_the_same_every_time_and_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "bundle.failure"
    write_reproducer(searched(broken()), folder, "some_pass", BEYOND)
    first = digest_of(folder)
    (folder / "after.weights").write_text("of another failure")
    write_reproducer(searched(broken()), folder, "some_pass", BEYOND)
    assert digest_of(folder) == first
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.failure"]


def test_caches_that_are_not_full_are_cut(tmp_path: Path) -> None:
    after = padded()
    change_weight(after.model, "wv_1", 2.0)
    code, said = run(write_reproducer(searched(after), tmp_path / "f", "pad_axes", BEYOND).parent)
    assert (code, "value_1 (MatMul" in said) == (1, True)


def test_half_precision_is_rounded_on_any_machine(tmp_path: Path) -> None:
    after = deep_stream(LAYERS)
    behind(after.model, "up_1", "Mul", np.array(60_000, np.float32), "big")
    in_half(after.model)
    code, said = run(write_reproducer(searched(after), tmp_path / "f", "halve", BEYOND).parent)
    assert (code, "root mean square of the difference inf" in said) == (1, True)


def test_states_that_are_reshaped_are_compared_with_what_is_expected(tmp_path: Path) -> None:
    after = PackStates().apply(padded()).lowered
    state = after.states[0]
    behind(after.model, state.output, "Mul", np.array(2, np.float32), "doubled")
    doubled = next(node.outputs[0] for node in after.model.graph if node.outputs[0].name == "doubled")
    outputs = after.model.graph.outputs
    index = [value.name for value in outputs].index(state.output)
    outputs[index].name, doubled.name = "packed_before", state.output
    outputs[index] = doubled
    found = searched(after, padded())
    assert [each.local.tensor for each in found.culprits] == [state.output]
    folder = write_reproducer(found, tmp_path / "f", "pack_states", BEYOND).parent
    assert not (folder / "before.onnx").exists()
    assert run(folder)[0] == 1


def test_only_what_is_ours_is_removed(tmp_path: Path) -> None:
    folder = failure_folder(tmp_path / "dist" / "tiny")
    assert folder == tmp_path / "dist" / "tiny.failure"
    remove_reproducer(folder)
    folder.mkdir(parents=True)
    (folder / "reproduce.py").write_text("of a failure whose other files are gone")
    remove_reproducer(folder)
    assert not folder.exists()
    write_reproducer(searched(broken()), folder, "some_pass", BEYOND)
    (folder / "notes").write_text("of somebody else")
    remove_reproducer(folder)
    with pytest.raises(RecipeError, match="expected what an earlier failure has left, or nothing, got notes"):
        write_reproducer(searched(broken()), folder, "some_pass", BEYOND)
    assert (folder / "notes").exists()
    (folder / "notes").unlink()
    remove_reproducer(folder)
    assert not folder.exists()


@pytest.mark.parametrize("word", ["torch", "onnx_ir", "compiler"])
def test_the_script_needs_nothing_of_ours(word: str) -> None:
    assert (
        f"import {word}"
        not in bytes(reproducer_files(searched(broken()), "some_pass", BEYOND)["reproduce.py"]).decode()
    )
