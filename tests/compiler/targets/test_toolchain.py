"""A script in another interpreter: what it is given, what becomes of its files, and every way in which it may end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from compiler.base.interruption import signals_interrupt
from compiler.errors import InternalError, Location, Refused, SlipwayError, ToolchainAbsent
from compiler.targets.toolchain import Toolchain, answer_of, refusal_of
from tests.kit.graphs import parse
from tests.kit.patience import PATIENCE_S

LONG_S = PATIENCE_S

START = "import json, os, pathlib, signal, subprocess, sys, time\nout = pathlib.Path(sys.argv[1])\n"


def ran(folder: Path, body: str, limit_s: float = LONG_S, request: object = None) -> Path:
    """The folder that a script wrote; the script lies in a folder of its own."""
    (folder / "scripts").mkdir(exist_ok=True)
    script = folder / "scripts/vendor.py"
    script.write_text(START + body)
    out = folder / "made"
    Toolchain(Path(sys.executable), script, limit_s).run({"given": request}, out)
    return out


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "scripts")


def test_the_request_goes_in_and_files_come_out(tmp_path: Path) -> None:
    request = {"graph": "ä.onnx", "sizes": [1, 2.5, None]}
    out = ran(tmp_path, "(out / 'heard').write_text(sys.stdin.read())\n(out / 'in').mkdir()", request=request)
    assert sorted(path.name for path in out.iterdir()) == ["heard", "in"]
    assert '"sizes": [1, 2.5, null]' in (out / "heard").read_text()
    assert left(tmp_path) == ["made"]


def test_the_files_may_go_into_an_empty_folder_and_into_no_other(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    assert (ran(tmp_path, "(out / 'x').touch()") / "x").exists()
    with pytest.raises(OSError, match="not empty"):
        ran(tmp_path, "(out / 'y').touch()")
    assert left(tmp_path / "made") == ["x"]


def test_what_a_tool_drops_beside_itself_is_gone(tmp_path: Path) -> None:
    ran(tmp_path, "pathlib.Path('dropped').write_text('x')")
    assert left(tmp_path) == ["made"]
    assert not Path("dropped").exists()


def test_the_environment_is_that_of_the_other_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of this Python are not those of another version."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    out = ran(tmp_path, "(out / 'path').write_text(repr(sys.path))")
    assert "ours" not in (out / "path").read_text()


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        ("sys.exit(print('warning\\nerror: expected rank 4, got 5', file=sys.stderr) or 3)", Refused,
         r"^expected rank 4, got 5; change the graph or the options of the target$"),
        ("sys.exit(3)", Refused, "^no reason; "),
        ("print('error: no package vendor', file=sys.stderr); sys.exit(5)", ToolchainAbsent,
         "^no package vendor; `python build.py doctor`"),
        ("raise ValueError('odd')", InternalError, r"^vendor.py ended with 1 \(it wrote: .*\| ValueError: odd\)"),
        ("sys.exit(77)", InternalError, "^vendor.py ended with 77$"),
        ("print('about to', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGSEGV)", Refused,
         r"got a process ended by SIGSEGV \(it wrote: about to\)"),
        ("os.kill(os.getpid(), 40)", Refused, "got a process ended by signal 40"),
        ("os.write(2, b'\\x1b[31m\\xff' + b'x' * 100_000 + b'\\nend'); sys.exit(1)", InternalError, r"x \| end\)$"),
    ],
)  # fmt: skip
def test_however_it_ends_one_sentence_says_it_and_nothing_is_left(
    body: str, kind: type[SlipwayError], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        ran(tmp_path, f"(out / 'half').write_text('x')\n{body}")
    assert type(caught.value) is kind
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 5000
    assert left(tmp_path) == []


def is_alive(number: int) -> bool:
    """Whether a process is there and not merely waiting to be asked how it ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


SLEEPER = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"

Wait = Callable[["subprocess.Popen[bytes]", float | None], int]


