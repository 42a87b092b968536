"""No change of a manifest alone changes an answer in silence: it is refused, or the answers stay what they are."""

from pathlib import Path

import numpy as np
import pytest

from runtime_lite import Model
from runtime_lite.calls.feeds import Feed
from runtime_lite.format.manifest import static_shape
from tests.attacks.manifest_mutants import SILENT, Answers, Probe, survey
from tests.kit.models import tiny_offline
from tests.kit.models.project import Project
from tests.kit.models.shared import shared_project
from tests.runtime_lite.bundles import (
    random_chunks,
    random_row,
    write_double_bundle,
    write_ragged_bundle,
    write_streaming_bundle,
)


def of_stream(model: Model) -> Answers:
    """Streams of one row and of several, past the overflow of the window."""
    found: Answers = {}
    for rows in (1, 3):
        with model.open_stream("streaming", rows=rows) as stream:
            for step, chunk in enumerate(random_chunks(4, rows)):
                found |= {f"{rows}.{step}.{name}": array for name, array in stream.push({"x": chunk}).items()}
            found |= {f"{rows}.{name}": array for name, array in stream.state.values.items()}
    return found | front_end(model)


def of_both(model: Model) -> Answers:
    """The stream, and the graph without states in every bucket."""
    found = dict(of_stream(model))
    for rows, frames in ((1, 2), (3, 3)):
        feed = {"x": random_chunks(1, rows)[0][:, :frames], "shift": np.arange(rows)}
        found |= {f"{rows}.{name}": array for name, array in model.run(feed, graph="plain").items()}
    return found


def of_rows(model: Model) -> Answers:
    """Rows of several lengths, alone and together."""
    rows = [random_row(length) for length in (3, 8, 5)]
    answers = [model.run(row) for row in rows] + model.run_many(rows)
    return {f"{at}.{name}": array for at, each in enumerate(answers) for name, array in each.items()} | front_end(model)


def front_end(model: Model) -> Answers:
    """What the caller is told to do before feeding."""
    told = sorted(model.bundle.manifest.front_end.items())
    return {"front end": np.array([repr(told)])}


BUNDLES = {
    "streaming": (write_streaming_bundle, of_stream),
    "two graphs": (write_double_bundle, of_both),
    "ragged": (write_ragged_bundle, of_rows),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_a_sample_of_manifest_mutants_changes_no_answer_in_silence(tmp_path: Path, name: str) -> None:
    write, probe = BUNDLES[name]
    kinds, silent = survey(write(tmp_path / "bundle"), probe, every=11)
    assert silent == [], kinds
    assert kinds.total() > 90


def drawn(model: Model) -> Answers:
    """Every graph on waves: two calls of a stream, or one call in every bucket."""
    found: Answers = {}
    for name, graph in model.bundle.manifest.graphs.items():
        for at, artifact in enumerate(sorted(graph.artifacts, key=lambda each: sorted(each.sizes.items()))):
            runner = model.runner(name)
            arrays = {}
            for tensor in graph.inputs:
                shape = static_shape(tensor.shape, artifact.sizes)
                values = np.sin(np.arange(np.prod(shape))).reshape(shape) * 3
                arrays[tensor.name] = values.astype(tensor.dtype)
            data = {t.name: arrays[t.name] for t in graph.inputs if t.role == "data"}
            if not graph.states:
                found |= {f"{name}.{at}.{key}": array for key, array in model.run(data, name).items()}
                continue
            with model.open_stream(name, rows=artifact.sizes.get("batch", 1)) as stream:
                for step in range(6):
                    found |= {f"{name}.{at}.{step}.{key}": array for key, array in stream.push(data).items()}
            assert isinstance(runner.check("probe", data), Feed)
    return found | front_end(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLES)
def test_no_manifest_mutant_of_a_hand_made_bundle_changes_an_answer_in_silence(tmp_path: Path, name: str) -> None:
    write, probe = BUNDLES[name]
    check_all(name, write(tmp_path / "bundle"), probe)


@pytest.mark.slow
def test_no_manifest_mutant_of_a_built_bundle_changes_an_answer_in_silence(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = shared_project(tmp_path_factory).copy_to(tmp_path / "project")
    for recipe in ("tiny.yaml", "stream.yaml"):
        assert project.build(recipe=recipe, out=recipe[:-5]).code == 0
        check_all(recipe, project.folder / recipe[:-5], drawn)


@pytest.mark.slow
def test_no_manifest_mutant_of_whole_utterances_changes_an_answer_in_silence(tmp_path: Path) -> None:
    project = Project(tmp_path / "offline", tmp_path / "cache")
    project.folder.mkdir()
    for name in ("tiny_offline.py", "tiny_offline.yaml"):
        (project.folder / name).write_text(Path(tiny_offline.__file__).with_name(name).read_text())
    assert project.build(recipe="tiny_offline.yaml").code == 0
    check_all("utterances", project.folder / "bundle", drawn)


def check_all(name: str, bundle: Path, probe: Probe) -> None:
    """All mutants of one bundle; the figures are printed."""
    kinds, silent = survey(bundle, probe)
    print(f"{name}: {kinds.total()} mutants: {dict(kinds)}")
    assert kinds[SILENT] == 0, silent
