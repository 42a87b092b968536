"""Odd values in every argument of every public function: our own error with a sentence, or an answer."""

import contextlib
import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_lite
from runtime_lite import Model, Runtime, RuntimeLiteError, Sampling, Stream
from runtime_lite.hosting.named_streams import NamedStreams, Place
from runtime_lite.hosting.ray_application import write_application
from runtime_lite.hosting.ray_replica import RayOptions
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    random_chunks,
    random_row,
    write_ragged_bundle,
    write_streaming_bundle,
    write_wired_bundle,
)
from tests.runtime_lite.token_bundle import write_token_bundle
from tests.runtime_lite.voice_bundle import write_voice_bundle


class Odd:
    """An object that has nothing anybody could want of it."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may call this")


ODD: dict[str, Any] = {
    "none": None,
    "number": 3,
    "negative": -1,
    "huge": 10**30,
    "float": 0.5,
    "nan": float("nan"),
    "boolean": True,
    "text": "x",
    "empty text": "",
    "text with nul": "a\0b",
    "long text": "x" * 5000,
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [1, "x", None],
    "empty list": [],
    "mapping": {"x": 1},
    "mapping of lists": {"x": [[0.0, 0.0]]},
    "mapping by number": {1: np.zeros(2, np.float32)},
    "mapping by tuple": {("x",): None},
    "empty mapping": {},
    "list of mappings": [{"x": None}, 7],
    "array": np.zeros((1, 3, 2), np.float32),
    "array of objects": np.array([None, "x"], object),
    "scalar": np.float32(1),
    "set": {1},
    "generator": iter(()),
    "class": dict,
    "function": len,
    "object": Odd(),
}

Call = Callable[[Path, Any], object]


def opened(path: Path) -> contextlib.AbstractContextManager[Model]:
    @contextlib.contextmanager
    def block() -> Iterator[Model]:
        with Runtime() as runtime:
            yield runtime.load(path)

    return block()


def on_model(call: Callable[[Model, Any], object]) -> Call:
    def do(path: Path, odd: Any) -> object:
        with opened(path) as model:
            return call(model, odd)

    return do


def on_stream(call: Callable[[Stream, Any], object]) -> Call:
    return on_model(lambda model, odd: call(model.open_stream(), odd))


def on_runtime(call: Callable[[Runtime, Model, Any], object]) -> Call:
    def do(path: Path, odd: Any) -> object:
        with Runtime() as runtime:
            return call(runtime, runtime.load(path), odd)

    return do


ROW = random_row(4)
CHUNK = random_chunks(1)[0]
RAGGED: dict[str, Call] = {
    "run feeds": on_model(lambda model, odd: model.run(odd)),
    "run one feed": on_model(lambda model, odd: model.run({**ROW, "x": odd})),
    "run graph": on_model(lambda model, odd: model.run(ROW, odd)),
    "run lengths": on_model(lambda model, odd: model.run(ROW, lengths=odd)),
    "run lengths of an axis": on_model(lambda model, odd: model.run(ROW, lengths={"time": odd})),
    "run one length": on_model(lambda model, odd: model.run(ROW, lengths={"time": [odd]})),
    "run lengths by odd name": on_model(lambda model, odd: model.run(ROW, lengths={hashable(odd): [4]})),
    "run_many feeds": on_model(lambda model, odd: model.run_many(odd)),
    "run_many one feed": on_model(lambda model, odd: model.run_many([ROW, odd])),
    "run_many graph": on_model(lambda model, odd: model.run_many([ROW], odd)),
    "submit feeds": on_model(lambda model, odd: model.submit(odd).result(PATIENCE_S)),
    "submit graph": on_model(lambda model, odd: model.submit(ROW, odd).result(PATIENCE_S)),
    "submit lengths": on_model(lambda model, odd: model.submit(ROW, lengths=odd).result(PATIENCE_S)),
    "submit service": on_model(lambda model, odd: model.submit(ROW, service=odd).result(PATIENCE_S)),
    "submit deadline_ms": on_model(lambda model, odd: model.submit(ROW, deadline_ms=odd).result(PATIENCE_S)),
    "submit priority": on_model(lambda model, odd: model.submit(ROW, priority=odd).result(PATIENCE_S)),
    "runner graph": on_model(lambda model, odd: model.runner(odd)),
    "open_stream of a graph without states": on_model(lambda model, odd: model.open_stream(odd)),
}
STREAMING: dict[str, Call] = {
    "open_stream graph": on_model(lambda model, odd: model.open_stream(odd)),
    "open_stream rows": on_model(lambda model, odd: model.open_stream(rows=odd)),
    "open_stream service": on_model(lambda model, odd: model.open_stream(service=odd)),
    "open_stream priority": on_model(lambda model, odd: model.open_stream(priority=odd)),
    "open_stream credits": on_model(lambda model, odd: model.open_stream(credits=odd)),
    "open_stream idle_s": on_model(lambda model, odd: model.open_stream(idle_s=odd)),
    "open_stream period_ms": on_model(lambda model, odd: model.open_stream(period_ms=odd)),
    "push sequence": on_stream(lambda stream, odd: stream.push({"x": CHUNK}, odd)),
    "submit_all feeds": on_stream(lambda stream, odd: stream.submit_all(odd)),
    "restore snapshot": on_stream(lambda stream, odd: stream.restore(odd)),
    "restore bytes of a stream": on_stream(lambda stream, odd: stream.restore(stream.snapshot().to_bytes(), odd)),
    "restore bytes of a generation": on_stream(
        lambda stream, odd: stream.restore(stream.snapshot().to_bytes(), "", odd)
    ),
    "to_bytes stream": on_stream(lambda stream, odd: stream.snapshot().to_bytes(odd)),
    "to_bytes generation": on_stream(lambda stream, odd: stream.snapshot().to_bytes("x", odd)),
    "submit_flush deadline_ms": on_stream(lambda stream, odd: stream.submit_flush(odd)),
    "push feeds": on_stream(lambda stream, odd: stream.push(odd)),
    "push one feed": on_stream(lambda stream, odd: stream.push({"x": odd})),
}


def on_named(call: Callable[[NamedStreams, Any], object]) -> Call:
    def do(model: Model, odd: Any) -> object:
        streams = NamedStreams(model, None, None)
        streams.open("x", 1)
        return call(streams, odd)

    return on_model(do)


NAMED: dict[str, Call] = {
    "NamedStreams graph": on_model(lambda model, odd: NamedStreams(model, odd, None).open("x")),
    "NamedStreams idle_s": on_model(lambda model, odd: NamedStreams(model, None, odd).open("x")),
    "named open name": on_named(lambda streams, odd: streams.open(odd)),
    "named open generation": on_named(lambda streams, odd: streams.open("x", odd)),
    "named open rows": on_named(lambda streams, odd: streams.open("y", 1, odd)),
    "named open priority": on_named(lambda streams, odd: streams.open("y", 1, 1, odd)),
    "named submit feeds": on_named(lambda streams, odd: streams.submit(Place("x", generation=1), odd).result()),
    "named submit feeds of a start": on_named(lambda streams, odd: streams.submit(Place("y", True), odd).result()),
    "named submit one feed of a start": on_named(
        lambda streams, odd: streams.submit(Place("y", True, number=0), {"x": odd}).result()
    ),
    "named submit name": on_named(lambda streams, odd: streams.submit(Place(odd), {"x": CHUNK})),
    "named submit number": on_named(
        lambda streams, odd: streams.submit(Place("x", number=odd, generation=1), {"x": CHUNK}).result()
    ),
    "named submit generation": on_named(lambda streams, odd: streams.submit(Place("x", generation=odd), {"x": CHUNK})),
    "named snapshot name": on_named(lambda streams, odd: streams.snapshot(odd)),
    "named restore content": on_named(lambda streams, odd: streams.restore("y", 2, odd)),
    "named restore name": on_named(lambda streams, odd: streams.restore(odd, 2, streams.snapshot("x", 1))),
    "named restore generation": on_named(lambda streams, odd: streams.restore("x", odd, streams.snapshot("x", 1))),
    "named restore rows": on_named(lambda streams, odd: streams.restore("x", 2, streams.snapshot("x", 1), odd)),
    "named restore sequence": on_named(lambda streams, odd: streams.restore("x", 2, streams.snapshot("x", 1), 1, odd)),
    "named close name": on_named(lambda streams, odd: streams.close(odd)),
    "named take_out limit_s": on_named(lambda streams, odd: streams.take_out("x", 1, odd)),
    "named drain limit_s": on_named(lambda streams, odd: list(streams.drain(odd))),
    "named where name": on_named(lambda streams, odd: streams.where(hashable(odd))),
}
WIRED_CHUNK = {"x": CHUNK, "shift": np.zeros(1, np.int64), "tokens": np.zeros((1, 3), np.int64)}
WIRED: dict[str, Call] = {
    "wired run feeds": on_model(lambda model, odd: model.run(odd)),
    "wired run one feed": on_model(lambda model, odd: model.run({**WIRED_CHUNK, "x": odd})),
    "wired run one feed of a later graph": on_model(lambda model, odd: model.run({**WIRED_CHUNK, "shift": odd})),
    "wired run lengths": on_model(lambda model, odd: model.run(WIRED_CHUNK, lengths=odd)),
    "wired run_many one feed": on_model(lambda model, odd: model.run_many([WIRED_CHUNK, odd])),
    "wired open_stream rows": on_model(lambda model, odd: model.open_stream(rows=odd)),
    "wired open_stream period_ms": on_model(lambda model, odd: model.open_stream(period_ms=odd)),
    "wired push feeds": on_stream(lambda stream, odd: stream.push(odd)),
    "wired restore snapshot": on_stream(lambda stream, odd: stream.restore(odd)),
    "asked graph": on_model(lambda model, odd: model.asked(odd)),
}
OTHERS: dict[str, Call] = {
    "Runtime threads": lambda path, odd: Runtime(odd),
    "Runtime check_finite": lambda path, odd: Runtime(check_finite=odd),
    "Runtime workers": lambda path, odd: Runtime(workers=odd),
    "Runtime max_streams": lambda path, odd: Runtime(max_streams=odd),
    "Runtime observers": lambda path, odd: Runtime(observers=odd),
    "resize workers": lambda path, odd: Runtime().resize(odd),
    "drain limit_s": lambda path, odd: Runtime().drain(odd),
    "close limit_s": lambda path, odd: Runtime().close(odd),
    "close of a model limit_s": on_runtime(lambda runtime, model, odd: model.close(odd)),
    "swap model": lambda path, odd: Runtime().swap(odd, path),
    "swap path": on_runtime(lambda runtime, model, odd: runtime.swap(model, odd)),
    "load priority": lambda path, odd: Runtime().load(path, priority=odd),
    "load warm_up": lambda path, odd: Runtime().load(path, warm_up=odd),
    "in_child executors": lambda path, odd: runtime_lite.in_child(odd),
    "in_child limit_s": lambda path, odd: runtime_lite.in_child(limit_s=odd),
    "in_child open_s": lambda path, odd: runtime_lite.in_child(open_s=odd),
    "load path": lambda path, odd: Runtime().load(odd),
    "load executors": lambda path, odd: load_with(path, None if callable(odd) else odd),
    "read_bundle": lambda path, odd: runtime_lite.read_bundle(odd),
    "write_tar directory": lambda path, odd: runtime_lite.write_tar(odd, path.parent / "a.tar"),
    "write_tar file": lambda path, odd: runtime_lite.write_tar(path, odd),
    "read_file": lambda path, odd: runtime_lite.read_bundle(path).read_file(odd),
    "manifest_from_json": lambda path, odd: runtime_lite.manifest_from_json(odd),
    "json_from_manifest": lambda path, odd: runtime_lite.json_from_manifest(odd),
}


def generated(name: str) -> Call:
    """Generate with an odd argument of that name."""

    def call(model: Model, odd: Any) -> object:
        given = {"feeds": {"tokens": np.array([[3]])}, "sampling": Sampling(max_tokens=2), name: odd}
        feeds, sampling = given.pop("feeds"), given.pop("sampling")
        return model.generate(feeds, sampling, **{"tokens": "tokens", "scores": "scores", **given}).result(PATIENCE_S)

    return on_model(call)


def applied(name: str) -> Call:
    """Write an application with an odd option of that name."""
    return lambda path, odd: write_application(
        path, Path("application", str(time.monotonic_ns())), RayOptions(**{name: odd})
    )


def spoken(name: str) -> Call:
    """Speak with an odd argument of that name."""

    def call(model: Model, odd: Any) -> object:
        given = {"feeds": {"text": np.array([[1, 2]])}, "sampling": Sampling(max_tokens=2), name: odd}
        return model.say(given.pop("feeds"), given.pop("sampling"), **given).result(PATIENCE_S)

    return on_model(call)


def sampled(name: str) -> Call:
    return lambda path, odd: Sampling(**{"max_tokens": 4, name: odd})


GENERATING: dict[str, Call] = {
    f"generate {name}": generated(name)
    for name in ("feeds", "sampling", "tokens", "scores", "graph", "service", "priority", "deadline_ms", "room")
}
WRITING_FOR_RAY: dict[str, Call] = {
    f"RayOptions {field.name}": applied(field.name) for field in dataclasses.fields(RayOptions)
}
SAYING: dict[str, Call] = {
    f"say {name}": spoken(name)
    for name in ("feeds", "sampling", "seed", "service", "priority", "deadline_ms", "room", "lead_ms")
}
SAMPLING: dict[str, Call] = {f"Sampling {field.name}": sampled(field.name) for field in dataclasses.fields(Sampling)}
CLOSED: dict[str, Callable[[Runtime, Model, Stream], object]] = {
    "load": lambda runtime, model, stream: runtime.load("x"),
    "run": lambda runtime, model, stream: model.run({}),
    "run_many": lambda runtime, model, stream: model.run_many([]),
    "open_stream": lambda runtime, model, stream: model.open_stream(),
    "runner": lambda runtime, model, stream: model.runner(),
    "push": lambda runtime, model, stream: stream.push({}),
    "reset": lambda runtime, model, stream: stream.reset(),
    "flush": lambda runtime, model, stream: stream.flush(),
    "runtime in a with block": lambda runtime, model, stream: runtime.__enter__(),
    "stream in a with block": lambda runtime, model, stream: stream.__enter__(),
}


def load_with(path: Path, executors: Any) -> object:
    return Runtime().load(path, executors)


def hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return "unhashable"
    return value


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("odd")
    return {
        "ragged": write_ragged_bundle(folder / "ragged"),
        "streaming": write_streaming_bundle(folder / "streaming"),
        "wired": write_wired_bundle(folder / "wired"),
        "tokens": write_token_bundle(folder / "tokens"),
        "voice": write_voice_bundle(folder / "voice"),
    }


CALLS = {
    **{name: ("ragged", call) for name, call in RAGGED.items()},
    **{name: ("wired", call) for name, call in WIRED.items()},
    **{name: ("streaming", call) for name, call in (STREAMING | NAMED | OTHERS | WRITING_FOR_RAY | SAMPLING).items()},
    **{name: ("tokens", call) for name, call in GENERATING.items()},
    **{name: ("voice", call) for name, call in SAYING.items()},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_argument_is_refused_or_answered(bundles: dict[str, Path], name: str, odd: str) -> None:
    bundle, call = CALLS[name]
    with contextlib.chdir(bundles[bundle].parent):
        try:
            call(bundles[bundle], ODD[odd])
        except RuntimeLiteError as error:
            message = str(error)
            assert "expected " in message and ", got " in message and "; " in message
            assert message.isprintable() and len(message) < 1000


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_closed_says_so(bundles: dict[str, Path], name: str) -> None:
    runtime = Runtime()
    model = runtime.load(bundles["streaming"])
    stream = model.open_stream()
    stream.close()
    runtime.close()
    with pytest.raises(RuntimeLiteError, match=r"expected an? .*open .*, got .*closed"):
        CLOSED[name](runtime, model, stream)


def test_every_public_function_is_asked() -> None:
    """A new public function or argument has to enter the tables above."""
    asked = set(itertools.chain(CALLS, CLOSED))
    for owner in (Runtime, Model, Stream):
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(function).parameters) > 1:
                assert any(name in key.split() for key in asked), f"{owner.__name__}.{name}"
    for name in runtime_lite.__all__:
        if inspect.isfunction(getattr(runtime_lite, name)):
            assert any(name in key.split() for key in asked), name