def wait_for(file: Path) -> Wait:
    """A wait whose limit begins to run when a file is there: how long a start takes is not what is tried."""
    real = subprocess.Popen.wait

    def wait(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        while timeout is not None and not file.exists() and process.poll() is None:
            time.sleep(0.01)
        return real(process, timeout)

    return wait


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks the processes of Linux")
@pytest.mark.parametrize(("end", "limit_s"), [("time.sleep(600)", 0.1), ("", LONG_S)])
def test_at_the_limit_and_at_the_end_its_children_are_ended_with_it(
    end: str, limit_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "scripts/child"
    monkeypatch.setattr(subprocess.Popen, "wait", wait_for(child))
    begun = child.with_name("begun")
    written = f"pathlib.Path({str(begun)!r}).write_text(str(child.pid))\nos.rename({str(begun)!r}, {str(child)!r})"
    body = f"{SLEEPER}{written}\n{end}"
    if end:
        with pytest.raises(Refused, match=r"expected vendor\.py to end within 0\.1 s, got no end; take"):
            ran(tmp_path, body, limit_s)
    else:
        ran(tmp_path, body, limit_s)
    number = int(child.read_text())
    until = time.monotonic() + PATIENCE_S
    while is_alive(number):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert left(tmp_path) == ([] if end else ["made"])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks the processes of Linux")
def test_one_that_fills_memory_is_ended_and_told_so(tmp_path: Path) -> None:
    script = tmp_path / "scripts/vendor.py"
    script.parent.mkdir()
    script.write_text(f"{START}held = [bytes(range(256)) * 4096 for _ in range(300)]\ntime.sleep(600)")
    with pytest.raises(
        Refused, match=r"expected vendor\.py to hold at most 200,000,000 bytes of memory, got more; take"
    ):
        Toolchain(Path(sys.executable), script, LONG_S, limit_bytes=200_000_000).run({}, tmp_path / "made")
    assert left(tmp_path) == []


def test_one_that_holds_little_ends_as_without_a_limit(tmp_path: Path) -> None:
    script = tmp_path / "scripts/vendor.py"
    script.parent.mkdir()
    script.write_text(f"{START}(out / 'x').touch()")
    Toolchain(Path(sys.executable), script, LONG_S, limit_bytes=1 << 40).run({}, tmp_path / "made")
    assert left(tmp_path / "made") == ["x"]


def test_an_interruption_ends_it_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    kill = os.killpg

    def seen(number: int, end: int) -> None:
        killed.append(number)
        kill(number, end)

    monkeypatch.setattr(os, "killpg", seen)
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted_once())
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, "time.sleep(600)")
    assert len(killed) == 1
    assert left(tmp_path) == []


def test_a_signal_at_its_start_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*given: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(real(*given, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        ran(tmp_path, "time.sleep(600)")
    assert started[0].wait(LONG_S) == -signal.SIGKILL
    assert left(tmp_path) == []


def interrupted_once() -> Wait:
    """A wait that is interrupted the first time."""
    real = subprocess.Popen.wait
    calls: list[float | None] = []

    def wait(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        calls.append(timeout)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(process, timeout)

    return wait


@pytest.mark.parametrize("name", ["none here", "not a program"])
def test_an_interpreter_that_does_not_start_is_absent(name: str, tmp_path: Path) -> None:
    (tmp_path / "not a program").write_text("text")
    before = left(tmp_path)
    with pytest.raises(ToolchainAbsent, match=f"expected the interpreter .*{name}, got .*; `python build.py doctor`"):
        Toolchain(tmp_path / name, tmp_path / "x.py", LONG_S).run({}, tmp_path / "made")
    assert left(tmp_path) == before


def test_an_answer_that_is_no_json_is_refused_with_the_script(tmp_path: Path) -> None:
    file = tmp_path / "built.json"
    for written in (None, "nonsense"):
        if written is not None:
            file.write_text(written)
        with pytest.raises(Refused, match=r"expected an answer in JSON of worker\.py, got") as caught:
            answer_of(file, tmp_path / "worker.py")
        assert caught.value.cure == "install the toolchain again"


def test_the_first_node_that_stays_outside_is_the_place_of_the_refusal(tmp_path: Path) -> None:
    model = parse("(float[2] x) => (float[2] y) { a = Sin(x)  y = Cos(a) }")
    ir.save(model, tmp_path / "net.onnx")
    first, second = (str(node.name) for node in model.graph)
    told = {"graph": "net.onnx", "nodes": [[first, "sine"], [second, "Cos"]], "reason": ""}
    refused = refusal_of(told, tmp_path, "NPU 7", Location(stage="npu"), "another NPU")
    assert (refused.place.stage, refused.place.node, refused.place.op) == ("npu", first, "Sin")
    assert f"NPU 7 computes as a whole, got 2 that the vendor leaves to the CPU: {first} (sine), {second}" in str(
        refused
    )
    alone = refusal_of({**told, "nodes": [], "reason": "too large"}, tmp_path, "NPU 7", Location(), "another NPU")
    assert alone.message.endswith("computes as a whole, got: too large")
    assert alone.cure == "change the graph, or build for another NPU"
