"""`build.py simplify`: what it writes answers the same, and where it may not, nothing is written."""

from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.front.commands import simplify_file as command
from tests.compiler.front.commands.files import CACHE, DOUBLED, operators, outside_weights, run, write

SIZES = ("--set-size", "batch=2", "--set-size", "time=3")


def test_equal_nodes_are_shared_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write(tmp_path / "in.onnx", DOUBLED), str(tmp_path / "new" / "out.onnx")
    code, out, err = run(capsys, "simplify", source, target, *SIZES)
    assert (code, err) == (0, "")
    assert operators(target) == ["Neg", "Add"]
    rows = [line.split() for line in out.splitlines()]
    assert ["Identity", "1", "0"] in rows and ["Neg", "2", "1"] in rows and ["all", "4", "2"] in rows
    assert "3 calls of random numbers agree within 1e-05; edge feeds: 5 kinds x 3 calls agree" in out
    assert out.endswith(f"{target}: written\n")
    assert ".onnx." not in " ".join(each.name for each in (tmp_path / "new").iterdir())


def test_the_file_itself_may_be_replaced_and_holds_no_note_of_ours(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", DOUBLED)
    command.simplify_file(Path(source), Path(source), {"batch": 1, "time": 2}, 1e-5)
    assert operators(source) == ["Neg", "Add"]
    assert b"slipway" not in Path(source).read_bytes()


def test_an_older_operator_set_is_converted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> old (float[2] x) => (float[2] y) { y = Relu(x) }'
    ir.save(ir.from_onnx_text(text), tmp_path / "old.onnx")
    code, out, _ = run(capsys, "simplify", str(tmp_path / "old.onnx"), str(tmp_path / "out.onnx"))
    assert code == 0
    assert "out.onnx: written, converted from opset 13 to " in out


def _subtracted(model: ir.Model, rounds: int = 4) -> int:
    next(each for each in model.graph if each.op_type == "Add").op_type = "Sub"
    return rounds


def _without_the_difference(model: ir.Model, rounds: int = 4) -> int:
    """The feed itself: what `(1/x - 1/x) + x` is, but where x is zero."""
    node = next(each for each in model.graph if each.op_type == "Add")
    node.replace_input_with(0, node.inputs[1])
    node.op_type = "Max"
    return rounds


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("(float[4] x) => (float[4] y) { n = Neg(x) y = Add(n, x) }", _subtracted, "expected y within "),
        (
            "(float[4] x) => (float[4] y) { r = Reciprocal(x) s = Sub(r, r) y = Add(s, x) }",
            _without_the_difference,
            "on the edge feed 'silence'",
        ),
    ],
)
def test_a_rule_that_is_not_exact_writes_nothing(
    text: str,
    rule: object,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "simplify_model", rule)
    target = tmp_path / "out.onnx"
    code, _, err = run(capsys, "simplify", write(tmp_path / "in.onnx", text), str(target))
    assert code == 4
    assert words in err and "nothing was written" in err
    assert not target.exists()


def _missing(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "nothing.onnx"), str(tmp_path / "out.onnx")]


def _junk(tmp_path: Path) -> list[str]:
    (tmp_path / "junk.onnx").write_bytes(b"\x08\x01 this is no graph")
    return [str(tmp_path / "junk.onnx"), str(tmp_path / "out.onnx")]


def _lost(tmp_path: Path) -> list[str]:
    return [outside_weights(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")]


def _onto_a_script(tmp_path: Path) -> list[str]:
    (tmp_path / "train.py").write_text("print('mine')\n")
    return [write(tmp_path / "in.onnx", DOUBLED), str(tmp_path / "train.py"), *SIZES]


def _onto_a_folder(tmp_path: Path) -> list[str]:
    return [write(tmp_path / "in.onnx", DOUBLED), str(tmp_path), *SIZES]


def _no_sizes(tmp_path: Path) -> list[str]:
    return [write(tmp_path / "in.onnx", DOUBLED), str(tmp_path / "out.onnx")]


def _wrong_size(tmp_path: Path) -> list[str]:
    return [write(tmp_path / "in.onnx", DOUBLED), str(tmp_path / "out.onnx"), *SIZES, "--set-size", "tme=3"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (_missing, "expected an ONNX file, got nothing at nothing.onnx; check the path"),
        (_junk, "expected an ONNX file at junk.onnx, got "),
        (_lost, "lost.bin"),
        (_onto_a_script, "OUT.onnx: expected a new name or"),
        (_onto_a_folder, "OUT.onnx: expected a file, got the folder"),
        (_no_sizes, "expected a size for batch, time of x [batch, time, 4], got none; write --set-size batch=1"),
        (_wrong_size, "--set-size tme: expected an axis of in.onnx, got 'tme'; did you mean 'time'?"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: object,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = arguments(tmp_path)  # type: ignore[operator]
    before = {path.name: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
    code, _, err = run(capsys, "simplify", *given)
    assert code == 2, err
    assert words in err
    assert {path.name: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_size_that_the_model_does_not_take_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "(float[time] x) => (float[time] y) <int64[1] to = {4}> { y = Expand(x, to) }"
    code, _, err = run(
        capsys, "simplify", write(tmp_path / "in.onnx", text), str(tmp_path / "out.onnx"), "--set-size", "time=3"
    )
    assert code == 2
    assert "to answer x [3], got " in err and "--set-size" in err


def test_the_sizes_that_are_proposed_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An exporter that calls every axis anew: those that the graph makes one get one size."""
    text = CACHE.replace("[batch,2,4] x", "[x_dynamic_axes_1,2,4] x").replace("batch,past", "s1,cache_dynamic_axes_2")
    source, target = write(tmp_path / "m.onnx", text), str(tmp_path / "simple.onnx")
    for given in (["simplify", source, target], ["bench", source, "--calls", "2"]):
        code, _, err = run(capsys, *given)
        assert code == 2
        proposed = err.partition("; write ")[2].partition("\n")[0].split()
        assert run(capsys, *given, *proposed)[0] == 0
