"""A build with a warm cache gives what a build without one gives, whatever has changed in between."""

import copy
import shutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pydantic
import pytest
import torch
import yaml
from safetensors.numpy import save_file

import runtime_lite
from compiler.recipe.record import Recipe
from tests.kit.models.project import TIMES, Ended, Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.models.tiny_graph import write_one_row_stream, write_stream
from tests.kit.models.tiny_voice import write_tiny_voice
from tests.kit.models.tiny_wired import write_wired
from tests.kit.quantization import one_product


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Built once; not to be changed."""
    return shared_project(tmp_path_factory)


# What the recipe's code reads

FACTORY = """
import os
from pathlib import Path
import numpy as np
import torch
{top}

def read():
    {read}

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = {scale}

    def forward(self, features):
        return features * {used}

def build():
    return Scale()

def stream():
    yield [{{"features": np.full((1, 4, 8), {data}, np.float32)}}] * 2
"""

RECIPE = """
name: scale
graphs:
  net:
    source: {factory: "scale:build"}
    inputs: {features: {shape: [batch, 4, 8], dtype: float32}}
    outputs: [scaled]
    axes: {batch: {buckets: [1]}}
    passes: [simplify]
data: {verification: {feeds: "scale:stream", count: 1, files: [scale.yaml]}}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 2}}}
"""


def write_factory(project: Project, read: str, *, top: str = "", used: str = "self.scale", data: str = "1.0") -> None:
    scale = "0.0" if "read()" in used else "0.0" if "read()" in data else "read()"
    text = FACTORY.format(read=read, top=top, scale=scale, used=used, data=data)
    project.write("scale.py", text)
    project.write("scale.yaml", RECIPE)


@pytest.fixture
def empty(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "corpus").mkdir()
    (tmp_path / "cache").mkdir()
    return Project(folder, tmp_path / "cache")


def two(project: Project) -> None:
    """Twice the scale, by whichever way it is read."""
    np.save(project.folder / "scale.npy", np.float32(2.0))
    torch.save({"scale": torch.tensor(2.0)}, project.folder / "weights.pt")
    project.write("scale.txt", "2.0")
    project.write("late.txt", "2.0")
    project.write("late_module.py", "SCALE = 2.0")
    project.write("corpus/more.txt", "")
    (project.folder / "link.txt").unlink(missing_ok=True)
    (project.folder / "link.txt").symlink_to("scale.txt")


def one(project: Project) -> None:
    np.save(project.folder / "scale.npy", np.float32(1.0))
    torch.save({"scale": torch.tensor(1.0)}, project.folder / "weights.pt")
    project.write("scale.txt", "1.0")
    project.write("one.txt", "1.0")
    project.write("corpus/first.txt", "")
    (project.folder / "link.txt").symlink_to("one.txt")


READS = {
    "a file of numbers": {"read": "return float(np.load('scale.npy'))"},
    "weights.pt": {"read": "return float(torch.load('weights.pt')['scale'])"},
    "a text": {"read": "return float(Path('scale.txt').read_text())"},
    "a link": {"read": "return float(Path('link.txt').read_text())"},
    "a map of a file": {"read": "return float(np.memmap('scale.npy', np.float32, 'r')[-1])"},
    "a variable": {"read": "return float(os.environ.get('TRIAL_SCALE', '1'))"},
    "a file that comes later": {"read": "return 2.0 if os.path.exists('late.txt') else 1.0"},
    "the names in a folder": {"read": "return float(len(list(Path('corpus').iterdir())))"},
    "a file on import": {"read": "return TOP", "top": "TOP = float(Path('scale.txt').read_text())"},
    "a module that comes later": {
        "read": "return SCALE",
        "top": "try:\n    from late_module import SCALE\nexcept ImportError:\n    SCALE = 1.0",
    },
    "a variable in forward": {"read": "return float(os.getenv('TRIAL_SCALE', '1'))", "used": "read()"},
}


def shipped(project: Project, out: str) -> dict[str, str]:
    return digest_of(project.folder / out, TIMES)


def answer(project: Project, out: str) -> float:
    """What the bundle makes of ones: its scale."""
    with runtime_lite.Runtime() as runtime:
        return float(
            runtime.load(project.folder / out).run({"features": np.ones((1, 4, 8), np.float32)})["scaled"][0, 0, 0]
        )


QUICK = ("a text",)


@pytest.mark.parametrize("case", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in READS])
def test_what_a_factory_reads_decides(case: str, empty: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    one(empty)
    write_factory(empty, **READS[case])
    ended = empty.build(recipe="scale.yaml", out="first")
    assert ended.code == 0, ended.err
    assert empty.build(recipe="scale.yaml", out="again").stages(cached=False) == [], (
        "it is cached while nothing changes"
    )
    two(empty)
    monkeypatch.setenv("TRIAL_SCALE", "2")
    ended = empty.build(recipe="scale.yaml", out="second")
    assert ended.code == 0, ended.err
    assert "net:capture" in ended.stages(cached=False)
    assert (answer(empty, "first"), answer(empty, "second")) == (1.0, 2.0)


@pytest.mark.slow
def test_what_nobody_sees_is_made_again_unless_the_recipe_names_it(empty: Project) -> None:
    def build(out: str, scale: float) -> Ended:
        save_file({"scale": np.array([scale], np.float32)}, empty.folder / "scale.safetensors")
        ended = empty.build(recipe="scale.yaml", out=out)
        assert ended.code == 0 and answer(empty, out) == scale, ended.err
        return ended

    load = "return float(load_file('scale.safetensors')['scale'][0])"
    write_factory(empty, load, top="from safetensors.numpy import load_file\nimport _cffi_backend")
    first = build("first", 1.0)
    why = "made again in the next build, as it is not known whether _cffi_backend will give the same"
    assert why in str(first.report["stages"]) and f"The bundle is complete; it is {why}." in first.out.replace(
        "\n", " "
    )
    assert "net:capture" in build("second", 2.0).stages(cached=False)
    empty.replace("scale.yaml", '"scale:build"', '"scale:build", files: [scale.safetensors]')
    build("named", 2.0)
    assert build("named", 2.0).stages(cached=False) == []
    assert "net:capture" in build("third", 3.0).stages(cached=False)


@pytest.mark.slow
def test_what_leads_out_of_sight_is_not_kept(empty: Project) -> None:
    read = "import subprocess\n    return float(subprocess.run(['cat', 'scale.txt'], capture_output=True).stdout)"
    one(empty)
    write_factory(empty, read)
    assert empty.build(recipe="scale.yaml", out="first").code == 0
    two(empty)
    ended = empty.build(recipe="scale.yaml", out="second")
    assert "net:capture" in ended.stages(cached=False)
    assert (answer(empty, "first"), answer(empty, "second")) == (1.0, 2.0)


@pytest.mark.slow
def test_what_a_generator_reads_decides_besides_the_files_it_names(
    empty: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_factory(empty, "return float(os.environ.get('TRIAL_SCALE', '1'))", data="read()")
    assert empty.build(recipe="scale.yaml", out="first").code == 0
    assert empty.build(recipe="scale.yaml", out="again").stages(cached=False) == []
    monkeypatch.setenv("TRIAL_SCALE", "2")
    ended = empty.build(recipe="scale.yaml", out="second")
    assert ended.code == 0 and "net:data" in ended.stages(cached=False)
    assert empty.build(recipe="scale.yaml", out="cold", cached=False).code == 0
    assert shipped(empty, "second") == shipped(empty, "cold") != shipped(empty, "first")


@pytest.mark.slow
def test_equal_recipes_in_two_folders_have_models_of_their_own(empty: Project) -> None:
    for name, scale in (("one", 1.0), ("two", 2.0)):
        inner = empty.folder / name
        inner.mkdir()
        write_factory(empty, f"return {scale}")
        for file in ("scale.py", "scale.yaml"):
            (empty.folder / file).rename(inner / file)
        ended = empty.build(recipe=f"{name}/scale.yaml", out=f"out_{name}")
        assert ended.code == 0, ended.err
        Project(inner, empty.cache).forget_modules()
        assert answer(empty, f"out_{name}") == scale


def test_two_builds_anywhere_give_the_same_bytes(empty: Project, tmp_path: Path) -> None:
    one(empty)
    write_factory(empty, "return 1.0")
    other = empty.copy_to(tmp_path / "elsewhere" / "under another name")
    ended = [
        empty.build(recipe="scale.yaml", out=str(tmp_path / "first"), cached=False),
        Project(other.folder.parent, empty.cache).build(
            recipe=f"{other.folder.name}/scale.yaml", out=str(tmp_path / "second"), cached=False
        ),
    ]
    assert [each.code for each in ended] == [0, 0], ended
    assert digest_of(tmp_path / "first", TIMES) == digest_of(tmp_path / "second", TIMES) != {}
    told = empty.run("diff", str(tmp_path / "first"), str(tmp_path / "second"))
    assert (told.code, told.out) == (0, "the same but for measured times\n")


# One field at a time


def records_of(kind: Any) -> Iterator[type[pydantic.BaseModel]]:
    """All records that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from records_of(field.annotation)
    for inner in typing.get_args(kind):
        yield from records_of(inner)


