"""Graphs are captured once, and anew when what they come from has changed."""

import numpy as np
import onnx_ir as ir
import pytest

from tests.kit.models.project import Project, answers, largest_difference
from tests.kit.models.tiny_graph import outside_weight, stream_model
from tests.kit.models.tiny_task import one_recording


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


@pytest.mark.slow
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
