"""Whole builds of the recogniser of one screen: what is built, what the cache knows, and who is blamed."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from compiler import ir as house
from compiler import passes
from compiler.stages import Lowered, Outcome
from tests.kit.models.project import Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.models.tiny_graph import outside_weight, step_by_hand, stream_model
from tests.kit.models.tiny_task import one_recording

ROOT = Path(__file__).resolve().parents[2]

TIMES = ("costs.json",)
"""What may differ between equal builds."""


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Built once; not to be changed."""
    return shared_project(tmp_path_factory)


@pytest.fixture
def project(shared: Project, tmp_path: Path) -> Project:
    """A copy to change, with the same cache."""
    return shared.copy_to(tmp_path / "project")


def answers(bundle: Path, graph: str, chunks: list[dict[str, Any]], output: str = "logits") -> list[np.ndarray]:
    """What a user gets chunk by chunk."""
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(bundle)
        with model.open_stream(graph) as opened:
            return [opened.push(chunk)[output] for chunk in chunks]


def largest_difference(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(float(np.max(np.abs(a - b))) for a, b in zip(got, expected, strict=True))


# What is built


def test_bundle_answers_as_the_original_in_its_own_framework(shared: Project) -> None:
    import torch

    from tests.kit.models import tiny_asr

    chunks, model, first = one_recording(7, 12), tiny_asr.build().eval(), tiny_asr.build_first().eval()
    expected: list[np.ndarray] = []
    states: list[torch.Tensor] = []
    with torch.no_grad():
        for chunk in chunks:
            features = torch.from_numpy(chunk["features"])
            logits, *states = model(features, *states) if states else first(features)
            states = [state[:, -8:] if state.shape[2] == 8 else state for state in states]
            expected.append(logits.numpy())
    assert largest_difference(answers(shared.folder / "bundle", "net", chunks), expected) < 1e-4


def test_graphs_are_static_packed_and_share_their_weights(shared: Project) -> None:
    bundle = shared.folder / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    graph = manifest["graphs"]["net"]
    assert len(graph["inputs"]) <= 6
    assert {tuple(artifact["files"]) for artifact in graph["artifacts"]} == {("graphs/net.weights",)}
    assert (bundle / "graphs/net.weights").stat().st_size > 0
    for artifact in graph["artifacts"]:
        model = ir.load(bundle / artifact["file"])
        values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
        assert all(value.shape is not None and all(isinstance(dim, int) for dim in value.shape) for value in values)


def test_report_names_every_stage_and_every_tensor(shared: Project) -> None:
    ended = shared.build()
    stages = [stage["stage"] for stage in ended.report["stages"]]
    assert stages[:2] == ["data", "capture"]
    assert stages[-1] == "bundle"
    assert {row["tensor"] for row in ended.report["parity"]} >= {"logits"}
    assert ended.report["task"]["identical"] == ended.report["task"]["recordings"] == 2
    assert set(ended.report["sizes"]) == set(digest_of(shared.folder / "bundle"))
    assert {row["sizes"] for row in ended.report["speed"]} == {"batch=1", "batch=2"}


def test_onnx_file_is_its_own_original(shared: Project) -> None:
    chunks = one_recording(3, 9)
    assert largest_difference(answers(shared.folder / "stream", "net", chunks), step_by_hand(chunks)) < 1e-5


def export(project: Project) -> None:
    """Write both calls of the recogniser as dynamic ONNX files, and a recipe for them."""
    import torch

    from tests.kit.models import tiny_asr

    batch, cache = torch.export.Dim("batch"), torch.export.Dim("cache")
    features, caches, contexts = torch.zeros(2, 4, 8), [torch.zeros(2, 6, 8)] * 2, [torch.zeros(2, 8, 2)] * 2
    states = [f"{kind}_{index}" for kind in ("cache", "context") for index in range(2)]
    for name, module, given, names, shapes in (
        ("first", tiny_asr.build_first(), (features,), ["features"], ({0: batch},)),
        (
            "later",
            tiny_asr.build(),
            (features, *caches, *contexts),
            ["features", *states],
            ({0: batch}, ({0: batch, 1: cache},) * 2 + ({0: batch},) * 2),
        ),
    ):
        program = torch.onnx.export(
            module.eval(),
            given,
            dynamo=True,
            dynamic_shapes=shapes,
            opset_version=20,
            input_names=names,
            output_names=["logits", *(f"next_{state}" for state in states)],
            verbose=False,
        )
        assert program is not None
        program.save(project.folder / f"{name}.onnx")
    text = (project.folder / "tiny.yaml").read_text()
    text = text.replace('{factory: "tiny_asr:build", checkpoint: tiny.safetensors}', "{onnx: later.onnx}")
    text = text.replace('{factory: "tiny_asr:build_first"}', "{onnx: first.onnx}")
    project.write("files.yaml", text)


@pytest.mark.filterwarnings("ignore::UserWarning:torch.onnx", "ignore::FutureWarning:copyreg")
def test_exported_files_build_the_same_function_with_and_without_first_call(project: Project) -> None:
    export(project)
    ended = project.build(recipe="files.yaml", out="files")
    assert ended.code == 0, ended.err
    project.write(
        "later.yaml", (project.folder / "files.yaml").read_text().replace("    first_call:", "    # first_call:")
    )
    ended = project.build("--set", "name=later", recipe="later.yaml", out="later")
    assert ended.code == 0, ended.err
    assert "net:merge_first_call" in ended.stages(cached=False)
    chunks = one_recording(11, 10)
    expected = answers(project.folder / "files", "net", chunks)
    assert largest_difference(answers(project.folder / "later", "net", chunks), expected) < 1e-5


def test_two_graphs_make_one_bundle(shared: Project, project: Project) -> None:
    text = (project.folder / "tiny.yaml").read_text()
    stream = (project.folder / "stream.yaml").read_text()
    other = stream[stream.index("  net:") : stream.index("data:")].replace("  net:", "  other:")
    text = text.replace("data:\n", other + "data:\n")
    text = text.replace("    net: {max_abs", "    other: {max_abs: 1.0e-5, chained_steps: 6}\n    net: {max_abs")
    text = text.replace(
        'feeds: "tiny_data:verification"', 'feeds: {net: "tiny_data:verification", other: "tiny_data:verification"}'
    )
    project.write("both.yaml", text)
    ended = project.build(recipe="both.yaml", out="both")
    assert ended.code == 0, ended.err
    assert "net:capture" in ended.stages(cached=True), "a graph is captured once, whatever recipe it is in"
    chunks = one_recording(5)
    for graph, single in (("net", "bundle"), ("other", "stream")):
        alone = answers(shared.folder / single, "net", chunks)
        assert largest_difference(answers(project.folder / "both", graph, chunks), alone) == 0.0
    assert project.run("verify", "both").code == 0


def test_null_target_runs_every_pass_and_leaves_nothing(project: Project) -> None:
    project.replace("tiny.yaml", "  - kind: onnx_static", '  - kind: "null"')
    ended = project.build(out="nothing")
    assert ended.code == 0, ended.err
    assert "net:pack_states" in ended.stages(cached=True)
    assert not (project.folder / "nothing").exists()


def test_mask_computed_in_the_graph_answers_as_a_mask_that_is_fed(shared: Project, project: Project) -> None:
    project.replace("tiny.yaml", ", mask_input: mask", "")
    ended = project.build(out="computed")
    assert ended.code == 0, ended.err
    assert "net:capture" in ended.stages(cached=True), "windows and masks are the passes' business"
    manifest = json.loads((project.folder / "computed" / "manifest.json").read_text())
    assert manifest["graphs"]["net"]["stream"]["mask_input"] is None
    assert "mask" not in {given["name"] for given in manifest["graphs"]["net"]["inputs"]}
    chunks = one_recording(9, 10)
    fed = answers(shared.folder / "bundle", "net", chunks)
    assert largest_difference(answers(project.folder / "computed", "net", chunks), fed) == 0.0


# The cache


def test_build_without_cache_is_byte_identical(shared: Project, project: Project) -> None:
    ended = project.build(out="again", cached=False)
    assert ended.code == 0, ended.err
    assert ended.stages(cached=True) == []
    assert digest_of(project.folder / "again", TIMES) == digest_of(shared.folder / "bundle", TIMES)


REBUILD = """
import sys, build
code = build.main(sys.argv[1:])
print("torch" in sys.modules, file=sys.stderr)
sys.exit(code)
"""


def test_rebuild_in_a_new_process_runs_no_stage_and_imports_no_framework(shared: Project, project: Project) -> None:
    options = ["--recipe", "tiny.yaml", "--out", "again", "--cache", str(shared.cache), "--report", "r.json"]
    done = subprocess.run(
        [sys.executable, "-c", REBUILD, *options],
        cwd=project.folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "False\n")
    report = json.loads((project.folder / "r.json").read_text())
    assert [stage["stage"] for stage in report["stages"] if not stage["cached"]] == []
    assert digest_of(project.folder / "again") == digest_of(shared.folder / "bundle")


PASSES = [
    "simplify",
    "canonicalize_reshapes",
    "simplify",
    "merge_first_call",
    "carry_projections",
    "pad_axes",
    "window_states",
    "project_positions",
    "pack_states",
    "simplify",
]
LOWERED = [f"net:{name}" for name in PASSES]
SHIPPED = ["net:onnx_static", "net:verify", "net:invariance", ":replay", "net:task", ":speed"]


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
            ["net:data", "net:capture", *LOWERED, *SHIPPED],
            id="code of the data",
        ),
        pytest.param(checkpoint_byte, (), ["net:capture", *LOWERED, *SHIPPED], id="one bit of the checkpoint"),
        pytest.param(
            lambda p: p.replace("tiny_asr.py", "functional.silu", "functional.gelu"),
            (),
            ["net:capture", *LOWERED, *SHIPPED],
            id="code of the model",
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
            lambda p: None, ("--set", "gates.parity.net.max_abs=2.0e-5"), [*LOWERED, *SHIPPED], id="tolerance"
        ),
        pytest.param(lambda p: p.write("unrelated.txt", "x"), (), [], id="nothing that matters"),
    ],
)
def test_change_runs_exactly_what_it_must(
    change: Callable[[Project], None], options: tuple[str, ...], expected: list[str], project: Project
) -> None:
    change(project)
    ended = project.build(*options)
    assert ended.code == 0, ended.err
    assert ended.stages(cached=False) == expected