FIELDS = sorted({f"{record.__name__}.{field}" for record in records_of(Recipe) for field in record.model_fields})


def graph(recipe: Any) -> Any:
    return recipe["graphs"]["net"]


def _inverted(given: Any) -> None:
    """A mask that is 0 at valid places in the place of one that is 1."""
    given["pad_mask_of"] = given.pop("mask_of")


def at(*keys: Any, value: Any = None) -> Callable[[Any], None]:
    """Set what is below keys, or delete it."""

    def change(recipe: Any) -> None:
        *above, last = keys
        for key in above:
            recipe = recipe[key]
        if value is None:
            del recipe[last]
        else:
            recipe[last] = value

    return change


def rename_everywhere(old: str, new: str) -> Callable[[Any], None]:
    def change(recipe: Any) -> None:
        renamed = yaml.safe_load(yaml.safe_dump(recipe, sort_keys=False).replace(old, new))
        recipe.clear()
        recipe.update(renamed)

    return change


NET, INPUTS, AXES = ("graphs", "net"), ("graphs", "net", "inputs"), ("graphs", "net", "axes")
PARITY, TASK, BUDGET = ("gates", "parity", "net"), ("gates", "task"), ("gates", "budget")
PIPELINE = ("gates", "pipeline")
VERIFICATION = ("data", "verification")
WIRE = {"from_graph": "net", "output": "logits", "to_graph": "net", "input": "features"}

