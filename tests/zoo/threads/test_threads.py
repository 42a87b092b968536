"""Patterns of public bug reports end as the table says: built and right, or refused with what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.models.project import Project
from tests.zoo.threads.feeds import OTHERS
from tests.zoo.threads.threads import THREADS, Thread

FEEDS = "tests.zoo.threads.feeds"


def recipe_of(thread: Thread) -> dict[str, Any]:
    gate: dict[str, Any] = {"max_abs": 1.0e-5, "chained_steps": thread.steps}
    count = 2 if thread.steps > 4 else thread.steps
    data: dict[str, Any] = {"verification": {"feeds": f"{FEEDS}:{thread.data}", "count": count}}
    if "passes" in thread.more:
        gate["lossy"] = {"max_abs": 0.1}
        data["calibration"] = {"feeds": f"{FEEDS}:{OTHERS[thread.data]}", "count": 1}
    source = {"factory": "tests.zoo.threads.models:build", "arguments": {"name": thread.module}}
    graph = {"source": source, "inputs": thread.inputs, "outputs": list(thread.outputs), "axes": thread.axes}
    return {
        "name": thread.module,
        "graphs": {"net": {**graph, **thread.more}},
        "data": data,
        "targets": [{"kind": "onnx_static"}],
        "gates": {"parity": {"net": gate}},
    }


@pytest.mark.slow
@pytest.mark.parametrize("thread", THREADS, ids=[thread.module for thread in THREADS])
def test_a_pattern_of_a_public_report_ends_as_it_should(thread: Thread, tmp_path: Path) -> None:
    project = Project(tmp_path, tmp_path / "cache")
    project.write("thread.yaml", yaml.safe_dump(recipe_of(thread), sort_keys=False))
    ended = project.build(recipe="thread.yaml")
    assert (ended.code, thread.said in ended.message) == (thread.code, True), ended.err


def test_every_pattern_names_the_reports_that_tell_of_it() -> None:
    assert all(thread.reports for thread in THREADS)
    assert len({report for thread in THREADS for report in thread.reports}) >= 20
