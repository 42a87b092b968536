"""`python -m runtime_lite load`: what it prints and writes, and one line for each mistake."""

import json
import socket
import urllib.request
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import __main__
from runtime_lite.format.arrays import npz_from_arrays
from runtime_lite.load_test.drive import drive
from runtime_lite.load_test.findings import Served
from runtime_lite.scheduling.task import UTTERANCE
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    random_chunks,
    write_double_bundle,
    write_plain_bundle,
    write_ragged_bundle,
    write_streaming_bundle,
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double_bundle(tmp_path_factory.mktemp("load") / "bundle")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings are answered however slow the machine is."""
    service = UTTERANCE._replace(soft_ms=PATIENCE_S * 1e3, hard_ms=None)
    monkeypatch.setattr("runtime_lite.load_test.command.UTTERANCE", service)


def load(*arguments: object) -> int:
    return __main__.main(["load", *map(str, arguments)])


@pytest.mark.usefixtures("patient")
def test_streams_recordings_and_bursts_on_one_device(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = ("--streams", 3, "--period-ms", 20, "--chunks", 6, "--utterances", 30, "--burst", 4, "--burst-every", 0.3)
    written = [tmp_path / name for name in ("findings.json", "load.svg", "trace.json")]
    patience = ("--soft-ms", PATIENCE_S * 1e3, "--no-admission")
    files = ("--json", written[0], "--svg", written[1], "--trace", written[2])
    assert load(bundle, "--seconds", 0.5, *traffic, *files, "--workers", 2, *patience) == 0
    text = capsys.readouterr().out
    assert ": balanced" in text
    assert "RTF" in text
    found = json.loads(written[0].read_bytes())
    kinds = found["kinds"]
    assert (kinds["stream"]["sent"], kinds["burst"]["sent"], kinds["utterance"]["sent"] > 0) == (75, 8, True)
    assert all(kind["done"] == kind["sent"] and kind["late_share"] == 0.0 for kind in kinds.values())
    assert set(kinds["stream"]["latency_ms"]) == {"first", "middle", "last", "all"}
    assert found["requests"]["submitted"] == found["requests"]["done"] == sum(kind["sent"] for kind in kinds.values())
    xml.etree.ElementTree.parse(written[1])
    events = json.loads(written[2].read_bytes())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "b"} >= {"queue", "batch", "device", "answer"}


def test_feeds_come_from_files_and_models_from_several_bundles(tmp_path: Path) -> None:
    streaming, ragged = write_streaming_bundle(tmp_path / "a"), write_ragged_bundle(tmp_path / "b")
    chunks = tmp_path / "chunks.npz"
    chunks.write_bytes(npz_from_arrays({"x": random_chunks(7)}))
    feeds = ["--stream-feeds", chunks]
    for length in (3, 8):  # recordings of one length are a file
        rows = tmp_path / f"{length}.npz"
        x = np.ones((3, 1, length, 2), np.float32)
        rows.write_bytes(npz_from_arrays({"x": x, "tokens": np.zeros((3, 1, length), np.int64)}))
        feeds += ["--utterance-feeds", rows]
    assert load(streaming, ragged, *feeds, "--seconds", 0.2, "--streams", 1, "--period-ms", 20, "--burst", 2) == 0


@pytest.mark.usefixtures("patient")
def test_metrics_are_served_while_the_load_runs(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pages: list[bytes] = []

    def drive_and_read(*given: Any) -> list[Served]:
        served = drive(*given)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            pages.append(answer.read())
        return served

    monkeypatch.setattr("runtime_lite.load_test.command.drive", drive_and_read)
    assert load(bundle, "--burst", 3, "--burst-every", 0.1, "--seconds", 0.1, "--metrics", port) == 0
    assert b"slipway_healthy 1.0" in pages[0]
    assert b'slipway_requests_ended_total{outcome="done",reason="",service="utterance"} 3.0' in pages[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected something to send, got nothing"),
        (("--streams", 2), "expected --period-ms with --streams"),
        (("--burst", 1, "--utterance-graph", "other"), "expected one graph without states, got none"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    bundle: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], message: str
) -> None:
    assert load(bundle, *arguments) == 2
    assert message in capsys.readouterr().err


def test_two_graphs_of_a_kind_are_told_apart_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    double, plain = write_double_bundle(tmp_path / "a"), write_plain_bundle(tmp_path / "b")
    assert load(double, plain, "--burst", 1) == 2
    assert "got 'plain', 'plain'; name one by --utterance-graph" in capsys.readouterr().err


def test_feeds_of_no_common_length_are_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "feeds.npz"
    file.write_bytes(npz_from_arrays({"x": np.zeros((3, 1, 2, 2), np.float32), "shift": np.zeros((2, 1), np.int64)}))
    assert load(bundle, "--burst", 1, "--utterance-feeds", file) == 2
    assert "expected arrays of one first axis" in capsys.readouterr().err