SHARED = {"groups": 2, "answers": "classes", "limit": 1.0}
"""Of a graph with states it is refused, by a cold build and by a warm one; what is trained has tests of its own."""

LIMIT = {"input": "tokens", "per_entry": 1.0, "more": 8}

Change = tuple[str, Callable[[Any], None]]

CHANGES: dict[str, list[Change]] = {
    "Recipe.name": [("stream", at("name", value="other"))],
    "Recipe.graphs": [("stream", rename_everywhere("net:", "net2:"))],
    "Recipe.data": [("rounded", at(*VERIFICATION, "feeds", value="tiny_more:streams"))],
    "Recipe.targets": [("stream", at("targets", value=[{"kind": "null"}]))],
    "Recipe.gates": [("stream", at("gates", "task"))],
    "Recipe.front_end": [("stream", at("front_end", value={"hop": 5}))],
    "Recipe.wiring": [("stream", at("wiring", value=[WIRE])), ("wired", at("wiring"))],
    "Recipe.source_lines": [("stream", at("source_lines", value=False))],
    "Graph.source": [("stream", at(*NET, "source", value={"onnx": "product.onnx"}))],
    "Graph.first_call": [("stream", at(*NET, "first_call", value={"onnx": "stream.onnx"}))],
    "Graph.inputs": [("stream", lambda r: graph(r).update(inputs=dict(reversed(graph(r)["inputs"].items()))))],
    "Graph.outputs": [("stream", at(*NET, "outputs", value=["next_keys", "logits"]))],
    "Graph.axes": [("stream", lambda r: graph(r).update(axes=dict(reversed(graph(r)["axes"].items()))))],
    "Graph.passes": [("stream", at(*NET, "passes", value=["pad_axes", "window_states", "simplify"]))],
    "Graph.flush": [("stream", at(*NET, "flush", value={"features": 4}))],
    "Graph.flush_values": [("stream", at(*NET, "flush_values", value={"features": 1.0}))],
    "Graph.derive_steps": [("stream", at(*NET, "derive_steps", value={"along": "time", "window": 8}))],
    "Graph.latency": [("stream", at(*NET, "latency", value={"of": "asr", "name": "fast"}))],
    "Latency.of": [("stream", at(*NET, "latency", value={"of": "spotter", "name": "fast"}))],
    "Latency.name": [("stream", at(*NET, "latency", value={"of": "asr", "name": "exact"}))],
    "Recipe.voice": [("voice", at("voice"))],
    **{
        f"Voice.{key}": [("voice", at("voice", key, value=value))]
        for key, value in {
            "step": "codec",
            "tokens": "heard",
            "scores": "next_heard",
            "start": 1,
            "codec": "step",
            "codes": "before",
            "noise": "before",
            "sound": "after",
            "samples_per_frame": 2,
            "sample_rate_hz": 16000,
            "frames": LIMIT,
            "sampling": {"max_tokens": 8},
        }.items()
    },
    **{
        f"FrameLimit.{key}": [("voice", at("voice", "frames", value={**LIMIT, key: value}))]
        for key, value in {"input": "heard", "per_entry": 2.0, "more": 9}.items()
    },
    **{
        f"Sampling.{key}": [("voice", at("voice", "sampling", key, value=value))]
        for key, value in {
            "max_tokens": 11,
            "stop": [4],
            "min_tokens": 2,
            "temperature": 0.5,
            "top_k": 3,
            "top_p": 0.5,
            "repetition_penalty": 1.5,
            "penalty_window": 8,
        }.items()
    },
    "DeriveSteps.along": [("stream", at(*NET, "derive_steps", value={"along": "cache", "window": 8}))],
    "DeriveSteps.chunk": [("stream", at(*NET, "derive_steps", value={"along": "time", "window": 8, "chunk": 4}))],
    "DeriveSteps.forget": [("stream", at(*NET, "derive_steps", value={"along": "time", "window": 8, "forget": True}))],
    "DeriveSteps.window": [("stream", at(*NET, "derive_steps", value={"along": "time", "window": 9}))],
    "Graph.share_heads": [("stream", at(*NET, "share_heads", value=SHARED))],
    **{
        f"ShareHeads.{key}": [("stream", at(*NET, "share_heads", value={**SHARED, key: value}))]
        for key, value in {
            "groups": 3,
            "updates": 5,
            "minutes": 2.0,
            "rows": 2,
            "rate": 0.1,
            "seed": 2,
            "answers": "numbers",
            "skip": 1,
            "limit": 2.0,
        }.items()
    },
    "Source.factory": [("scale", at(*NET, "source", "factory", value="scale:build_more"))],
    "Source.arguments": [
        ("scale", lambda r: graph(r)["source"].update(factory="scale:build_by", arguments={"more": 2.0}))
    ],
    "Source.onnx": [("stream", at(*NET, "source", "onnx", value="product.onnx"))],
    "Source.checkpoint": [("scale", at(*NET, "source", "checkpoint", value="scale.safetensors"))],
    "Source.cast": [("scale", lambda r: graph(r)["source"].update(checkpoint="scale.safetensors", cast=True))],
    "Source.files": [("stream", at(*NET, "source", "files", value=["level.txt"]))],
    "Input.shape": [("stream", at(*INPUTS, "features", "shape", value=["batch", 4, 9]))],
    "Input.dtype": [("stream", at(*INPUTS, "features", "dtype", value="float64"))],
    "Input.state": [("stream", at(*INPUTS, "keys", "state"))],
    "Input.initial": [("stream", at(*INPUTS, "keys", "initial", value=0.5))],
    "Input.range": [("stream", at(*INPUTS, "features", "range", value=[-8.0, 8.0]))],
    "Input.example": [("stream", at(*INPUTS, "features", "example", value=0.5))],
    "Input.constant": [("stream", at(*INPUTS, "features", "constant", value=0.5))],
    "Input.mask_of": [("masked", at(*INPUTS, "mask", "mask_of"))],
    "Input.pad_mask_of": [("masked", lambda r: _inverted(graph(r)["inputs"]["mask"]))],
    "Input.counts": [("stream", at(*INPUTS, "features", "counts", value="cache"))],
    "Input.length_of": [("masked", at(*INPUTS, "count", "length_of"))],
    "Input.original": [
        ("one_row", at(*INPUTS, "keys", "original", value=["cache", 8])),
        ("stream", at(*INPUTS, "features", "original", value=[1, 4, 8])),
    ],
    "Axis.fixed": [("stream", at(*AXES, "batch", value={"fixed": 1}))],
    "Axis.buckets": [
        ("stream", at(*AXES, "batch", "buckets", value=[1, 3])),
        ("masked", at(*AXES, "time", "buckets", value=[16, 32])),
    ],
    "Axis.window": [("stream", at(*AXES, "cache", "window", value=12))],
    "Axis.length_input": [
        ("stream", at(*AXES, "cache", "length_input", value="fill")),
        ("masked", at(*AXES, "time", "length_input", value="valid")),
    ],
    "Axis.mask_input": [
        ("stream", at(*AXES, "cache", "mask_input", value="mask")),
        ("stream", at(*AXES, "cache", value={"window": 8, "mask_input": "mask", "length_input": "fill"})),
    ],
    "Axis.update": [("stream", at(*AXES, "cache", "update", value="append"))],
    **{f"Wire.{key}": [("wired", at("wiring", 0, key, value="other"))] for key in WIRE},
    "PassSpec.name": [("stream", lambda r: graph(r)["passes"].__setitem__(0, "canonicalize_reshapes"))],
    "PassSpec.options": [("stream", lambda r: graph(r)["passes"].__setitem__(0, {"simplify": {"rounds": 3}}))],
    "Data.verification": [("stream", at(*VERIFICATION, "feeds", value="tiny_more:other"))],
    "Data.calibration": [("rounded", at("data", "calibration"))],
    "Data.development": [("rounded", at("data", "development", value={"feeds": "tiny_more:choices", "count": 1}))],
    "Data.distillation": [("rounded", at("data", "distillation", value={"feeds": "tiny_more:choices", "count": 10}))],
    "Feeds.feeds": [("rounded", at("data", "calibration", "feeds", value="tiny_more:other"))],
    "Feeds.count": [("stream", at(*VERIFICATION, "count", value=3))],
    "Feeds.files": [("stream", at(*VERIFICATION, "files", value=["level.txt", "stream.onnx"]))],
    "Target.kind": [("stream", at("targets", 0, "kind", value="tensorrt"))],
    "Target.options": [("stream", lambda r: r["targets"].__setitem__(0, {"kind": "onnx_static", "odd": 1}))],
    "Gates.parity": [("stream", at(*PARITY, value={"max_abs": 1.0e-4, "chained_steps": 7}))],
    "Gates.task": [("stream", at(*TASK))],
    "Gates.budget": [("stream", at(*BUDGET))],
    "Gates.pipeline": [("wired", at(*PIPELINE))],
    "PipelineGate.feeds": [("wired", at(*PIPELINE, "feeds", value="tiny_more:streams"))],
    "PipelineGate.count": [("wired", at(*PIPELINE, "count", value=2))],
    "PipelineGate.max_abs": [("wired", at(*PIPELINE, "max_abs", value=1.0e-12))],
    "PipelineGate.files": [("wired", at(*PIPELINE, "files", value=["tiny_task.py"]))],
    "ParityGate.max_abs": [("stream", at(*PARITY, "max_abs", value=1.0e-12))],
    "ParityGate.max_form_loss_db": [("stream", at(*PARITY, "max_form_loss_db", value=2.0))],
    "ParityGate.sqnr_db": [("stream", at(*PARITY, "sqnr_db", value=10.0))],
    "ParityGate.min_equal": [("stream", at(*PARITY, "min_equal", value=0.5))],
    "ParityGate.chained_steps": [
        ("stream", at(*PARITY, "chained_steps", value=8)),
        ("stream", at(*PARITY, "chained_steps", value=9)),
    ],
    "ParityGate.lossy": [("rounded", at(*PARITY, "lossy"))],
    "ParityGate.targets": [("rounded", at(*PARITY, "targets", value={"onnx_static": {"max_abs": 1.0e-9}}))],
    "ParityGate.edges": [("stream", at(*PARITY, "edges", value=["silence"]))],
    "ParityGate.drift": [("stream", at(*PARITY, "drift", value={"steps": 16, "max_growth": 1.0e6}))],
    "LossyTolerance.max_abs": [("rounded", at(*PARITY, "lossy", "max_abs", value=1.0e-9))],
    "LossyTolerance.sqnr_db": [("rounded", at(*PARITY, "lossy", "sqnr_db", value=150.0))],
    "LossyTolerance.min_equal": [("rounded", at(*PARITY, "lossy", "min_equal", value=0.5))],
    "DriftGate.steps": [("drifting", at(*PARITY, "drift", "steps", value=20))],
    "DriftGate.max_growth": [("drifting", at(*PARITY, "drift", "max_growth", value=1.0e7))],
    "TaskGate.recordings": [("stream", at(*TASK, "recordings", value="tiny_more:recordings"))],
    "TaskGate.decode": [("rounded", at(*TASK, "decode", value="tiny_more:decode"))],
    "TaskGate.metric": [("rounded", at(*TASK, "metric", value="tiny_more:metric"))],
    "TaskGate.max_increase": [("stream", at(*TASK, "max_increase", value=0.5))],
    "TaskGate.identical": [("stream", at(*TASK, "identical", value=True))],
    "TaskGate.files": [("stream", at(*TASK, "files", value=["tiny_task.py"]))],
    "TaskGate.graph": [("stream", at(*TASK, "graph", value="net"))],
    "BudgetGate.size_mb": [("stream", at(*BUDGET, "size_mb", value=0.001))],
    "BudgetGate.p95_ms": [("stream", at(*BUDGET, "p95_ms", value=1.0e6))],
    "BudgetGate.max_time_ratio": [("rounded", at(*BUDGET, "max_time_ratio", value=1.0e6))],
    "BudgetGate.max_size_ratio": [("rounded", at(*BUDGET, "max_size_ratio", value=1.0e-6))],
}