def test_changed_weights_beside_an_onnx_file_are_noticed(project: Project) -> None:
    (project.folder / "w.bin").write_bytes(np.ones(8, np.float32).tobytes())
    (project.folder / "stream.onnx").write_bytes(
        ir.to_proto(outside_weight(stream_model(), "w.bin")).SerializeToString()
    )
    chunks = one_recording(1, 6)
    assert project.build(recipe="stream.yaml", out="one").code == 0
    (project.folder / "w.bin").write_bytes(np.full(8, 2, np.float32).tobytes())
    assert project.build(recipe="stream.yaml", out="two").code == 0
    one, two = (answers(project.folder / name, "net", chunks) for name in ("one", "two"))
    assert largest_difference(two, [answer + 1 for answer in one]) < 1e-5


def test_failed_stage_is_not_remembered(project: Project) -> None:
    project.replace("tiny_task.py", 'return "".join', 'raise OSError("no")  # ')
    assert [project.build().code, project.build().code] == [2, 2]


# Who is blamed

Spoil = Callable[[ir.Model], None]


@dataclasses.dataclass(frozen=True)
class Saboteur:
    """Stands in for a pass: lets it work, then spoils the graph."""

    name: ClassVar[str] = ""
    real: ClassVar[Any] = None
    spoil: ClassVar[Spoil]

    def apply(self, lowered: Lowered) -> Outcome:
        outcome: Outcome = type(self).real().apply(lowered)
        type(self).spoil(outcome.lowered.model)
        return outcome


