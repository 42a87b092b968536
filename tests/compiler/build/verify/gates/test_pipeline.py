"""Wired graphs are built, held to their promise together, and answer as one request what their originals do in turn."""

import numpy as np
import pytest

import runtime_lite
from compiler.build.verify.differences import Difference
from compiler.build.verify.gates import pipeline as gate
from compiler.build.verify.pipeline_answers import answers_of_bundle, limits_together
from compiler.calib.classes import Agreement
from compiler.recipe.gates import ParityGate
from compiler.recipe.load import load_recipe
from runtime_lite.format.golden import TOGETHER, golden_of_pipeline
from runtime_lite.format.manifest import Wire
from tests.kit.models.project import Project
from tests.kit.models.tiny_graph import step_by_hand
from tests.kit.models.tiny_task import one_recording
from tests.kit.models.tiny_wired import write_wired


@pytest.fixture
def wired(project: Project) -> Project:
    write_wired(project.folder)
    return project


def test_a_wired_bundle_answers_as_one_what_its_graphs_answer_in_turn(wired: Project) -> None:
    ended = wired.build(recipe="wired.yaml")
    assert ended.code == 0, ended.err
    bundle = wired.folder / "bundle"
    found = [each for each in ended.report["gates"] if each["gate"] == "pipeline.max_abs"]
    assert [each["subject"] for each in found] == ["logits", "biased", "score"]
    assert all(each["holds"] and each["measured"] < 1e-5 for each in found)
    manifest = runtime_lite.manifest_from_json((bundle / "manifest.json").read_bytes())
    assert manifest.wiring == (Wire("net", "logits", "head", "frames"),)
    chunks = one_recording(7, 12)  # no recipe has seen them
    bias = np.arange(8, dtype=np.float32)[None]
    with runtime_lite.Runtime() as runtime, runtime.load(bundle).open_stream() as stream:
        for chunk, logits in zip(chunks, step_by_hand(chunks), strict=True):
            got = stream.push({**chunk, "bias": bias})
            np.testing.assert_allclose(got["logits"], logits, atol=1e-4)
            np.testing.assert_allclose(got["score"], (logits + bias[:, None]).sum(-1), atol=1e-3)
    golden = golden_of_pipeline((bundle / TOGETHER).read_bytes(), TOGETHER, ["logits", "biased", "score"])
    assert len(golden.steps) == 8 and golden.tolerance == pytest.approx(1e-5)  # the first stream, chained
    verified = wired.run("verify", "bundle")
    assert verified.code == 0 and "net+head" in verified.out
    again = wired.build(recipe="wired.yaml", out="again")
    assert again.code == 0 and again.stages(cached=False) == []
    assert (wired.folder / "again" / TOGETHER).read_bytes() == (bundle / TOGETHER).read_bytes()


def test_a_promise_together_that_is_broken_fails_the_build(wired: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*arguments: object) -> object:
        found = answers_of_bundle(*arguments)  # type: ignore[arg-type]
        found[1][2]["score"] = found[1][2]["score"] + 1.0
        return found

    monkeypatch.setattr(gate, "answers_of_bundle", off)
    ended = wired.build(recipe="wired.yaml")
    assert ended.code == 4, ended.out
    assert "stage pipeline: expected pipeline.max_abs of score of at most" in ended.message
    assert not (wired.folder / "bundle").exists()


WRONG = {
    "graphs that do not fit": (
        ("input: frames", "input: bias"),
        3,
        "wiring.0: expected what 'head.bias' takes, float32 of shape ['batch', 8], got float32 of shape ['batch', 4, ",
    ),
    "a feed that does not fit": (
        ("wired_data:together", "wired_data:heads"),
        2,
        "gates.pipeline.feeds: stream 0: net+head.push: expected the inputs 'features', 'bias', got unknown input 'fra",
    ),
    "too few streams": (
        ("count: 3", "count: 30"),
        2,
        "gates.pipeline.feeds: expected 30 streams of feeds from wired_data:together, got 9",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_answered_with_its_line(wired: Project, case: str) -> None:
    (old, new), code, sentence = WRONG[case]
    wired.replace("wired.yaml", old, new)
    ended = wired.build(recipe="wired.yaml")
    assert ended.code == code, ended.out
    assert sentence in ended.message and "wired.yaml:" in ended.message


@pytest.mark.parametrize(("differing", "holds"), [(1, True), (2, False)])
def test_classes_of_wired_graphs_are_counted(wired: Project, differing: int, holds: bool) -> None:
    """As much is asked of them as of the graph of which least is asked; the distance of two labels is nothing."""
    recipe = load_recipe(str(wired.folder / "wired.yaml")).recipe
    recipe.gates.parity["head"] = ParityGate(max_abs=1.0e-5, chained_steps=1, min_equal=0.99)
    limits = limits_together(recipe)
    labels = Difference("labels", 8, 9999.0, 1.0, 0, 0.0, 0.0, None, Agreement(100, differing, "3 at [0], not 9", 0))
    found = gate._finding(labels, limits, "8 calls through net+head")
    assert (found.gate, found.limit, found.holds) == ("pipeline", 0.99, holds)
    assert (
        found.detail
        == f"8 calls through net+head, {100 - differing} of 100 equal, the first other one: 3 at [0], not 9"
    )
