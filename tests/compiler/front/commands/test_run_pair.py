"""`build.py run A B`: what is compared, what counts as the same, and where it differs first."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.front.commands.run_pair import Request, compare_pair
from compiler.recipe.gates import Tolerance
from runtime_lite.format.arrays import npz_from_arrays
from tests.compiler.front.commands.files import CACHE, DOUBLED, STEP, outside_weights, run, unknown_operator, write
from tests.kit.models.shared import shared_project

LATE = STEP.replace("y = Mul(next_h, next_h)", "big = Max(next_h, h)  y = Mul(big, next_h)")
"""The same as STEP in the first call alone, where h is zero and x is not negative."""

SIZES = ("--set-size", "batch=1", "--set-size", "time=3")


def rows_of(out: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line and not line.startswith(" ")}


def save(path: Path, **arrays: np.ndarray) -> str:
    path.write_bytes(npz_from_arrays(arrays))
    return str(path)


def test_backends_of_one_file_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", DOUBLED)
    for backend in ("optimized", "reference"):
        code, out, err = run(capsys, "run", file, f"{file}@{backend}", *SIZES)
        assert (code, err) == (0, "")
        assert rows_of(out)["y"][0] == "4" and rows_of(out)["y"][-1] == "same"
        assert "4 calls on x [1, 3, 4]" in out


def test_states_are_chained_and_a_later_call_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write(tmp_path / "a.onnx", STEP), write(tmp_path / "b.onnx", LATE)
    feeds = save(tmp_path / "f.npz", x=np.array([[[1, 1, 1, 1]], [[-3, 0, 0, 0]], [[1, 0, 0, 0]]], np.float32))
    code, out, err = run(capsys, "run", first, second, "--feeds", feeds)
    assert code == 4
    assert "states guessed: h <- next_h (their names match)" in out
    assert rows_of(out)["y"] == ["3", "6", "1.5", "-1.2", "66.67", "%", "1", "DIFFERS"]
    assert rows_of(out)["next_h"][-1] == "same"
    assert "expected y of " in err and "got a difference of 6, first at call 1" in err
    assert run(capsys, "run", first, second, "--feeds", feeds, "--calls", "1")[0] == 0


def test_a_cache_begins_empty_and_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", CACHE)
    code, out, err = run(capsys, "run", file, f"{file}@reference", "--set-size", "batch=2", "--calls", "3")
    assert (code, err) == (0, "")
    assert "3 calls on x [2, 2, 4]" in out


def test_a_feed_may_hold_the_first_state(tmp_path: Path) -> None:
    file = write(tmp_path / "m.onnx", STEP)
    zero, ten = (
        save(tmp_path / f"{h}.npz", x=np.ones((1, 4), np.float32), h=np.full((1, 4), h, np.float32)) for h in (0, 10)
    )
    for feeds, largest in ((zero, 1.0), (ten, 121.0)):
        found = compare_pair(Request(file, file, Path(feeds), calls=1), Tolerance(max_abs=1e-5))
        assert {row.difference.tensor: row.difference.reference_max for row in found.rows}["y"] == largest


def test_infinity_and_nan_are_the_same_only_as_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "(float[3] x) => (float[3] y) { y = Reciprocal(x) }"
    first = write(tmp_path / "a.onnx", text)
    second = write(tmp_path / "b.onnx", text.replace("y = Reciprocal(x)", "z = Reciprocal(x) y = Sub(z, x)"))
    feeds = save(tmp_path / "f.npz", x=np.array([0.0, np.inf, np.nan], np.float32))
    assert run(capsys, "run", first, first, "--feeds", feeds)[0] == 0
    code, out, _ = run(capsys, "run", first, second, "--feeds", feeds)
    assert code == 4
    assert rows_of(out)["y"][1] == "inf"


def test_the_tolerance_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.onnx", "(float[2] x) => (float[2] y) { y = Identity(x) }")
    second = write(tmp_path / "b.onnx", "(float[2] x, float[1] w) => (float[2] y) { y = Add(x, w) }")
    feeds = save(tmp_path / "f.npz", x=np.zeros(2, np.float32), w=np.full(1, 0.25, np.float32))
    assert run(capsys, "run", first, second, "--feeds", feeds, "--tolerance", "0.3")[0] == 0
    assert run(capsys, "run", first, second, "--feeds", feeds, "--tolerance", "0.2")[0] == 4


def test_other_names_are_told_and_may_be_paired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.onnx", "(float[2] x) => (float[2] y) { y = Relu(x) }")
    second = write(tmp_path / "b.onnx", "(float[2] input) => (float[2] output) { output = Relu(input) }")
    code, _, err = run(capsys, "run", first, second)
    assert code == 2
    assert "expected inputs of the same names, got ['x'] in " in err and "--name FIRST=SECOND" in err
    code, _, err = run(capsys, "run", first, second, "--name", "x=input")
    assert code == 2
    assert "expected outputs of the same names, got ['y'] of " in err and "as in --name y=output" in err
    code, out, _ = run(capsys, "run", first, second, "--name", "x=input", "--name", "y=output")
    assert (code, rows_of(out)["y"][-1]) == (0, "same")


def test_what_only_one_gives_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.onnx", "(float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(x) }")
    second = write(tmp_path / "b.onnx", "(float[2] x) => (float[2] y) { y = Relu(x) }")
    code, out, _ = run(capsys, "run", first, second)
    assert code == 0
    assert "a.onnx alone gives z" in out


@pytest.mark.slow
def test_a_bundle_is_compared_with_the_file_and_the_original(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = shared_project(tmp_path_factory)
    monkeypatch.chdir(project.folder)
    for pair in (("stream.onnx", "stream"), ("stream:net", "stream.onnx@reference"), ("stream.onnx", "stream.yaml")):
        code, out, err = run(capsys, "run", *pair, "--set-size", "batch=1", "--calls", "6")
        assert (code, err) == (0, ""), out
        assert rows_of(out)["logits"][0] == "6" and "states guessed" not in out
    code, out, err = run(capsys, "--cache", str(project.cache), "run", "stream.yaml:net", "stream:net", "--calls", "6")
    assert (code, err) == (0, "")
    assert rows_of(out)["logits"][-1] == "same"


def test_a_file_has_the_states_that_the_recipe_gives_it_and_no_guessed_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that say nothing, two states that fit either output, and names of a copy."""
    monkeypatch.chdir(tmp_path)
    text = "(float[1,4] x, float[1,4] a, float[1,4] b) => (float[1,4] y, float[1,4] p, float[1,4] q) {"
    text += " p = Add(x, b)  q = Sub(x, a)  y = Mul(a, b) }"
    write(tmp_path / "m.onnx", text)
    write(tmp_path / "n.onnx", re.sub(r"\ba\b", "a2", text))
    (tmp_path / "pair_feeds.py").write_text(
        "import numpy as np\n\n\ndef streams():\n    rng = np.random.default_rng(0)\n    for _ in range(2):\n"
        "        yield [{'x': rng.standard_normal((1, 4), dtype=np.float32)} for _ in range(6)]\n"
    )
    (tmp_path / "m.yaml").write_text(
        "name: m\ngraphs:\n  m:\n    source: {onnx: m.onnx}\n    inputs:\n      x: {shape: [1, 4], dtype: float32}\n"
        "      a: {shape: [1, 4], dtype: float32, state: q}\n      b: {shape: [1, 4], dtype: float32, state: p}\n"
        "    outputs: [y, p, q]\n    axes: {}\n    passes: []\n"
        'data: {verification: {feeds: "pair_feeds:streams", count: 2}}\ntargets: [{kind: onnx_static}]\n'
        "gates: {parity: {m: {max_abs: 1.0e-5, chained_steps: 4}}}\n"
    )
    assert run(capsys, "--recipe", "m.yaml", "--out", "bundle", "--no-cache")[0] == 0
    for pair in (["m.onnx", "bundle"], ["m.yaml", "m.onnx"], ["bundle", "n.onnx", "--name", "a=a2"]):
        code, out, err = run(capsys, "run", *pair)
        assert (code, err) == (0, ""), (out, err)
        assert rows_of(out)["y"][-1] == "same"