def sabotage(monkeypatch: pytest.MonkeyPatch, name: str, spoil: Spoil) -> None:
    members = {"name": name, "real": passes.PASSES[name], "spoil": staticmethod(spoil)}
    monkeypatch.setitem(passes.PASSES, name, type("Saboteur", (Saboteur,), members))


def scale_one_product(model: ir.Model) -> None:
    """A MatMul of the second block answers 1.01 times too much."""
    node = [node for node in model.graph if node.op_type in ("MatMul", "Gemm")][6]
    insert = house.Inserter(model, "test")
    old = node.outputs[0]
    uses = list(old.uses())
    insert.before = uses[0].node
    scaled = insert.op("Mul", [old, insert.constant(np.array(1.01, np.float32), "too_much")], name="scaled")
    for use in uses:
        use.node.replace_input_with(use.idx, scaled)


def shift_position_rows(model: ir.Model) -> None:
    """Every frame gets the row of its neighbour."""
    gather = next(
        node for node in model.graph if node.op_type == "Gather" and house.array_of(node.inputs[0]) is not None
    )
    table = house.array_of(gather.inputs[0])
    assert table is not None
    insert = house.Inserter(model, "test", before=gather)
    gather.replace_input_with(0, insert.constant(np.roll(table, 1, axis=0), "shifted"))


def cut_the_wrong_end(model: ir.Model) -> None:
    """The oldest frames are kept instead of the newest."""
    cut = next(node for node in model.graph if node.outputs[0].name == "next_cache_1" or "newest" in str(node.name))
    insert = house.Inserter(model, "test", before=cut)
    cut.replace_input_with(1, insert.int64s(0))
    cut.replace_input_with(2, insert.int64s(8))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("canonicalize_reshapes", scale_one_product),
        ("pad_axes", shift_position_rows),
        ("window_states", cut_the_wrong_end),
    ],
)
def test_broken_pass_is_named_with_the_first_node_that_differs_and_its_source_line(
    name: str, spoil: Spoil, shared: Project, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shared.folder / "bundle", project.folder / "bundle")
    before = digest_of(project.folder / "bundle")
    sabotage(monkeypatch, name, spoil)
    ended = project.build("--set", "gates.parity.net.max_abs=1.1e-5")  # another key: nothing from the cache
    assert ended.code == 4, ended.err
    for word in (f"stage {name}, graph net, node ", ", op ", ", tensor ", "source tiny_asr.py:", " in forward"):
        assert word in ended.message
    assert f"remove {name} from the recipe's passes" in ended.message
    assert digest_of(project.folder / "bundle") == before
