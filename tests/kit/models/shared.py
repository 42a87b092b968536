"""One build of the recogniser of one screen for all tests of a run, whatever the number of workers."""

import fcntl
import functools
import os
from pathlib import Path

import pytest

from tests.kit.models.project import Project, tiny_project
from tests.kit.models.tiny_graph import write_stream


def shared_project(factory: pytest.TempPathFactory) -> Project:
    """A project that is built into `bundle`; copy it before changing anything."""
    base = factory.getbasetemp()
    return _built(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@functools.cache
def _built(base: Path) -> Project:
    folder, cache = base / "tiny-project", base / "tiny-cache"
    with (base / "tiny-project.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "bundle" / "manifest.json").is_file():
            return Project(folder, cache)
        project = tiny_project(folder, cache)
        write_stream(folder)
        for recipe, out in (("stream.yaml", "stream"), ("tiny.yaml", "bundle")):
            ended = project.build(recipe=recipe, out=out)
            assert ended.code == 0, ended.err
    return project