def _(folder: Path, text: str) -> str:
    return write(folder / "m.onnx", text)


BAD = {
    "nothing there": (lambda d: [str(d / "no.onnx"), _(d, STEP)], 2, "got nothing at"),
    "no model": (lambda d: [str(d / "no.txt"), _(d, STEP)], 2, "expected an ONNX file, a bundle or a recipe, got noth"),
    "a folder that is no bundle": (lambda d: [str(d), _(d, STEP)], 2, "manifest.json"),
    "lost weights": (lambda d: [outside_weights(d / "w.onnx"), _(d, STEP)], 2, "lost.bin"),
    "no such backend": (lambda d: [_(d, STEP), f"{d / 'm.onnx'}@tensorrt"], 2, "expected a backend behind @"),
    "no sizes": (lambda d: [_(d, DOUBLED), _(d, DOUBLED)], 2, "write --set-size batch=1 --set-size time=16"),
    "a size of nothing": (lambda d: [_(d, STEP), _(d, STEP), "--set-size", "t=1"], 2, "--set-size t: expected an axis"),
    "no feeds": (lambda d: [_(d, STEP), _(d, STEP), "--feeds", str(d / "f.npz")], 2, "expected an .npz file, got No"),
    "no recipe": (lambda d: [_(d, STEP), str(d / "r.yaml")], 2, "expected a file, or a name in recipes/"),
    "another shape": (
        lambda d: [_(d, STEP), write(d / "b.onnx", "(float[1,5] x) => (float[1,5] y) { y = Relu(x) }")],
        2,
        "expected x [1, 4] float32 as in",
    ),
    "an operator of nobody": (
        lambda d: [unknown_operator(d / "m.onnx"), str(d / "m.onnx")],
        3,
        "ONNX Runtime cannot run",
    ),
    "sizes that do not fit": (
        lambda d: [_(d, "(float[n] a, float[m] b) => (float[n] y) { y = Add(a, b) }"), str(d / "m.onnx"), "--set-size",
                   "n=2", "--set-size", "m=3"],
        2,
        "to answer a [2], b [3], got",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected, words = BAD[case]
    code, _, err = run(capsys, "run", *arguments(tmp_path))  # type: ignore[no-untyped-call]
    assert code == expected, err
    assert words in err
    assert re.match(r"error: .*\nrepeat with: python build.py run ", err)


@pytest.mark.parametrize(
    ("arrays", "more", "words"),
    [
        ({"z": np.zeros((1, 4), np.float32)}, [], "expected x, got z"),
        ({"x": np.zeros((1, 4))}, [], "save it with .astype('float32')"),
        ({"x": np.zeros(4, np.float32)}, [], "with or without the calls in front, got float32 [4]"),
        ({"x": np.zeros((0, 1, 4), np.float32)}, [], "expected one number of calls"),
        ({"x": np.zeros((2, 1, 4), np.float32)}, ["--calls", "3"], "expected 3 calls, got 2"),
        ({"x": np.zeros((1, 5), np.float32)}, [], "to answer x [1, 5], got"),
    ],
)
def test_feeds_that_do_not_fit_are_told(
    arrays: dict[str, np.ndarray], more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "m.onnx", STEP)
    code, _, err = run(capsys, "run", file, file, "--feeds", save(tmp_path / "f.npz", **arrays), *more)
    assert code == 2
    assert words in err


def test_weights_beside_the_file_are_found_by_every_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = outside_weights(tmp_path / "m.onnx")
    (tmp_path / "lost.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    onnx.checker.check_model(file)
    assert run(capsys, "run", f"{file}@optimized", f"{file}@reference")[0] == 0


def test_labels_are_equal_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However large a tolerance is, another label is another label."""
    text = "(float[4,8] x) => (int64[4] y) { %s y = ArgMax<axis = 1, keepdims = 0>(z) }"
    first, second = (write(tmp_path / f"{op}.onnx", text % f"z = {op}(x)") for op in ("Identity", "Neg"))
    code, out, err = run(capsys, "run", first, second, "--tolerance", "1e6", "--calls", "2")
    assert code == 4 and rows_of(out)["y"][-1] == "DIFFERS"
    assert f"expected y of {second} equal to that of {first}, as classes, got " in err and "first at call 0" in err
    assert run(capsys, "run", first, f"{first}@reference")[0] == 0
