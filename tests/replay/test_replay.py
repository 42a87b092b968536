"""A record equals one made anew, and shows what a change of the compiler changes."""

import itertools
from pathlib import Path

import pytest

from compiler.passes.pad_axes import PadAxes
from tests.kit.agreement import lowered
from tests.replay import corpora
from tests.replay.__main__ import differences, main
from tests.replay.trace import traced

GRAPH = """(float[batch,time,4] x) => (float[batch,time,4] y) <float[1] two = {2.0}> { h = Relu(x) y = Add(h, two) }"""


@pytest.mark.parametrize("corpus", ["padded", "stepped", "derived_steps"])
def test_a_record_equals_one_made_anew(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--corpus", corpus, "--first", "2"]
    assert main(["record", str(tmp_path), *chosen]) == 0
    assert main(["compare", str(tmp_path), *chosen]) == 0
    assert "0 graphs differ" in capsys.readouterr().out


def test_what_is_made_otherwise_is_shown_by_part() -> None:
    before = traced(lowered(GRAPH), [PadAxes.name])
    after = traced(lowered(GRAPH.replace("Relu", "Sigmoid")), [PadAxes.name])
    assert list(before) == list(after) == ["values", "facts", PadAxes.name]
    found = list(differences(before, after))
    assert any(line.startswith("facts +h: ") for line in found)
    assert any(line.startswith("pad_axes -::Relu(x)") for line in found)
    assert any(line.startswith("pad_axes +bytes ") for line in found)


def test_a_weight_that_changes_nothing_but_itself_changes_the_digest() -> None:
    scaled = "(float[batch,time,4] x) => (float[batch,time,4] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}> { y = Mul(x, w) }"
    before, after = (traced(lowered(scaled.replace("3.0", third)), [PadAxes.name]) for third in ("3.0", "3.5"))
    assert [line.split()[:2] for line in differences(before, after)] == [["pad_axes", "-bytes"], ["pad_axes", "+bytes"]]


def test_a_refusal_is_recorded_in_full() -> None:
    mixed = "(float[batch,time,4] x) => (float[1,time,4] y) <int64[1] axis = {0}> { y = ReduceMean(x, axis) }"
    record = traced(lowered(mixed), [PadAxes.name])
    assert record[PadAxes.name].startswith("Refused: ")
    assert "ReduceMean" in record[PadAxes.name]
    assert "refused: Refused: " in record["facts"]


def test_a_difference_makes_the_comparison_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["record", str(tmp_path), "--corpus", "padded", "--first", "1"])
    first = dict(itertools.islice(corpora.padded(), 2))
    monkeypatch.setitem(corpora.CORPORA, "padded", lambda: iter([("0", first["1"])]))
    assert main(["compare", str(tmp_path), "--corpus", "padded", "--first", "1"]) == 1
    assert "1 graphs differ" in capsys.readouterr().out
