"""A graph with two cache axes of other sizes, whose rows have another name, from end to end: built, verified, run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from runtime_lite.calls.state import initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.verify import verify_model
from tests.kit.models import tiny_data
from tests.kit.models.project import Project

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
two (float[stapel,4,8] features, float[stapel,near,8] keys, float[stapel,far,8] mixes)
    => (float[stapel,4,8] logits, float[stapel,joined,8] next_keys, float[stapel,all,8] next_mixes)
{
    next_keys = Concat<axis = 1>(keys, features)
    turned = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(features, turned)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, next_keys)
    next_mixes = Concat<axis = 1>(mixes, mixed)
    turned_mixes = Transpose<perm = [0, 2, 1]>(next_mixes)
    mix_scores = MatMul(mixed, turned_mixes)
    mix_weights = Softmax<axis = -1>(mix_scores)
    logits = MatMul(mix_weights, next_mixes)
}
"""

RECIPE = """\
name: two
graphs:
  net:
    source: {onnx: two.onnx}
    inputs:
      features: {shape: [stapel, 4, 8], dtype: float32}
      keys:     {shape: [stapel, near, 8], dtype: float32, state: next_keys}
      mixes:    {shape: [stapel, far, 8], dtype: float32, state: next_mixes}
    outputs: [logits, next_keys, next_mixes]
    axes:
      stapel: {buckets: [1, 4]}
      near:   {window: 6, mask_input: near_mask, length_input: near_length}
      far:    {window: 12, length_input: far_length}
data:
  verification: {feeds: "tiny_data:verification", count: 2, files: [level.txt]}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 6}}}
"""

NEAR, FAR = 6, 12


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("two")
    shutil.copyfile(tiny_data.__file__, folder / "tiny_data.py")
    (folder / "level.txt").write_text("1.0\n")
    ir.save(ir.from_onnx_text(TEXT), folder / "two.onnx")
    (folder / "two.yaml").write_text(RECIPE)
    project = Project(folder, folder.with_name("two-cache"))
    ended = project.build(recipe="two.yaml")
    assert ended.code == 0, ended.err
    return project


def attended(queries: Array, joined: Array) -> Array:
    scores = queries @ joined.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True) @ joined
    return result


def by_hand(chunks: Array) -> Iterator[Array]:
    """What the original answers chunk by chunk, each cache cut to its newest frames."""
    keys = mixes = np.zeros((chunks.shape[1], 0, 8), np.float32)
    for chunk in chunks:
        keys = np.concatenate([keys[:, -NEAR:], chunk], 1)
        mixed = attended(chunk, keys)
        mixes = np.concatenate([mixes[:, -FAR:], mixed], 1)
        yield attended(mixed, mixes)


def random_chunks(count: int, rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, rows, 4, 8)).astype(np.float32)


def test_the_manifest_knows_both_caches_and_the_rows_by_their_part(built: Project) -> None:
    with runtime_lite.read_bundle(built.folder / "bundle") as bundle:
        graph = bundle.manifest.graphs["net"]
    assert (graph.batch_axis, graph.rows_independent, graph.row_buckets) == ("stapel", True, (1, 4))
    assert [(cache.axis, cache.slots, cache.step, cache.length_input, cache.mask_input) for cache in graph.caches] == [
        ("near", NEAR, 4, "near_length", "near_mask"),
        ("far", FAR, 4, "far_length", None),
    ]
    assert {state.input: state.cache for state in graph.states} == {"keys": "near", "mixes": "far"}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_stream_equals_the_original_until_both_caches_have_overflowed(built: Project, rows: int) -> None:
    chunks = random_chunks(9, rows)
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(built.folder / "bundle")
        assert all(comparison.holds for comparison in verify_model(model))
        with model.open_stream(rows=rows) as stream:
            for chunk, expected in zip(chunks, by_hand(chunks), strict=True):
                np.testing.assert_allclose(stream.push({"features": chunk})["logits"], expected, atol=1e-5)
            assert {axis: each.tolist() for axis, each in stream.state.lengths.items()} == {
                "near": [NEAR] * rows,
                "far": [FAR] * rows,
            }


def test_rows_of_one_call_may_be_streams_of_different_ages(built: Project) -> None:
    chunks = [random_chunks(count, 1, seed=count) for count in (1, 2, 5)]
    with runtime_lite.Runtime() as runtime:
        runner = runtime.load(built.folder / "bundle").runner()
        states, expected = [], []
        for one in chunks:
            state = initial_state(runner.graph, 1)
            for chunk in one[:-1]:
                _, state = runner.step(runner.check("test", {"features": chunk}), state)
            states.append(state)
            expected.append(list(by_hand(one))[-1])
        feeds = [runner.check("test", {"features": one[-1]}) for one in chunks]
        steps = runner.step_streams(feeds, states, {"stapel": 4})
    for (outputs, _), wanted in zip(steps, expected, strict=True):
        np.testing.assert_allclose(outputs["logits"], wanted, atol=1e-5)
    ages = [{axis: each.tolist() for axis, each in after.lengths.items()} for _, after in steps]
    assert ages == [{"near": [4], "far": [4]}, {"near": [6], "far": [8]}, {"near": [6], "far": [12]}]


def test_the_claims_about_both_caches_follow_from_the_proof(built: Project) -> None:
    ended = built.run("verify", "bundle")
    assert ended.code == 0, ended.err
    assert "the manifest follows from it; 1 graph files follow from it byte for byte" in ended.out


def test_both_caches_are_shown(built: Project) -> None:
    out = built.run("inspect", "bundle").out
    for line in ("cache near: 6 slots, 4 frames a push", "cache far: 12 slots, 4 frames a push", "along"):
        assert line in out


def test_the_recipe_is_checked_without_a_capture(built: Project, tmp_path: Path) -> None:
    wrong = RECIPE.replace("near:   {window: 6,", "near:   {window: 6, update: ring,")
    (built.folder / "other.yaml").write_text(wrong)
    for command in (("check", "other.yaml"), ("--recipe", "other.yaml", "--out", "other", "--no-cache")):
        ended = built.run(*command)
        assert (ended.code, "near.update: expected" in ended.err, "other.yaml:1" in ended.err) == (2, True, True)
    assert not (built.folder / "other").exists()
