"""pipeline: whole builds of a recogniser of one screen."""

import json

import numpy as np

from tests.kit.models.project import Project, answers, largest_difference
from tests.kit.models.tiny_task import one_recording


def test_bundle_answers_as_the_original_in_its_own_framework(shared: Project) -> None:
    import torch

    from tests.kit.models import tiny_asr

    chunks, model, first = one_recording(7, 12), tiny_asr.build().eval(), tiny_asr.build_first().eval()
    expected: list[np.ndarray] = []
    states: list[torch.Tensor] = []
    with torch.no_grad():
        for chunk in chunks:
            features = torch.from_numpy(chunk["features"])
            logits, *states = model(features, *states) if states else first(features)
            states = [state[:, -8:] if state.shape[2] == 8 else state for state in states]
            expected.append(logits.numpy())
    assert largest_difference(answers(shared.folder / "bundle", "net", chunks), expected) < 1e-4


def test_two_graphs_make_one_bundle(shared: Project, project: Project) -> None:
    text = (project.folder / "tiny.yaml").read_text()
    stream = (project.folder / "stream.yaml").read_text()
    other = stream[stream.index("  net:") : stream.index("data:")].replace("  net:", "  other:")
    text = text.replace("data:\n", other + "data:\n")
    text = text.replace("    net: {max_abs", "    other: {max_abs: 1.0e-5, chained_steps: 6}\n    net: {max_abs")
    text = text.replace(
        'feeds: "tiny_data:verification"', 'feeds: {net: "tiny_data:verification", other: "tiny_data:verification"}'
    )
    project.write("both.yaml", text)
    ended = project.build(recipe="both.yaml", out="both")
    assert ended.code == 0, ended.err
    assert "net:capture" in ended.stages(cached=True), "a graph is captured once, whatever recipe it is in"
    chunks = one_recording(5)
    for graph, single in (("net", "bundle"), ("other", "stream")):
        alone = answers(shared.folder / single, "net", chunks)
        assert largest_difference(answers(project.folder / "both", graph, chunks), alone) == 0.0
    assert project.run("verify", "both").code == 0


def test_null_target_runs_every_pass_and_leaves_nothing(project: Project) -> None:
    project.replace("tiny.yaml", "  - kind: onnx_static", '  - kind: "null"')
    ended = project.build(out="nothing")
    assert ended.code == 0, ended.err
    assert "net:pack_states" in ended.stages(cached=True)
    assert not (project.folder / "nothing").exists()


def test_mask_computed_in_the_graph_answers_as_a_mask_that_is_fed(shared: Project, project: Project) -> None:
    project.replace("tiny.yaml", ", mask_input: mask", "")
    ended = project.build(out="computed")
    assert ended.code == 0, ended.err
    assert "net:capture" in ended.stages(cached=True), "windows and masks are the passes' business"
    manifest = json.loads((project.folder / "computed" / "manifest.json").read_text())
    assert [cache["mask_input"] for cache in manifest["graphs"]["net"]["caches"]] == [None]
    assert "mask" not in {given["name"] for given in manifest["graphs"]["net"]["inputs"]}
    chunks = one_recording(9, 10)
    fed = answers(shared.folder / "bundle", "net", chunks)
    assert largest_difference(answers(project.folder / "computed", "net", chunks), fed) == 0.0