MORE = """
import tiny_data, tiny_task

def streams():
    yield tiny_data.one_stream(99)
    yield tiny_data.one_stream(97)

def other():
    yield tiny_data.one_stream(98)
    yield tiny_data.one_stream(96)

def choices():
    yield tiny_data.one_stream(95)

def utterances():
    for frames in (5, 9, 16):
        yield [{"features": tiny_data.np.full((1, frames, 4), frames, "float32")}]

def recordings():
    return tiny_task.recordings()[:1]

def decode(outputs):
    return tiny_task.decode(outputs)[::-1]

def metric(references, said):
    return tiny_task.error_rate(references, said) / 2
"""

MASKED = """
<ir_version: 10, opset_import: ["" : 20]>
masked (float[batch,time,4] features, float[batch,time] mask, int64[batch] count)
    => (float[batch,time,4] kept, int64[batch] said)
<int64[1] last = {2}>
{
    wide = Unsqueeze(mask, last)
    kept = Mul(features, wide)
    said = Add(count, count)
}
"""


def bases(project: Project) -> dict[str, Any]:
    """Recipes to start from, and all that they and their changes need."""
    folder = project.folder
    write_one_row_stream(folder, "1, cache, 8")
    write_stream(folder, one_product())
    (folder / "stream.onnx").rename(folder / "product.onnx")
    write_stream(folder)
    ir.save(ir.from_onnx_text(MASKED), folder / "masked.onnx")
    project.write("tiny_more.py", MORE)
    stream = yaml.safe_load((folder / "stream.yaml").read_text())
    task = {"recordings": "tiny_task:recordings", "decode": "tiny_task:decode", "metric": "tiny_task:error_rate"}
    stream["gates"] |= {"task": {**task, "max_increase": 1.0}, "budget": {"size_mb": 1.0}}
    rounded, drifting, masked = copy.deepcopy(stream), copy.deepcopy(stream), copy.deepcopy(stream)
    graph(rounded)["source"] = {"onnx": "product.onnx"}
    graph(rounded)["passes"].append({"quantize_static": {"pins": []}})
    rounded["data"]["calibration"] = {"feeds": "tiny_more:streams", "count": 1}
    rounded["gates"]["parity"]["net"]["lossy"] = {"max_abs": 0.5, "sqnr_db": 5.0}
    rounded["gates"]["budget"] |= {"max_time_ratio": 1.0e5, "max_size_ratio": 100.0}
    drifting["gates"]["parity"]["net"]["drift"] = {"steps": 16, "max_growth": 1.0e6}
    graph(masked).update(
        source={"onnx": "masked.onnx"},
        inputs={
            "features": {"shape": ["batch", "time", 4], "dtype": "float32"},
            "mask": {"shape": ["batch", "time"], "dtype": "float32", "mask_of": "time"},
            "count": {"shape": ["batch"], "dtype": "int64", "length_of": "time"},
        },
        outputs=["kept", "said"],
        axes={"batch": {"buckets": [1]}, "time": {"buckets": [8, 16]}},
        passes=["simplify", "remove_mask_inputs", "simplify", "pad_axes", "simplify"],
    )
    masked["data"] = {"verification": {"feeds": "tiny_more:utterances", "count": 3, "files": ["level.txt"]}}
    masked["gates"] = {"parity": {"net": {"max_abs": 1.0e-5, "chained_steps": 2}}}
    found = {"stream": stream, "rounded": rounded, "drifting": drifting, "masked": masked}
    found["wired"] = write_wired(folder)
    write_tiny_voice(folder)
    found["voice"] = yaml.safe_load((folder / "voice.yaml").read_text())
    return found | {"one_row": yaml.safe_load((folder / "one_row.yaml").read_text())}


