"""tracer: what is read while watched is known afterwards, and what leads out of sight is said."""

import contextlib
import importlib.metadata
import inspect
import os
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.external_data_helper import set_external_data

from compiler.base.cache.dependencies import ABSENT, file_at, holds, kinds_at, times_at, variable_named
from compiler.base.cache.read_tracer import READ_TRACER, ReadTracer


@pytest.fixture
def tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadTracer]:
    monkeypatch.chdir(tmp_path)
    READ_TRACER.forget()
    yield READ_TRACER
    READ_TRACER.forget()


def mapped(path: Path) -> None:
    np.memmap(path, np.uint8, "r")


READERS: list[Callable[[Path], object]] = [
    Path.read_bytes,
    lambda path: np.fromfile(path, np.uint8),
    mapped,
    lambda path: os.close(os.open(path, os.O_RDONLY)),
    lambda path: path.open("r+b").close(),
    Path.exists,
    lambda path: os.path.getsize(path),
    lambda path: os.access(path, os.R_OK),
]


@pytest.mark.parametrize("read", READERS)
def test_files_are_seen_whoever_opens_them(read: Callable[[Path], object], tracer: ReadTracer) -> None:
    path = Path("weights.bin")
    path.write_bytes(b"12345678")
    with tracer.watching():
        read(path)
    reads = tracer.reads()
    assert reads is not None and file_at("weights.bin") in reads and holds(reads)
    path.write_bytes(b"87654321")
    assert not holds(reads)


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (bool c) => (float[1] y) {
    y = If<then_branch = first () => (float[1] a) <float[1] w = {1}> { a = Identity(w) },
           else_branch = second () => (float[1] b) { b = Constant<value = float[1] {2}>() }>(c)
}"""


def test_weights_of_branches_that_lie_apart_are_seen(tracer: ReadTracer) -> None:
    model = onnx.parser.parse_model(BRANCHES)
    first, second = (attribute.g for attribute in model.graph.node[0].attribute)
    weights = (first.initializer[0], second.node[0].attribute[0].t)
    for tensor, file in zip(weights, ("first.bin", "second.bin"), strict=True):
        tensor.raw_data = onnx.numpy_helper.to_array(tensor).tobytes()
        set_external_data(tensor, file)
        Path(file).write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
    Path("model.onnx").write_bytes(model.SerializeToString())
    with tracer.watching(), contextlib.suppress(Exception):
        onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    reads = tracer.reads()
    assert reads is not None and {file_at("model.onnx"), file_at("first.bin"), file_at("second.bin")} <= set(reads)


def test_files_that_are_not_there_are_seen(tracer: ReadTracer) -> None:
    with tracer.watching():
        assert not Path("extra.bin").exists()
        with pytest.raises(FileNotFoundError):
            Path("other.bin").read_bytes()
    assert tracer.reads() == {file_at("extra.bin"): ABSENT, file_at("other.bin"): ABSENT}


def test_folders_and_variables_are_seen(tracer: ReadTracer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_SIZE", "8")
    Path("corpus").mkdir()
    with tracer.watching():
        assert os.environ["MODEL_SIZE"] == os.getenv("MODEL_SIZE") == "8"
        assert "MODEL_DEPTH" not in os.environ
        assert list(Path("corpus").glob("*.flac")) == []
    reads = tracer.reads()
    assert reads is not None
    assert {variable_named("MODEL_SIZE"), variable_named("MODEL_DEPTH"), kinds_at("corpus")} <= set(reads)
    assert holds(reads)
    Path("corpus/a.flac").touch()
    assert not holds(reads)


def test_own_products_and_unwatched_reads_are_no_dependencies(tracer: ReadTracer) -> None:
    Path("before.txt").write_text("1")
    Path("before.txt").read_text()
    with tracer.watching():
        Path("scratch.txt").write_text("1")
        assert Path("scratch.txt").read_text() == "1"
    assert tracer.reads() == {}


def test_who_looks_for_packages_lists_no_folder(tracer: ReadTracer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("")
    with tracer.watching():
        assert importlib.metadata.entry_points(group="pytest11") and importlib.metadata.version("numpy")
    reads = tracer.reads()
    assert reads is not None and not [each for each in reads if each.startswith(("folder", "kinds", "entries"))]


def test_who_asks_for_the_module_of_code_reads_no_other_module(
    tracer: ReadTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("beside.py").resolve()
    path.write_text("number = 1\n")
    module = types.ModuleType("beside")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "beside", module)
    with tracer.watching():
        inspect.getmodule(compile("", "nowhere", "exec"))
    assert file_at(str(path)) not in (tracer.reads() or {})
    with tracer.watching():
        os.path.realpath(path)
    assert file_at(str(path)) in (tracer.reads() or {})


def test_what_lies_in_a_folder_of_its_own_is_no_dependency(tracer: ReadTracer) -> None:
    with tracer.watching():
        Path("mine").mkdir()
        Path("mine/scratch.txt").write_text("1")
        Path("mine/scratch.txt").rename("mine/done.txt")
        assert os.listdir("mine") == ["done.txt"] and Path("mine/done.txt").read_text() == "1"
    assert tracer.reads() == {}


def test_a_variable_that_the_code_sets_itself_is_no_dependency(
    tracer: ReadTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODEL_SIZE", raising=False)
    with tracer.watching():
        os.environ["MODEL_SIZE"] = "8"
        assert os.environ["MODEL_SIZE"] == "8"
    assert tracer.reads() == {}


def test_the_code_of_a_user_may_look_at_times(tracer: ReadTracer) -> None:
    Path("weights.bin").write_bytes(b"1")
    with tracer.watching():
        assert os.path.getmtime("weights.bin") and Path("weights.bin").stat().st_mtime
    reads = tracer.reads()
    assert reads is not None and set(reads) == {file_at("weights.bin"), times_at("weights.bin")}
    os.utime("weights.bin", (1, 1))
    assert not holds(reads)


def test_a_file_that_changes_after_it_was_read_is_noticed(tracer: ReadTracer) -> None:
    path = Path("weights.bin")
    path.write_bytes(b"1")
    with tracer.watching():
        path.read_bytes()
        path.write_bytes(b"22")
    assert tracer.reads() is None
    assert tracer.reads(lambda name: name.endswith("weights.bin")) == {}


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (lambda: subprocess.run([sys.executable, "-c", ""], check=True), "another process (subprocess.Popen)"),
        (lambda: socket.socket().close(), "the network (socket.__new__)"),
        (lambda: Path("/proc/self/stat").read_text(), "/proc/self/stat"),
        (lambda: sys.audit("an.event.of.tomorrow"), "an.event.of.tomorrow"),
    ],
)
def test_what_leads_out_of_sight_is_said(leave: Callable[[], object], named: str, tracer: ReadTracer) -> None:
    with tracer.watching():
        leave()
    assert named in tracer.unseen()
    tracer.answer_for()
    assert tracer.unseen() == ()


def test_what_an_import_does_out_of_sight_stays_said(tracer: ReadTracer, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("calls_home.py").write_text("import socket\nsocket.socket().close()\n")
    monkeypatch.syspath_prepend(os.getcwd())
    with tracer.watching():
        __import__("calls_home")
    del sys.modules["calls_home"]
    tracer.answer_for()
    assert "the network (socket.__new__)" in tracer.unseen()


def test_the_interpreter_is_as_before_afterwards(tracer: ReadTracer) -> None:
    before = os.stat, os.access, type(os.environ).__getitem__, list(sys.meta_path)
    with tracer.watching(), tracer.watching():
        assert os.stat is not before[0] and os.stat in os.supports_dir_fd
    assert (os.stat, os.access, type(os.environ).__getitem__, sys.meta_path) == before
