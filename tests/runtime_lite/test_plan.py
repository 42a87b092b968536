"""The command `plan`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_lite import plan
from runtime_lite.__main__ import main
from runtime_lite.format.costs import Cost, json_from_costs
from runtime_lite.format.manifest import COSTS_FILE, bucket_name
from runtime_lite.format.reader import read_bundle
from runtime_lite.scheduling import capacity
from tests.runtime_lite.bundles import write_plain_bundle, write_streaming_bundle

COMMAND = ["--streams", "8", "--period-ms", "640"]


def measured(directory: Path, threads: int = 1, scale: float = 1.0) -> Path:
    with read_bundle(directory) as bundle:
        graphs = bundle.manifest.graphs.items()
    costs = {
        name: {
            bucket_name(artifact.sizes): Cost(threads, scale * (24 + 6 * artifact.sizes.get("batch", 1)), scale * 60)
            for artifact in graph.artifacts
        }
        for name, graph in graphs
    }
    (directory / COSTS_FILE).write_bytes(json_from_costs(costs))
    return directory


@pytest.fixture
def streaming(tmp_path: Path) -> Path:
    return measured(write_streaming_bundle(tmp_path / "streaming"))


def test_says_how_many_streams_are_carried(streaming: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(streaming), *COMMAND]) == 0
    lines = capsys.readouterr().out.splitlines()
    asked, most, limit = (line.split() for line in lines[-3:])
    assert asked[:3] == ["8", "asked", "for"]
    assert 43 < int(most[0]) < 49 and most[1:4] == ["carried", "at", "most"]
    assert int(limit[0]) > 1.05 * int(most[0]) and limit[1:4] == ["at", "the", "limit,"]


def test_too_many_streams_are_said_not_to_be_carried(streaming: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(streaming), "--streams", "150", "--period-ms", "640"]) == 0
    assert "asked for: not carried" in capsys.readouterr().out


def test_thousands_of_streams_are_planned_by_groups_and_a_long_search_tells_what_it_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "TELL_S", -1.0)
    monkeypatch.setattr(capacity, "MOST_CHUNKS", 2000)
    fast = measured(write_streaming_bundle(tmp_path / "fast"), scale=0.05)
    assert main(["plan", str(fast), *COMMAND]) == 0
    said = capsys.readouterr()
    _, most, _, note = said.out.splitlines()[-4:]
    assert 20 * 43 < int(most.split()[0]) < 20 * 49 and "<= " in most
    assert note.startswith("<= upper bound: one stream was simulated for up to ")
    assert "plan: searching for those carried at most, trying " in said.err


def test_several_bundles_share_the_machine(streaming: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = write_plain_bundle(tmp_path / "plain")
    measured(plain)
    carried = []
    for bundles in ([streaming], [streaming, plain]):
        assert main(["plan", *map(str, bundles), *COMMAND, "--requests-per-s", "1"]) == 0
        carried.append(capsys.readouterr().out.splitlines()[-2].split())
    alone, beside = carried
    assert alone[-1] == "100.0%" and float(beside[-1].rstrip("%")) > 95 and int(beside[0]) <= int(alone[0])


def without_costs(bundle: Path) -> None:
    (bundle / COSTS_FILE).unlink()


def with_other_threads(bundle: Path) -> None:
    measured(bundle, threads=4)


@pytest.mark.parametrize(("change", "got"), [(without_costs, "got none"), (with_other_threads, "measured with 4")])
def test_costs_of_this_machine_are_needed(
    streaming: Path, change: Callable[[Path], None], got: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(streaming)
    assert main(["plan", str(streaming), *COMMAND]) == 2
    error = capsys.readouterr().err
    assert got in error and "bench --update-costs --threads 1" in error


def test_a_graph_without_states_has_no_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = write_plain_bundle(tmp_path / "plain")
    measured(plain)
    assert main(["plan", str(plain), *COMMAND]) == 2
    assert "expected a graph with states" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "bench"])
def test_no_more_workers_are_planned_or_measured_than_a_runtime_has(
    command: str, streaming: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = COMMAND if command == "plan" else ["--runs", "1"]
    assert main([command, str(streaming), *options, "--workers", "257"]) == 2
    assert "expected workers from 1 to 256, got 257" in capsys.readouterr().err
