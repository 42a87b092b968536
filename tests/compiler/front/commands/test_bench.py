"""`build.py bench`: what is timed, by which sizes, and in turns with what."""

import itertools
import re
from pathlib import Path

import pytest

from compiler.front.commands.bench import WARM_UP, bench
from tests.compiler.front.commands.files import CACHE, STEP, outside_weights, run, unknown_operator, write
from tests.runtime_lite.bundles import write_double_bundle, write_streaming_bundle

SIZES = ("--set-size", "batch=1", "--set-size", "past=8")


def test_a_file_is_timed_without_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "bench", write(tmp_path / "m.onnx", CACHE), *SIZES, "--calls", "5")
    assert (code, err) == (0, "")
    assert out.startswith(f"1 thread, 5 calls after {WARM_UP}; times in ms\n")
    assert re.search(r"m\.onnx batch=1,past=8 +\d+\.\d{3} +\d+\.\d{3} +\d+\.\d{3}\.\.\d+\.\d{3}\n", out)


def test_times_are_percentiles_of_single_calls(tmp_path: Path) -> None:
    """A clock of which call n takes n ms."""
    steps = itertools.chain.from_iterable((0.0, number / 1000) for number in itertools.count(1))
    clock = itertools.accumulate(steps)
    (row,) = bench(write(tmp_path / "m.onnx", STEP), None, {}, 1, 101, clock=lambda: next(clock)).rows
    assert (row.p50_ms, row.low_ms, row.high_ms, row.p99_ms) == pytest.approx((51, 11, 91, 100))


def test_two_are_timed_in_turns_and_their_ratio_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "m.onnx", STEP)
    code, out, err = run(capsys, "bench", file, "--against", file, "--calls", "4", "--threads", "2")
    assert (code, err) == (0, "")
    assert out.startswith("2 threads, 4 calls after")
    assert out.count("m.onnx") == 4
    assert re.search(r"m\.onnx takes \d+\.\d\d \(\d+\.\d\d\.\.\d+\.\d\d\) of the time of ", out)


def test_every_bucket_of_a_bundle_is_timed_or_the_one_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(write_streaming_bundle(tmp_path / "bundle"))
    assert run(capsys, "bench", bundle, "--calls", "3")[1].count("streaming batch=") == 2
    code, out, _ = run(capsys, "bench", f"{bundle}:streaming", "--set-size", "batch=4", "--calls", "3")
    assert (code, out.count("streaming batch=4"), out.count("streaming batch=")) == (0, 1, 1)


@pytest.mark.parametrize(
    ("case", "expected", "words"),
    [
        ("nothing", 2, "got nothing at"),
        ("no sizes", 2, "write --set-size batch=1 --set-size past=16"),
        ("no axis", 2, "--set-size time: expected an axis of"),
        ("no bucket", 2, "expected a bucket of streaming, got batch=3; known: batch=1"),
        ("no graph", 2, "expected"),
        ("many buckets", 2, "expected one bucket to compare, got"),
        ("lost weights", 2, "lost.bin"),
        ("unknown operator", 3, "ONNX Runtime cannot run"),
        ("no model", 2, "expected an ONNX file or a bundle, got something else"),
    ],
)
def test_bad_input_is_one_sentence(
    case: str, expected: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = write(tmp_path / "m.onnx", CACHE)
    (tmp_path / "notes.txt").write_text("mine")
    bundle = str(write_double_bundle(tmp_path / "double"))
    arguments = {
        "nothing": [str(tmp_path / "no.onnx")],
        "no sizes": [cache],
        "no axis": [cache, *SIZES, "--set-size", "time=3"],
        "no bucket": [f"{bundle}:streaming", "--set-size", "batch=3"],
        "no graph": [f"{bundle}:none"],
        "many buckets": [bundle, "--against", cache, *SIZES],
        "lost weights": [outside_weights(tmp_path / "w.onnx")],
        "unknown operator": [unknown_operator(tmp_path / "u.onnx")],
        "no model": [str(tmp_path / "notes.txt")],
    }[case]
    code, _, err = run(capsys, "bench", *arguments)
    assert code == expected, err
    assert words in err
