"""original: the captured model, its reference and what they depend on."""

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from tests.kit.models.project import Project, answers, largest_difference
from tests.kit.models.tiny_graph import outside_weight, step_by_hand, stream_model, write_one_row_stream
from tests.kit.models.tiny_task import one_recording


def test_onnx_file_is_its_own_original(shared: Project) -> None:
    chunks = one_recording(3, 9)
    assert largest_difference(answers(shared.folder / "stream", "net", chunks), step_by_hand(chunks)) < 1e-5


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


def export(project: Project) -> None:
    """Write both calls of the recogniser as dynamic ONNX files, and a recipe for them."""
    import torch

    from tests.kit.models import tiny_asr

    batch, cache = torch.export.Dim("batch"), torch.export.Dim("cache")
    features, caches, contexts = torch.zeros(2, 4, 8), [torch.zeros(2, 6, 8)] * 2, [torch.zeros(2, 8, 2)] * 2
    states = [f"{kind}_{index}" for kind in ("cache", "context") for index in range(2)]
    for name, module, given, names, shapes in (
        ("first", tiny_asr.build_first(), (features,), ["features"], ({0: batch},)),
        (
            "later",
            tiny_asr.build(),
            (features, *caches, *contexts),
            ["features", *states],
            ({0: batch}, ({0: batch, 1: cache},) * 2 + ({0: batch},) * 2),
        ),
    ):
        program = torch.onnx.export(
            module.eval(),
            given,
            dynamo=True,
            dynamic_shapes=shapes,
            opset_version=20,
            input_names=names,
            output_names=["logits", *(f"next_{state}" for state in states)],
            verbose=False,
        )
        assert program is not None
        program.save(project.folder / f"{name}.onnx")
    text = (project.folder / "tiny.yaml").read_text()
    text = text.replace('{factory: "tiny_asr:build", checkpoint: tiny.safetensors}', "{onnx: later.onnx}")
    text = text.replace('{factory: "tiny_asr:build_first"}', "{onnx: first.onnx}")
    project.write("files.yaml", text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning:torch.onnx", "ignore::FutureWarning:copyreg")
def test_exported_files_build_the_same_function_with_and_without_first_call(project: Project) -> None:
    export(project)
    ended = project.build(recipe="files.yaml", out="files")
    assert ended.code == 0, ended.err
    project.write(
        "later.yaml", (project.folder / "files.yaml").read_text().replace("    first_call:", "    # first_call:")
    )
    ended = project.build("--set", "name=later", recipe="later.yaml", out="later")
    assert ended.code == 0, ended.err
    assert "net:merge_first_call" in ended.stages(cached=False)
    chunks = one_recording(11, 10)
    expected = answers(project.folder / "files", "net", chunks)
    assert largest_difference(answers(project.folder / "later", "net", chunks), expected) < 1e-5


def test_changed_weights_beside_an_onnx_file_are_noticed(project: Project) -> None:
    (project.folder / "w.bin").write_bytes(np.ones(8, np.float32).tobytes())
    (project.folder / "stream.onnx").write_bytes(
        ir.to_proto(outside_weight(stream_model(), "w.bin")).SerializeToString()
    )
    chunks = one_recording(1, 6)
    assert project.build(recipe="stream.yaml", out="one").code == 0
    (project.folder / "w.bin").write_bytes(np.full(8, 2, np.float32).tobytes())
    assert project.build(recipe="stream.yaml", out="two").code == 0
    one, two = (answers(project.folder / name, "net", chunks) for name in ("one", "two"))
    assert largest_difference(two, [answer + 1 for answer in one]) < 1e-5


def test_parity_that_never_sees_the_window_overflow_is_a_wrong_recipe(project: Project) -> None:
    ended = project.build("--set", "gates.parity.net.chained_steps=3")
    assert ended.code == 2
    assert "chained_steps: expected at least 4 steps, so that a window of 8 frames overflows at 4 per call" in ended.err
