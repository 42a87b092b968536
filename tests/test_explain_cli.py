"""`build.py explain`: exit codes, messages that name what there is, and a picture."""

import xml.etree.ElementTree as ET
from pathlib import Path

import onnx_ir as ir
import pytest

import build
from compiler.graph import model as graphs
from tests.compiler.front.explain.test_explanation import SOFTMAX, TWICE_REFUSED
from tests.kit.graphs import copy_of, parse, streaming


def write(path: Path, model: ir.Model) -> str:
    graphs.infer_shapes(model)
    path.write_bytes(graphs.serialized(model))
    return str(path)


@pytest.fixture
def attention(tmp_path: Path) -> str:
    return write(tmp_path / "attention.onnx", parse(SOFTMAX))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = build.main(["explain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_proof_ends_with_zero_and_shows_the_mask(attention: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, attention, "--axis", "time")
    assert (code, err) == (0, "")
    assert out.startswith("attention: proved; certificate replayed: holds (")
    assert "padding of scores (axis 2) := " in out
    assert "Every node" not in out
    assert "Every node" in run(capsys, attention, "--axis", "time", "--verbose")[1]


def test_refusal_ends_with_three_and_shows_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "bad.onnx", parse(TWICE_REFUSED))
    code, out, err = run(capsys, file, "--axis", "time", "--axis", "other")
    assert code == 3
    assert "refused in 2 places" in out
    assert out.index("a_relu") < out.index("b_exp") < out.index("=>  found_nonzero")
    assert err.startswith("error: ") and "found_nonzero" in err
    assert err.splitlines()[-1] == f"repeat with: python build.py explain {file} --axis time --axis other"


def test_a_recipe_is_no_file_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "recipes/tts_ar.yaml")
    assert (code, out) == (2, "")
    assert "got the recipe recipes/tts_ar.yaml; write the name of its graph: GRAPH --recipe recipes/tts_ar.yaml" in err


def test_picture_is_written(attention: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "new" / "p.html"
    code, out, _ = run(capsys, attention, "--axis", "time", "--html", str(page))
    assert (code, out.splitlines()[-1]) == (0, f"picture: {page}")
    ET.fromstring(page.read_text())


def test_masks_and_lengths_of_the_model_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """(float[batch,time] x, float[batch,time] mask) => (float[batch,one] y) <int64[1] axis = {1}> {
        m = Mul(x, mask)
        y = ReduceSum(m, axis)
    }"""
    code, out, _ = run(capsys, write(tmp_path / "m.onnx", parse(text)), "--axis", "time", "--mask", "mask=time")
    assert (code, "mask: made from the lengths" in out) == (0, True)


def test_window_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "stream.onnx", copy_of(streaming()).model)
    code, out, err = run(
        capsys, file, "--window", "cache=6", "--state", "past=next_past", "--state", "context=next_context"
    )
    assert (code, err) == (0, "")
    assert "valid last, padding in front" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--axis", "tmie"], "--axis tmie: expected an axis of the graph's inputs, got 'tmie'; did you mean 'time'?"),
        (["--axis", "tmie"], "known: batch, time"),
        ([], "expected --axis NAME, got no axis to pad; name one of its axes: time"),
        (["--axis", "time", "--batch", "rows"], "--batch rows: expected an axis"),
        (["--axis", "time", "--batch", "time"], "axis time: expected one part, got 2"),
        (["--axis", "time", "--axis", "time"], "axis time: expected one part, got 2"),
        (["--axis", "time", "--mask", "y=time"], "--mask y=time: expected a known name, got 'y'"),
        (["--axis", "time", "--mask", "x=batch"], "got 'batch'; known: time"),
        (["--axis", "time", "--length", "x"], "--length: expected NAME=NAME, got 'x'"),
        (["--window", "time"], "--window: expected AXIS=FRAMES, got 'time'"),
        (["--window", "time=many"], "--window time: expected a number of frames, got 'many'"),
        (["--window", "time=4"], "write --state INPUT=OUTPUT"),
        (["--window", "time=4", "--window", "batch=4"], "--window time: expected the caches that have this axis"),
        (["--axis", "time", "--html", "."], "--html: expected a file, got the folder ."),
    ],
)
def test_wrong_arguments_end_with_two(
    arguments: list[str], words: str, attention: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, attention, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_files_that_are_no_graphs_end_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    fixed = write(tmp_path / "fixed.onnx", parse("(float[1,2] x) => (float[1,2] y) { y = Relu(x) }"))
    for file, words in (
        (str(tmp_path / "none.onnx"), "got nothing at"),
        (str(tmp_path / "text.onnx"), "expected an ONNX file at"),
        (str(tmp_path), "got the folder"),
        (fixed, "expected an input with a named axis, got x [1, 2]"),
    ):
        code, _, err = run(capsys, file, "--axis", "time")
        assert (code, words in err) == (2, True), err


def test_a_graph_that_nothing_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = parse("(float[batch,time] x) => (float[batch,time] y) { a = com.acme.Foo(x) y = Relu(x) }")
    code, _, err = run(capsys, write(tmp_path / "m.onnx", model), "--axis", "time")
    assert (code, "ONNX Runtime cannot run" in err) == (3, True)


# Recipes

RECIPE = """\
name: tiny
graphs:
  net:
    source: {onnx: attention.onnx}
    inputs: {x: {shape: [batch, time, 4], dtype: float32}}
    outputs: [y]
    axes:
      batch: {buckets: [1, 2]}
      time: {buckets: [8], length_input: time_length}
data: {verification: {feeds: "nowhere:streams", count: 1}}
targets: [{kind: "null"}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 1}}}
"""


@pytest.fixture
def recipe(attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(RECIPE)
    return "tiny.yaml"


def test_graph_of_a_recipe(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "net", "--recipe", recipe, "--axis", "time")
    assert (code, err) == (0, "")
    assert "net: proved; certificate replayed: holds (3 steps)" in out
    assert "rows are independent" in out
    assert "capture" in out and "cached" not in out
    assert "cached" in run(capsys, "net", "--recipe", recipe, "--axis", "time")[1]
    assert "cached" not in run(capsys, "net", "--recipe", recipe, "--no-cache", "--axis", "time")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nett", "--axis", "time"], "expected one of its graphs, got 'nett'; did you mean 'net'?"),
        (
            ["net", "--axis", "tmie"],
            "--axis tmie: expected a padded axis or window of the recipe, got 'tmie'; did you",
        ),
        (["net", "--window", "time=4"], "write windows, states, masks, lengths and the batch into the recipe"),
    ],
)
def test_wrong_names_of_a_recipe_end_with_two(
    arguments: list[str], words: str, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments, "--recipe", recipe)
    assert (code, words in err) == (2, True), err


def test_recipe_without_padding_is_answered(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = RECIPE.replace("    axes:", "    passes: [simplify]\n    axes:")
    Path(recipe).write_text(text)
    code, _, err = run(capsys, "net", "--recipe", recipe, "--axis", "time")
    assert (code, "expected pad_axes among the passes of net, got simplify" in err) == (2, True), err
