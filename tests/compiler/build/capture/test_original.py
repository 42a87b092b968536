"""original: the captured model, its reference and what they depend on."""

import numpy as np
import pytest

import runtime_lite
from tests.kit.models.project import Project, answers, largest_difference
from tests.kit.models.tiny_graph import step_by_hand, write_one_row_stream
from tests.kit.models.tiny_task import one_recording


@pytest.mark.parametrize("keys", ["cache, 8", "1, cache, 8"])
def test_model_of_one_row_serves_many_rows(keys: str, project: Project) -> None:
    """Each row of a batch is the stream of one row, past the window, in the buckets 1 and 4."""
    write_one_row_stream(project.folder, keys)
    ended = project.build(recipe="one_row.yaml", out="one_row")
    assert ended.code == 0, ended.err
    rows = [one_recording(seed, 7) for seed in range(3)]
    expected = [step_by_hand(chunks) for chunks in rows]
    assert largest_difference(answers(project.folder / "one_row", "net", rows[0]), expected[0]) < 1e-5
    with runtime_lite.Runtime() as runtime, runtime.load(project.folder / "one_row").open_stream(rows=3) as stream:
        for step in range(7):
            got = stream.push({"features": np.concatenate([chunks[step]["features"] for chunks in rows])})["logits"]
            assert np.allclose(got, np.concatenate([each[step] for each in expected]), atol=1e-5)


def test_model_of_one_row_is_refused_with_the_key_to_write(project: Project) -> None:
    write_one_row_stream(project.folder, "1, cache, 8")
    project.replace("one_row.yaml", ", original: [1, 4, 8]", "")
    project.replace("one_row.yaml", ", original: [1, cache, 8]", "")
    ended = project.build(recipe="one_row.yaml", out="one_row")
    assert ended.code == 3
    assert "the model fixes axis 'batch' of features to 1" in ended.err
    assert "for a model of one row, write the shapes it takes as original" in ended.err
