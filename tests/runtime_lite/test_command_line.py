"""`python -m runtime_lite`: what each command prints and writes, and one line with an exit code for each mistake."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Model, __main__, __version__, read_bundle, write_tar
from runtime_lite.format.arrays import npz_from_arrays
from runtime_lite.format.golden import Golden, npz_from_golden
from runtime_lite.serving.metrics import Metrics
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    edit_manifest,
    random_chunks,
    random_row,
    replace_hashed,
    streaming_golden,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_double_bundle,
    write_ragged_bundle,
    write_streaming_bundle,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_double_bundle(tmp_path / "bundle")


@pytest.fixture
def streaming(tmp_path: Path) -> Path:
    return write_streaming_bundle(tmp_path / "streaming")


def call(*arguments: object) -> int:
    return __main__.main([str(argument) for argument in arguments])


def test_inspect_prints_what_a_bundle_is(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", bundle) == 0
    text = capsys.readouterr().out
    for word in (
        "tiny  (schema 4, 13 files",
        "graph streaming  (onnx_static, opset 20, IR version 10)",
        "[batch, 3, 2]",
        "keys <- next_keys",
        "cache cache: 5 slots, 3 frames a push, right-aligned, replace, length real_length, mask mask",
        "batch=4,frames=3",
        "graphs/streaming.batch4.onnx",
        "sample_rate_hz  16000",
        "model.safetensors",
        "onnxruntime  1.31.1",
    ):
        assert word in text
    with read_bundle(bundle) as opened:
        assert opened.manifest_sha256 in text
        assert all(entry.sha256 in text for entry in opened.manifest.files.values())


def test_inspect_says_it_as_json(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", bundle, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["manifest"]["name"]) == (1, "tiny")


def test_verify_prints_the_errors_and_succeeds(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(bundle, tmp_path / "bundle.tar")
    for path in (bundle, tmp_path / "bundle.tar"):
        assert call("verify", path, "--threads", 2) == 0
        text = capsys.readouterr().out
        assert "13 files: size and sha256 as listed" in text
        assert text.count(" ok") == 6


def test_verify_of_a_bundle_that_computes_something_else_exits_4(
    streaming: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = streaming_golden()
    replace_hashed(streaming, "golden/streaming.npz", npz_from_golden(Golden((golden.steps[4],), golden.tolerance)))
    assert call("verify", streaming) == 4
    captured = capsys.readouterr()
    assert "DIFFERS" in captured.out
    assert captured.err.startswith(f"error: {streaming}: expected '")
    assert captured.err.count("\n") == 1


def test_run_writes_the_outputs(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, shift = random_chunks(1, 3)[0], np.arange(3)
    np.savez(tmp_path / "feeds.npz", x=x, shift=shift)
    assert (
        call("run", bundle, "--graph", "plain", "--feeds", tmp_path / "feeds.npz", "--out", tmp_path / "out.npz") == 0
    )
    assert capsys.readouterr().out == "y  float32 [3, 3, 2]\n"
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["y"], truth_of_plain(x, shift), atol=2e-6)


def test_every_command_takes_a_bundle_whose_rows_have_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_ragged_bundle(tmp_path / "ragged")
    (tmp_path / "feeds.npz").write_bytes(npz_from_arrays(random_row(5)))
    assert call("run", bundle, "--feeds", tmp_path / "feeds.npz", "--out", tmp_path / "out.npz") == 0
    assert capsys.readouterr().out == "y  float32 [1, 3, 2]\nmean  float32 [1, 2]\n"
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["y"], truth_of_ragged(**random_row(5))[0], atol=2e-6)
    assert call("verify", bundle) == 0
    assert capsys.readouterr().out.count(" ok") == 8
    assert call("bench", bundle, "--runs", 1, "--warm-up", 1, "--update-costs") == 0
    assert capsys.readouterr().out.count("batch=") == 4
    assert call("inspect", bundle) == 0
    assert "(time - 1) // 2 + 1" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [1, 3])
def test_run_pushes_chunks_through_a_stream(streaming: Path, tmp_path: Path, rows: int) -> None:
    chunks = random_chunks(7, rows)
    np.savez(tmp_path / "feeds.npz", x=chunks)
    assert call("run", streaming, "--stream", "--feeds", tmp_path / "feeds.npz", "--out", tmp_path / "out.npz") == 0
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["y"], [y for y, _ in truth_of_stream(chunks)], atol=2e-6)


def test_bench_prints_times_and_writes_only_when_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(bundle.rglob("*"))
    assert call("bench", bundle, "--runs", 3, "--warm-up", 1) == 0
    text = capsys.readouterr().out
    assert "1 threads, 3 runs after 1; times in ms" in text
    assert text.count("batch=") == 6
    assert sorted(bundle.rglob("*")) == before
    assert call("bench", bundle, "--runs", 3, "--warm-up", 1, "--threads", 2, "--update-costs") == 0
    with read_bundle(bundle) as opened:
        assert {graph: sorted(table) for graph, table in opened.costs.items()} == {
            "plain": ["batch=1,frames=2", "batch=1,frames=3", "batch=4,frames=2", "batch=4,frames=3"],
            "streaming": ["batch=1", "batch=4"],
        }
        assert opened.costs["streaming"]["batch=1"].threads == 2
    assert call("inspect", bundle) == 0
    assert "ms, 2 threads" in capsys.readouterr().out
    assert call("bench", bundle, "--runs", 2, "--workers", 2, "--update-costs") == 0
    assert "1 threads, 2 workers, 2 runs of each; times in ms" in capsys.readouterr().out
    with read_bundle(bundle) as opened:
        costs = [cost for table in opened.costs.values() for cost in table.values()]
    assert len(costs) == 6 and all(cost.p99_ms is not None and cost.p99_ms >= cost.p50_ms for cost in costs)


def feeds_file(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "feeds.npz", **arrays)
    return folder / "feeds.npz"


def newer(directory: Path) -> tuple[str, Path]:
    edit_manifest(directory, lambda m: m.update(schema_version=9))
    return "inspect", directory


CHUNKS = random_chunks(2)

MISTAKES: dict[str, tuple[Any, str]] = {
    "no bundle": (
        lambda d: ("inspect", d / "nothing"),
        "expected a bundle directory or .tar file, got nothing at this path",
    ),
    "broken bundle": (
        lambda d: ((d / "b/recipe.yaml").unlink(), ("verify", d / "b"))[1],
        "expected the file 'recipe.yaml'",
    ),
    "newer bundle": (
        lambda d: newer(d / "b"),
        "expected 4, got 9; update runtime_lite",
    ),
    "no feeds": (
        lambda d: ("run", d / "b", "--feeds", d / "f.npz", "--out", d / "o.npz"),
        "f.npz: expected an .npz file, got No such file or directory",
    ),
    "feeds are a folder": (lambda d: ("run", d / "b", "--feeds", d, "--out", d / "o.npz"), "Is a directory"),
    "feeds are text": (lambda d: ("run", d / "b", "--feeds", __file__, "--out", d / "o.npz"), "expected an .npz file"),
    "out in no folder": (
        lambda d: ("run", d / "b", "--feeds", feeds_file(d, x=CHUNKS[0]), "--out", d / "no/o.npz"),
        "No such file or directory; check the path, permissions and free space",
    ),
    "wrong feed": (
        lambda d: ("run", d / "b", "--feeds", feeds_file(d, x=CHUNKS[0].astype("f8")), "--out", d / "o.npz"),
        "got dtype float64; convert it with x.astype(numpy.float32)",
    ),
    "wrong graph": (
        lambda d: ("run", d / "b", "--graph", "g", "--feeds", feeds_file(d, x=CHUNKS[0]), "--out", d / "o.npz"),
        "expected one of its graphs ('streaming'), got graph 'g'",
    ),
    "no chunks": (
        lambda d: ("run", d / "b", "--stream", "--feeds", feeds_file(d, x=CHUNKS[:0]), "--out", d / "o.npz"),
        "run --stream: expected arrays [chunks, rows, ...] with one number of chunks, got {'x': 0}",
    ),
    "chunks of no rank": (
        lambda d: ("run", d / "b", "--stream", "--feeds", feeds_file(d, x=np.float32(1)), "--out", d / "o.npz"),
        "run --stream: expected arrays [chunks, rows, ...]",
    ),
    "no arrays": (
        lambda d: ("run", d / "b", "--stream", "--feeds", feeds_file(d), "--out", d / "o.npz"),
        "run --stream: expected arrays [chunks, rows, ...]",
    ),
    "chunks without rows": (
        lambda d: ("run", d / "b", "--stream", "--feeds", feeds_file(d, x=CHUNKS[:, 0]), "--out", d / "o.npz"),
        "'x': expected 3 dimensions [batch, 3, 2], got 2 dimensions [3, 2]; add the missing axis, e.g. x[None]",
    ),
    "too many threads": (
        lambda d: ("bench", d / "b", "--threads", 99999),
        "expected threads from 1 to 1024, got 99999",
    ),
    "costs of a file": (
        lambda d: ("bench", __file__, "--update-costs"),
        "expected a bundle directory for --update-costs",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_exits_2_with_one_line_and_writes_nothing(
    tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, sentence = MISTAKES[mistake]
    write_streaming_bundle(tmp_path / "b")
    assert call(*arguments(tmp_path)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert not list(tmp_path.glob("*o.npz*"))


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"slipway-runtime {__version__}\n")


@pytest.mark.parametrize("arguments", [(), ("inspect",), ("bench", "b", "--runs", "0"), ("run", "b"), ("destroy", "b")])
def test_a_wrong_command_line_exits_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        call(*arguments)
    assert refusal.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def fail_with(error: BaseException) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "interrupted, nothing was written\n"),
        (OSError(28, "No space left on device"), 2, "out.npz: No space left on device; check the path"),
    ],
)
def test_an_interrupt_and_a_full_disk_leave_the_previous_output(
    streaming: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    out = tmp_path / "out.npz"
    out.write_bytes(b"previous")
    feeds = feeds_file(tmp_path, x=CHUNKS[0])
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Model, "run", fail_with(error))
    assert call("run", streaming, "--feeds", feeds, "--out", out) == code
    assert sentence in capsys.readouterr().err
    assert out.read_bytes() == b"previous"
    assert sorted(tmp_path.iterdir()) == before


SAYS_WHEN = """
import sys
from runtime_lite import __main__, bench

