"""A manifest with one field changed is refused, or the bundle answers as before: never otherwise, and never a bug."""

import copy
import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Runtime, RuntimeLiteError
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.manifest import Graph
from tests.runtime_lite.bundles import (
    STREAMING_TEXT,
    graph_files,
    onnx_bytes,
    random_chunks,
    streaming_golden,
    streaming_graph,
    write_bundle,
    write_latencies_bundle,
    write_wired_bundle,
)

Place = tuple[str | int, ...]

OPEN = "graphs/streaming.batch.onnx"


def _ranged(folder: Path) -> Path:
    """A graph whose rows are open, with a range of its input."""
    graph: Graph = streaming_graph()
    inputs = tuple(dataclasses.replace(each, range=(-9.0, 9.0) if each.name == "x" else None) for each in graph.inputs)
    artifacts = tuple(dataclasses.replace(each, file=OPEN) for each in graph.artifacts)
    files = graph_files() | {"golden/streaming.npz": npz_from_golden(streaming_golden())}
    files |= {OPEN: onnx_bytes(STREAMING_TEXT.format(n="batch"))}
    return write_bundle(folder, {"streaming": dataclasses.replace(graph, inputs=inputs, artifacts=artifacts)}, files)


MADE: dict[str, Callable[[Path], Path]] = {
    "range": _ranged,
    "wires": write_wired_bundle,
    "latencies": write_latencies_bundle,
}


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield place, value
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from _leaves(each, (*place, key))


def _others(value: Any, known: list[str], random: np.random.Generator) -> Iterator[Any]:
    """What else may stand for a value; `...` for that nothing does."""
    yield ...
    if isinstance(value, bool):
        yield from (not value, None, 1)
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1, -value, 0, 2**40, value + 0.5, str(value), None)
    elif isinstance(value, str):
        yield from (known[int(random.integers(len(known)))], f"{value}x", value[:-1], "../x", "", 3, None)
    elif isinstance(value, list):
        yield from ([], value[::-1], value[:-1], value + value[-1:], None, {})
    elif isinstance(value, dict):
        yield from ({}, None, [], value | {"other": 1}, dict(list(value.items())[1:]))
    else:
        yield from (0, "", [], 1.5, True)


def _changed(plain: Any, place: Place, other: Any) -> Any:
    found = copy.deepcopy(plain)
    if not place:
        return None if other is ... else other
    inside = found
    for key in place[:-1]:
        inside = inside[key]
    if other is ...:
        del inside[place[-1]]
    else:
        inside[place[-1]] = other
    return found


def _answers(path: Path, name: str) -> dict[str, bytes]:
    """What a bundle answers to a stream, to several rows, and to what is out of its range."""
    found: dict[str, bytes] = {}
    with Runtime() as runtime:
        model = runtime.load(path)
        graph, latency = "streaming" if name == "wires" else None, "exact" if name == "latencies" else None
        with model.open_stream(graph, latency=latency) as stream:
            for at, chunk in enumerate(random_chunks(3)):
                found |= {f"{at}.{key}": array.tobytes() for key, array in stream.push({"x": chunk}).items()}
        with model.open_stream(graph, rows=3, latency=latency) as stream:
            found |= {key: array.tobytes() for key, array in stream.push({"x": random_chunks(1, 3)[0]}).items()}
        if name == "range":
            with model.open_stream() as stream, pytest.raises(RuntimeLiteError):
                stream.push({"x": random_chunks(1)[0] + 20})
    return found


def _fate(path: Path, name: str, text: str, right: dict[str, bytes]) -> str:
    (path / "manifest.json").write_text(text)
    try:
        return "as before" if _answers(path, name) == right else "CHANGED"
    except RuntimeLiteError:
        return "refused"
    except pytest.fail.Exception:
        return "TAKEN out of range"
    except Exception as error:  # noqa: BLE001 - anything else would reach a user as a bug
        return f"BUG {type(error).__name__}: {error}"


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 23])
@pytest.mark.parametrize("name", MADE)
def test_no_changed_field_changes_an_answer(tmp_path: Path, name: str, every: int) -> None:
    path, random = MADE[name](tmp_path / "b"), np.random.default_rng(0)
    plain = json.loads((path / "manifest.json").read_bytes())
    right = _answers(path, name)
    known = [value for _, value in _leaves(plain) if isinstance(value, str)]
    forms = [(place, other) for place, value in _leaves(plain) for other in _others(value, known, random)]
    fates: dict[str, list[tuple[Place, Any]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for place, other in forms[::every]:
            fate = _fate(path, name, json.dumps(_changed(plain, place, other)), right)
            fates.setdefault(fate, []).append((place, other))
    print({fate: len(places) for fate, places in fates.items()})
    bad = {fate: places[:5] for fate, places in fates.items() if fate not in ("as before", "refused")}
    assert not bad
    assert len(fates["refused"]) > len(forms[::every]) // 2
