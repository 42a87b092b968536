"""A recipe over whole utterances from end to end: masks and lengths of the model become one length input."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import runtime_lite
from tests.attacks.edits import set_at
from tests.kit.models import tiny_offline
from tests.kit.models.project import Project
from tests.runtime_lite.bundles import edit_manifest, rewrite_contracts

HERE = Path(tiny_offline.__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("offline")
    for name in ("tiny_offline.py", "tiny_offline.yaml"):
        (folder / name).write_text((HERE / name).read_text())
    project = Project(folder, folder.with_name("offline-cache"))
    ended = project.build(recipe="tiny_offline.yaml")
    assert ended.code == 0, ended.err
    return project


def alone(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The model on one row without padding."""
    length = features.shape[1]
    with torch.no_grad():
        mask = torch.ones(1, length, dtype=torch.int64)
        labels, topic = tiny_offline.build().eval()(torch.from_numpy(features), mask, mask == 0, torch.tensor([length]))
    return labels.numpy(), topic.numpy()


@pytest.mark.slow
def test_the_bundle_answers_rows_of_any_length_as_the_model_does_alone(built: Project) -> None:
    rng = np.random.default_rng(5)
    rows = [{"features": rng.standard_normal((1, length, 4)).astype(np.float32)} for length in (3, 20, 7, 11, 8)]
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(built.folder / "bundle")
        graph = model.runner().graph
        assert graph.rows_independent
        assert [each.name for each in graph.inputs] == ["features", "lengths"]
        assert (graph.axes["time"].length_input, graph.axes["time"].minimum) == ("lengths", 3)
        assert graph.outputs[0].shape == ("batch", "(time + 1)//2 - 1", 5)
        for row, answer in zip(rows, model.run_many(rows), strict=True):
            for got, wanted in zip(answer.values(), alone(row["features"]), strict=True):
                np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.slow
def test_a_second_build_comes_from_the_cache_and_is_the_same(built: Project) -> None:
    ended = built.build(recipe="tiny_offline.yaml", out="again")
    assert ended.code == 0 and ended.stages(cached=False) == ["net:data"]  # drawn anew, as no file stands for it
    names = sorted(path.relative_to(built.folder / "bundle") for path in (built.folder / "bundle").rglob("*.onnx"))
    assert [(built.folder / "again" / name).read_bytes() for name in names] == [
        (built.folder / "bundle" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        (
            "graphs.net.axes.time.buckets=[2, 20]",
            3,
            "expected buckets of time of at least 3, for which the proof holds",
        ),
        ("graphs.net.axes.time.buckets=[8, 16]", 2, "expected at most 16 along time, the largest bucket, got 20"),
        ("graphs.net.passes=[simplify, canonicalize_reshapes]", 3, "expected a proof that rows are independent"),
        ("gates.parity.net.chained_steps=2", 0, ""),
    ],
)
@pytest.mark.slow
def test_what_does_not_fit_is_refused(built: Project, setting: str, code: int, words: str) -> None:
    ended = built.build("--set", setting, recipe="tiny_offline.yaml", out="other")
    assert ended.code == code, ended.err
    assert words in ended.message


@pytest.mark.slow
def test_the_certificate_is_replayed_and_its_smallest_length_holds(built: Project, tmp_path: Path) -> None:
    ended = built.run("verify", "bundle")
    assert ended.code == 0 and "2 graph files follow from it byte for byte" in ended.out
    bundle = Path(shutil.copytree(built.folder / "bundle", tmp_path / "bundle"))
    edit_manifest(bundle, set_at("axes", "time", "minimum", to=1))
    rewrite_contracts(bundle)
    ended = built.run("verify", str(bundle))
    assert ended.code == 2
    assert "the manifest's smallest lengths to follow from the proof ({'time': 3}), got {'time': 1}" in ended.err
