"""lowering: which stages run again, and which pass and node broke a graph."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.models.project import ALWAYS, Project, digest_of
from tests.kit.sabotage import Spoil, sabotage

ROOT = Path(__file__).resolve().parents[4]


REBUILD = """
import sys, build
code = build.main(sys.argv[1:])
print("torch" in sys.modules, file=sys.stderr)
sys.exit(code)
"""


def test_rebuild_in_a_new_process_runs_no_stage_and_imports_no_framework(shared: Project, project: Project) -> None:
    options = ["--recipe", "tiny.yaml", "--out", "again", "--cache", str(project.cache), "--report", "r.json"]
    done = subprocess.run(
        [sys.executable, "-c", REBUILD, *options],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "False\n")
    report = json.loads((project.folder / "r.json").read_text())
    assert [f":{stage['stage']}" for stage in report["stages"] if not stage["cached"]] == ALWAYS
    assert digest_of(project.folder / "again") == digest_of(shared.folder / "bundle")


PASSES = [
    "simplify",
    "canonicalize_reshapes",
    "simplify",
    "merge_first_call",
    "select_states",
    "pad_axes",
    "window_states",
    "project_positions",
    "pack_states",
    "simplify",
]


LOWERED = [f"net:{name}" for name in PASSES]


FORMS = [f"net:{form.name}" for form in OnnxStatic().planned("net", lossy=False).plan]


SHIPPED = ["net:onnx_static", *FORMS, "net:verify", "net:invariance", ":replay", "net:task", ":speed", ":budget"]


def checkpoint_byte(project: Project) -> None:
    path = project.folder / "tiny.safetensors"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        pytest.param(lambda p: p.write("level.txt", "2.0"), (), ["net:data", *LOWERED, *SHIPPED], id="data file"),
        pytest.param(
            lambda p: p.replace("tiny_data.py", "default_rng(seed)", "default_rng(seed + 1)"),
            (),
            ["net:data", *LOWERED, *SHIPPED],
            id="code of the data",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            checkpoint_byte,
            (),
            ["net:capture", *LOWERED, *SHIPPED],
            id="one bit of the checkpoint",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda p: p.replace("tiny_asr.py", "functional.silu", "functional.gelu"),
            (),
            ["net:capture", *LOWERED, *SHIPPED],
            id="code of the model",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda p: p.replace("tiny_task.py", "label) for", "label + 1) for"), (), SHIPPED, id="code of the task"
        ),
        pytest.param(lambda p: None, ("--set", "front_end.hop=5"), SHIPPED, id="front end"),
        pytest.param(lambda p: None, ("--set", "gates.budget.size_mb=2"), SHIPPED, id="budget"),
        pytest.param(
            lambda p: p.replace("tiny.yaml", "      - pack_states\n      - simplify\n", "      - pack_states\n"),
            (),
            SHIPPED,
            id="last pass removed",
        ),
        pytest.param(
            lambda p: p.replace(
                "tiny.yaml",
                "      - pack_states\n      - simplify\n",
                "      - pack_states\n      - simplify: {rounds: 3}\n",
            ),
            (),
            ["net:simplify", *SHIPPED],
            id="option of the last pass",
        ),
        pytest.param(
            lambda p: None,
            ("--set", "gates.parity.net.max_abs=2.0e-5"),
            [*LOWERED, *SHIPPED],
            id="tolerance",
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda p: p.write("unrelated.txt", "x"), (), ALWAYS, id="nothing that matters"),
    ],
)
def test_change_runs_exactly_what_it_must(
    change: Callable[[Project], None], options: tuple[str, ...], expected: list[str], project: Project
) -> None:
    change(project)
    ended = project.build(*options)
    assert ended.code == 0, ended.err
    assert ended.stages(cached=False) == expected


@pytest.mark.slow
def test_failed_stage_is_not_remembered(project: Project) -> None:
    project.replace("tiny_task.py", 'return "".join', 'raise OSError("no")  # ')
    assert [project.build().code, project.build().code] == [2, 2]


def scale_one_product(model: ir.Model) -> None:
    """A MatMul of the second block answers 1.01 times too much."""
    node = [node for node in model.graph if node.op_type in ("MatMul", "Gemm")][6]
    insert = graphs.Inserter(model, "test")
    old = node.outputs[0]
    uses = list(old.uses())
    insert.before = uses[0].node
    scaled = insert.op("Mul", [old, insert.constant(np.array(1.01, np.float32), "too_much")], name="scaled")
    for use in uses:
        use.node.replace_input_with(use.idx, scaled)


def shift_position_rows(model: ir.Model) -> None:
    """Every frame gets the row of its neighbour."""
    gather = next(
        node for node in model.graph if node.op_type == "Gather" and graphs.array_of(node.inputs[0]) is not None
    )
    table = graphs.array_of(gather.inputs[0])
    assert table is not None
    insert = graphs.Inserter(model, "test", before=gather)
    gather.replace_input_with(0, insert.constant(np.roll(table, 1, axis=0), "shifted"))


def test_padding_that_is_not_what_its_certificate_says_is_stopped_by_the_checker(
    shared: Project, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shared.folder / "bundle", project.folder / "bundle")
    before = digest_of(project.folder / "bundle")
    sabotage(monkeypatch, "pad_axes", shift_position_rows)
    ended = project.build("--set", "gates.parity.net.max_abs=1.1e-5")
    assert ended.code == 4, ended.err
    for word in ("stage pad_axes, graph net", "record of 'node_slice", "row 0 differs from the row alone", "checker"):
        assert word in ended.message
    assert digest_of(project.folder / "bundle") == before


def cut_the_wrong_end(model: ir.Model) -> None:
    """The oldest frames are kept instead of the newest."""
    cut = next(node for node in model.graph if node.outputs[0].name == "next_cache_1" or "newest" in str(node.name))
    insert = graphs.Inserter(model, "test", before=cut)
    cut.replace_input_with(1, insert.int64s(0))
    cut.replace_input_with(2, insert.int64s(8))


def sum_one_softmax_over_rows(model: ir.Model) -> None:
    """The attention of the second block is normalised along the wrong axis."""
    node = [node for node in model.graph if node.op_type == "Softmax"][1]
    node.attributes["axis"] = ir.AttrInt64("axis", 2)


@pytest.mark.parametrize(
    ("name", "spoil", "op"),
    [
        ("canonicalize_reshapes", scale_one_product, "Mul"),
        ("canonicalize_reshapes", sum_one_softmax_over_rows, "Softmax"),
        ("merge_first_call", sum_one_softmax_over_rows, "Softmax"),
        ("window_states", cut_the_wrong_end, "Slice"),
    ],
)
def test_broken_pass_is_named_with_the_node_to_blame_and_a_reproducer(
    name: str, spoil: Spoil, op: str, shared: Project, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shared.folder / "bundle", project.folder / "bundle")
    before = digest_of(project.folder / "bundle")
    sabotage(monkeypatch, name, spoil)
    ended = project.build("--set", "gates.parity.net.max_abs=1.1e-5")  # another key: nothing from the cache
    assert ended.code == 4, ended.err
    for word in (
        f"stage {name}, graph net, node ",
        f", op {op}, tensor ",
        "source tiny_asr.py:",
        " in forward",
        "; 1 node is to blame of ",
        "times what rounding explains",
        "without it the gate holds",
        f"remove {name} from the recipe's passes",
    ):
        assert word in ended.message, ended.message
    assert digest_of(project.folder / "bundle") == before
    seen = subprocess.run([sys.executable, "bundle.failure/reproduce.py"], cwd=project.folder, capture_output=True)
    assert (seen.returncode, seen.stderr) == (1, b"")
    monkeypatch.undo()
    assert project.build().code == 0
    assert not (project.folder / "bundle.failure").exists(), "a build that succeeds leaves no old failure behind"
