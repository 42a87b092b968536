"""The folder of an application is whole or not there; on a real Ray Serve no chunk is answered from a wrong state."""

import ast
from pathlib import Path

import pytest

from runtime_lite import BadInput, BundleRefused
from runtime_lite.__main__ import main
from runtime_lite.hosting.ray_application import write_application
from runtime_lite.hosting.ray_replica import RayOptions
from tests.runtime_lite.bundles import write_streaming_bundle
from tests.runtime_lite.hosting.against_ray import MADE_BY, SNAPSHOT_EVERY, WANTED, measured
from tests.runtime_lite.hosting.own_environment import CACHE, AbsentError, environment


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming") / "tiny")


def test_the_command_writes_a_folder_that_has_all_it_needs(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "application"
    assert main(["ray", str(bundle), str(folder), "--snapshot-every", "5", "--cpus", "0.5"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "app.py", "bundle", "config.yaml", "runtime_lite"}
    assert "RayOptions(" in (folder / "app.py").read_text() and "snapshot_every=5" in (folder / "app.py").read_text()
    ast.parse((folder / "app.py").read_text())
    assert f'PYTHONPATH: "{folder}"' in (folder / "config.yaml").read_text()
    assert 'get_deployment_handle("Gateway", "tiny")' in (folder / "README.md").read_text()
    assert not list(folder.rglob("__pycache__"))
    assert [path.name for path in folder.parent.iterdir()] == ["application"]
    assert main(["ray", str(bundle), str(folder)]) == 2
    assert "expected a folder that does not exist, got one that does" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RayOptions(min_replicas=0), "expected min_replicas from 1"),
        (RayOptions(min_replicas=3, max_replicas=2), "expected max_replicas from 3"),
        (RayOptions(snapshot_every=-1), "expected snapshot_every from 0"),
        (RayOptions(answer_s=-1.0), "expected answer_s from 0"),
        (RayOptions(leave_after_s=1e9), "expected leave_after_s from 0"),
        (RayOptions(cpus=float("nan")), "expected cpus from 0"),
        (RayOptions(workers=0), "expected workers from 1"),
        (RayOptions(idle_s=0.0), "expected idle_s as a positive number"),
        (RayOptions(graph="nothing"), "graph 'nothing'"),
    ],
)
def test_wrong_options_leave_nothing_behind(bundle: Path, tmp_path: Path, options: RayOptions, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        write_application(bundle, tmp_path / "application", options)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleRefused):
        write_application(tmp_path / "empty", tmp_path / "application", RayOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment(CACHE / "ray", WANTED, MADE_BY)
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("every", [SNAPSHOT_EVERY, 0])
def test_no_event_makes_an_answer_wrong(python: Path, tmp_path: Path, every: int) -> None:
    found = measured(python, tmp_path, "ours", every)
    counts = found["counts"]
    assert counts["wrong"] == counts["unnamed"] == counts["lost_without_number"] == 0
    assert found["balanced"]
    assert every == 0 or counts["lost"] == 0
    assert found["repeated"] == {
        "answered_alike": 12,
        "refused_with_the_number": 4,
        "resumed_at": 1,
        "fenced": 1,
    }
    assert found["after_a_crash_of_the_gateway"]["wrong"] == 0


@pytest.mark.slow
def test_the_rule_holds_behind_any_router(python: Path, tmp_path: Path) -> None:
    counts = measured(python, tmp_path, "rule")["counts"]
    assert counts["wrong"] == 0 and counts["right"] > 0 and counts["lost"] > 0


@pytest.mark.slow
def test_without_the_rule_sessions_begin_again_and_nobody_says_so(python: Path, tmp_path: Path) -> None:
    """What the others are measured against."""
    assert measured(python, tmp_path, "naive")["counts"]["wrong"] > 0
