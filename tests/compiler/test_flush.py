"""A stream whose output lags by its look-ahead: flushed, it is what the author's model says of the whole recording."""

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import golden_from_npz
from tests.kit.graphs import parse
from tests.kit.models.project import Project

AHEAD = 3
SILENCE = -1.5

TEXT = """
(float[batch,chunk,4] features, float[batch,6,4] context, float[4,4,7] kernel)
    => (float[batch,chunk,4] scores, float[batch,6,4] next_context)
<int64[1] last = {-6}, int64[1] lag = {-3}, int64[1] three = {3}, int64[1] end = {9223372036854775807},
 int64[1] one = {1}>
{
    whole = Concat<axis = 1>(context, features)
    next_context = Slice(whole, last, end, one)
    channels = Transpose<perm = [0, 2, 1]>(whole)
    heard = Conv(channels, kernel)
    frames = Transpose<perm = [0, 2, 1]>(heard)
    late = Slice(whole, three, lag, one)
    scores = Add(frames, late)
}
"""

RECIPE = """\
name: late
graphs:
  net:
    source: {onnx: late.onnx}
    inputs:
      features: {shape: [batch, chunk, 4], dtype: float32}
      context:  {shape: [batch, 6, 4], dtype: float32, state: next_context}
    outputs: [scores, next_context]
    axes:
      batch: {buckets: [1]}
      chunk: {buckets: [8], length_input: chunk_length}
    flush: {features: 3}
    flush_values: {features: -1.5}
data:
  verification: {feeds: "late_data:verification", count: 1}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 4}}}
"""

DATA = """
import numpy as np

def verification():
    rng = np.random.default_rng(0)
    yield [{"features": rng.standard_normal((1, 8, 4)).astype(np.float32)} for _ in range(4)]
"""


def kernel() -> Array:
    return (np.random.default_rng(1).standard_normal((4, 4, 7)) / 5).astype(np.float32)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("late")
    (folder / "late_data.py").write_text(DATA)
    ir.save(parse(TEXT, {"kernel": kernel()}), folder / "late.onnx")
    (folder / "late.yaml").write_text(RECIPE)
    project = Project(folder, folder.with_name("late-cache"))
    ended = project.build(recipe="late.yaml")
    assert ended.code == 0, ended.err
    return project


def offline(recording: Array) -> Array:
    """The author's model on a whole recording: every frame hears three before it and three behind it."""
    framed = np.pad(recording, ((0, 0), (AHEAD, AHEAD), (0, 0)), constant_values=((0, 0), (0, SILENCE), (0, 0)))
    windows = np.stack([framed[:, at : at + recording.shape[1]] for at in range(2 * AHEAD + 1)], axis=-1)
    result: Array = np.einsum("ntck,ock->nto", windows, kernel()) + recording
    return result


@pytest.mark.parametrize("length", range(1, 9))
def test_a_flushed_stream_is_the_whole_recording(built: Project, length: int) -> None:
    recording = np.random.default_rng(length).standard_normal((1, 21, 4)).astype(np.float32)
    with runtime_lite.Runtime() as runtime, runtime.load(built.folder / "bundle").open_stream() as stream:
        answers = [
            stream.push({"features": recording[:, start : start + length]})["scores"] for start in range(0, 21, length)
        ]
        answers.append(stream.flush()["scores"] if length % 2 else stream.submit_flush().result()["scores"])
    np.testing.assert_allclose(np.concatenate(answers, 1)[:, AHEAD:], offline(recording), rtol=1e-5, atol=1e-5)


def test_the_recipe_says_what_completes_a_stream(built: Project) -> None:
    with runtime_lite.read_bundle(built.folder / "bundle") as bundle:
        assert bundle.manifest.graphs["net"].flush == {"features": 3}
        assert bundle.manifest.graphs["net"].flush_values == {"features": SILENCE}


def test_the_golden_feeds_end_with_what_completes_a_stream(built: Project) -> None:
    folder = built.folder / "bundle"
    with runtime_lite.read_bundle(folder) as bundle:
        graph = bundle.manifest.graphs["net"]
    steps = golden_from_npz((folder / graph.golden).read_bytes(), "golden", graph).steps
    np.testing.assert_array_equal(steps[-1].feeds["features"], np.full((1, AHEAD, 4), SILENCE, np.float32))
    assert all(step.feeds["features"].any() for step in steps[:-1])


WRONG = {
    "another input": (
        "    flush: {features: 3}",
        "    flush: {context: 3}",
        "flush: expected every input that callers feed",
    ),
    "more than a chunk": (
        "    flush: {features: 3}",
        "    flush: {features: 9}",
        "flush.features: expected at most 8 entries, a whole",
    ),
    "a number of another input": (
        "{features: -1.5}",
        "{context: -1.5}",
        "flush_values.context: expected an input that flush names, got 'context'",
    ),
    "a number that the type lacks": (
        "{features: -1.5}",
        "{features: 1.0e+300}",
        "flush_values.features: expected a number that float32 has, got 1e+300",
    ),
    "a number out of the range": (
        "features: {shape: [batch, chunk, 4], dtype: float32}",
        "features: {shape: [batch, chunk, 4], dtype: float32, range: [-1.0, 1.0]}",
        "flush_values.features: expected what is fed at the end from -1 to 1, the declared range, got -1.5",
    ),
    "chunks of one size": (
        "chunk: {buckets: [8], length_input: chunk_length}",
        "chunk: {fixed: 8}",
        "flush: expected flush in a graph with states whose chunks may be of any length",
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_complete_a_stream_is_refused(
    old: str, new: str, message: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("wrong") / "late.yaml"
    path.write_text(RECIPE.replace(old, new))
    with pytest.raises(RecipeError) as raised:
        load_recipe(str(path))
    assert message in str(raised.value)
