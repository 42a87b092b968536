"""Files, bundles and originals answer feeds the same way."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import DataError, RecipeError
from compiler.front.commands.subjects import checked, open_onnx, opened_bundle
from runtime_lite.errors import BadInput
from tests.compiler.front.commands.files import CACHE, STEP, write
from tests.runtime_lite.bundles import write_double_bundle

ONES = np.ones((1, 4), np.float32)


@pytest.mark.parametrize("backend", ["", "@plain", "@optimized", "@reference"])
def test_a_stream_starts_anew_with_each_asking(backend: str, tmp_path: Path) -> None:
    subject = open_onnx(write(tmp_path / "m.onnx", STEP) + backend, {})
    assert [each.name for each in subject.inputs] == ["x"]
    for _ in range(2):
        kept = [float(answer["next_h"][0, 0]) for answer in checked(subject, [{"x": ONES}] * 3)]
        assert kept == [1.0, 2.0, 3.0]


def test_a_cache_has_no_frames_before_the_first_call(tmp_path: Path) -> None:
    subject = open_onnx(write(tmp_path / "m.onnx", CACHE), {})
    assert [(each.name, each.dims[1]) for each in subject.states] == [("cache", 0)]
    answers = checked(subject, [{"x": np.ones((3, 2, 4), np.float32)}] * 2)
    assert [answer["next_cache"].shape for answer in answers] == [(3, 2, 4), (3, 4, 4)]


def test_a_name_with_a_sign_in_it_is_a_file(tmp_path: Path) -> None:
    assert open_onnx(write(tmp_path / "m@2.onnx", STEP), {}).inputs
    with pytest.raises(RecipeError, match="known: optimized, plain, reference"):
        open_onnx(str(tmp_path / "m@2.onnx@fast"), {})


def test_what_a_backend_raises_is_one_sentence(tmp_path: Path) -> None:
    subject = open_onnx(write(tmp_path / "m.onnx", STEP), {})
    with pytest.raises(DataError, match="to answer x"):
        list(checked(subject, [{"x": np.ones((1, 5), np.float32)}]))


def test_a_graph_of_a_bundle_is_named(tmp_path: Path) -> None:
    folder = write_double_bundle(tmp_path / "bundle")
    with opened_bundle(f"{folder}:streaming") as subject:
        assert subject.inputs and subject.sizes["batch"] == 1
    with pytest.raises(BadInput, match="expected"), opened_bundle(str(folder)):
        pass