def with_scale(project: Project) -> Any:
    """The recipe of a factory."""
    write_factory(project, "return torch.nn.Parameter(torch.ones(1))")
    text = (project.folder / "scale.py").read_text()
    text += "\ndef build_by(more):\n    model = Scale()\n    model.scale.data += more\n    return model\n"
    project.write("scale.py", text + "\ndef build_more():\n    return build_by(1)\n")
    save_file({"scale": np.array([5.0], np.float32)}, project.folder / "scale.safetensors")
    return yaml.safe_load(RECIPE)


def result(project: Project, *, cached: bool) -> tuple[int, str, dict[str, str]]:
    """Exit code, message, and the bundle without its times."""
    shutil.rmtree(project.folder / "out", ignore_errors=True)
    ended = project.build(recipe="varied.yaml", out="out", cached=cached)
    files = shipped(project, "out") if (project.folder / "out").exists() else {}
    return ended.code, ended.message, files


@pytest.mark.parametrize("base", ["stream", "rounded", "drifting", "masked", "one_row", "scale", "wired", "voice"])
@pytest.mark.slow
def test_every_field_changed_alone_gives_what_a_cold_build_gives(base: str, shared: Project, tmp_path: Path) -> None:
    project = shared.copy_to(tmp_path / "project")
    recipes = bases(project) | {"scale": with_scale(project)}
    compare_with_cold(project, recipes[base], [(f, c) for f, cs in CHANGES.items() for b, c in cs if b == base])


