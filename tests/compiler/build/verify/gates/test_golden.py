"""The gate on what was written: a bundle that does not answer its golden feeds is not shipped."""

import io
from pathlib import Path

import numpy as np
import pytest

from compiler.build.verify.stream_artefacts import StreamArtefacts
from runtime_lite.format.arrays import npz_from_arrays
from tests.kit.models.project import Project


def test_a_bundle_that_does_not_replay_fails_the_build(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real = StreamArtefacts.golden

    def spoiled(self: StreamArtefacts) -> bytes:
        with np.load(io.BytesIO(real(self)), allow_pickle=False) as arrays:
            return npz_from_arrays({name: arrays[name] + name.endswith("/output/logits") for name in arrays.files})

    monkeypatch.setattr(StreamArtefacts, "golden", spoiled)
    ended = project.build("--set", "front_end.hop=9", recipe="stream.yaml")
    assert ended.code == 1, ended.out
    assert "stage replay: the bundle does not replay its own golden feeds: " in ended.message
    assert not Path(project.folder / "bundle").exists()
