"""The command says what it lacks, and delays are those of the runs."""

import sys
from pathlib import Path

import pytest

from examples.captions.serve import Delays, main
from runtime_lite.serving.events import Execution, Request


def test_without_its_libraries_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main([str(tmp_path)]) == 5
    assert "pip install '.[captions]'" in capsys.readouterr().err


def request_of(number: int, graph: str, arrival: int) -> Request:
    return Request(number, "captions", graph, "chunk", 1, 0, 0, arrival, 0, None, 1.0)


def execution_of(requests: tuple[int, ...], began: int, ended: int) -> Execution:
    return Execution(1, 0, "captions", "transient", {}, 1, 1, 1, requests, began, began, ended, 1, None, False)


def test_delays_are_those_of_the_chunks() -> None:
    delays = Delays()
    assert delays.shown() == {"chunk": [365.0, 365.0]}
    for number, arrival in ((1, 0), (2, 2_000_000)):
        delays.submitted(request_of(number, "transient", arrival))
    delays.submitted(request_of(3, "steady", 0))
    delays.executed(execution_of((1, 2), 4_000_000, 9_000_000))
    delays.executed(execution_of((3,), 9_000_000, 10_000_000))
    assert delays.shown() == {"chunk": [365.0, 365.0], "queue": [3.0, 4.0], "run": [5.0, 5.0]}
    delays.submitted(request_of(4, "transient", 0))
    delays.ended(request_of(4, "transient", 0), "dropped", "late", 1)
    assert not delays._arrivals