def compare_with_cold(project: Project, recipe: Any, changes: list[tuple[str, Callable[[Any], None]]]) -> None:
    project.write("varied.yaml", yaml.safe_dump(recipe, sort_keys=False))
    code, message, first = result(project, cached=True)
    assert code == 0 and first, message
    warm_cache = project.cache.with_name("warm")
    shutil.copytree(project.cache, warm_cache)
    wrong = []
    for field, change in changes:
        varied = copy.deepcopy(recipe)
        change(varied)
        assert varied != recipe or str(varied) != str(recipe), field
        project.write("varied.yaml", yaml.safe_dump(varied, sort_keys=False))
        shutil.rmtree(project.cache)
        shutil.copytree(warm_cache, project.cache)
        warm, cold = result(project, cached=True), result(project, cached=False)
        if warm != cold:
            wrong.append((field, warm, cold))
    assert wrong == []


@pytest.mark.parametrize("field", ["Axis.mask_input", "Axis.window"])
def test_a_changed_window_gives_what_a_cold_build_gives(field: str, shared: Project, tmp_path: Path) -> None:
    project = shared.copy_to(tmp_path / "project")
    compare_with_cold(project, bases(project)["stream"], [(field, CHANGES[field][-1][1])])


def test_every_field_of_a_recipe_has_a_change() -> None:
    assert sorted(CHANGES) == FIELDS, "a field that no test changes may be missing from a key"