def say(*arguments):
    print("timing", flush=True)
    return bench.bench_model(*arguments)

__main__.bench_model = say
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 50])
def test_ctrl_c_ends_a_real_process_with_one_line(streaming: Path, delay_ms: int) -> None:
    command = [sys.executable, "-c", SAYS_WHEN, "bench", str(streaming), "--runs", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "timing\n"
            time.sleep(delay_ms / 1000)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, "interrupted, nothing was written\n")


def test_a_bug_is_not_dressed_up(streaming: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "describe_bundle", fail_with(ZeroDivisionError("oops")))
    with pytest.raises(ZeroDivisionError):
        call("inspect", streaming)


def test_a_reader_that_leaves_early_is_no_error(streaming: Path) -> None:
    command = f"{sys.executable} -m runtime_lite inspect {streaming} | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "t", "")


def test_top_shows_a_server_by_its_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    with Metrics().serve(0) as address:
        assert call("top", address, "--every", "0.01", "--views", "2") == 0
    assert capsys.readouterr().out.count("no requests yet") == 2
    assert call("top", address) == 2
    assert "expected metrics at" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call("top", address, "--every", "never")


def test_triton_writes_a_model_repository(streaming: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("triton", streaming, tmp_path / "models", "--name", "asr", "--workers", "2", "--idle-s", "5")
    assert call(*given) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'models' / 'asr'}\n"
    assert 'key: "idle_s" value: { string_value: "5.0" }' in (tmp_path / "models/asr/config.pbtxt").read_text()
    assert call(*given) == 2
    assert "expected no model of this name" in capsys.readouterr().err
