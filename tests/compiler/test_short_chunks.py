"""A stream whose chunks are of any length, from end to end: a cache, a convolution and a recurrence, built and run."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import runtime_lite
from runtime_lite.calls.state import initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.verify import verify_model
from tests.kit.graphs import parse
from tests.kit.models.project import Project

TEXT = """
(float[stapel,stueck,8] features, float[stapel,cache,8] keys, float[stapel,2,8] context, float[stapel,1,8] hidden,
 float[8,8,3] kernel, float[1,24,8] input_weights, float[1,24,8] hidden_weights)
    => (float[stapel,stueck,8] logits, float[stapel,all,8] next_keys, float[stapel,2,8] next_context,
        float[stapel,1,8] next_hidden)
<int64[1] last = {-2}, int64[1] end = {9223372036854775807}, int64[1] one = {1}>
{
    padded = Concat<axis = 1>(context, features)
    next_context = Slice(padded, last, end, one)
    channels = Transpose<perm = [0, 2, 1]>(padded)
    convolved = Conv(channels, kernel)
    frames = Transpose<perm = [0, 2, 1]>(convolved)
    next_keys = Concat<axis = 1>(keys, frames)
    turned = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(frames, turned)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, next_keys)
    ahead = Transpose<perm = [1, 0, 2]>(mixed)
    before = Transpose<perm = [1, 0, 2]>(hidden)
    heard, after = GRU<hidden_size = 8>(ahead, input_weights, hidden_weights, , , before)
    next_hidden = Transpose<perm = [1, 0, 2]>(after)
    stueck_length = Squeeze(heard, one)
    back = Transpose<perm = [1, 0, 2]>(stueck_length)
    logits = Add(back, frames)
}
"""
"""A value inside is called as the length input that the recipe adds."""

RECIPE = """\
name: short
graphs:
  net:
    source: {onnx: short.onnx}
    inputs:
      features: {shape: [stapel, stueck, 8], dtype: float32}
      keys:     {shape: [stapel, cache, 8], dtype: float32, state: next_keys}
      context:  {shape: [stapel, 2, 8], dtype: float32, state: next_context}
      hidden:   {shape: [stapel, 1, 8], dtype: float32, state: next_hidden}
    outputs: [logits, next_keys, next_context, next_hidden]
    axes:
      stapel: {buckets: [1, 4]}
      stueck: {buckets: [2, 4], length_input: stueck_length}
      cache:  {window: 6}
data:
  verification: {feeds: "chunk_data:verification", count: 3}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 8, drift: {steps: 40, max_growth: 3.0}}}}
"""

DATA = """
import numpy as np

def verification():
    rng = np.random.default_rng(0)
    for stream in range(3):
        lengths = [4] * 5 + [1, 3, 2, 4, 1, 1, 2][stream:]
        yield [{"features": rng.standard_normal((1, n, 8)).astype(np.float32)} for n in lengths]
"""

WINDOW, MOST = 6, 4


def model() -> ir.Model:
    rng = np.random.default_rng(1)
    shapes = {"kernel": (8, 8, 3), "input_weights": (1, 24, 8), "hidden_weights": (1, 24, 8)}
    made = {name: (rng.standard_normal(shape) / 3).astype(np.float32) for name, shape in shapes.items()}
    return parse(TEXT, made)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("short")
    (folder / "chunk_data.py").write_text(DATA)
    ir.save(model(), folder / "short.onnx")
    (folder / "short.yaml").write_text(RECIPE)
    project = Project(folder, folder.with_name("short-cache"))
    ended = project.build(recipe="short.yaml")
    assert ended.code == 0, ended.err
    return project


class Original:
    """The model itself on chunks as they are, its cache cut to the window."""

    def __init__(self) -> None:
        self.session = onnxruntime.InferenceSession(ir.serde.serialize_model(model()).SerializeToString())
        fixed = {"keys": 0, "context": 2, "hidden": 1}
        self.states = {name: np.zeros((1, size, 8), np.float32) for name, size in fixed.items()}

    def push(self, chunk: Array) -> Array:
        logits, keys, context, hidden = self.session.run(None, {"features": chunk, **self.states})
        self.states = {"keys": keys[:, -WINDOW:], "context": context, "hidden": hidden}
        return np.asarray(logits)


def random_chunk(length: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((1, length, 8)).astype(np.float32)


@pytest.mark.parametrize("last", range(1, MOST + 1))
def test_a_last_chunk_of_any_length_is_the_models_own(built: Project, last: int) -> None:
    original = Original()
    with runtime_lite.Runtime() as runtime, runtime.load(built.folder / "bundle").open_stream() as stream:
        for number, length in enumerate([MOST, MOST, MOST, last]):
            chunk = random_chunk(length, number)
            got = stream.push({"features": chunk})["logits"]
            np.testing.assert_allclose(got, original.push(chunk), rtol=1e-5, atol=1e-5)
        for name in ("hidden", "keys"):  # the context is carried behind what is computed of it
            np.testing.assert_allclose(stream.state.values[name], original.states[name], rtol=1e-5, atol=1e-5)


def test_chunks_of_any_length_at_any_age(built: Project) -> None:
    rng, original, total = np.random.default_rng(7), Original(), 0
    with runtime_lite.Runtime() as runtime, runtime.load(built.folder / "bundle").open_stream() as stream:
        for number in range(40):
            chunk = random_chunk(int(rng.integers(1, MOST + 1)), number)
            total += chunk.shape[1]
            got = stream.push({"features": chunk})["logits"]
            np.testing.assert_allclose(got, original.push(chunk), rtol=1e-5, atol=1e-5)
            assert stream.state.lengths["cache"].tolist() == [min(total, WINDOW)]


def test_recorded_streams_hold_in_every_bucket(built: Project) -> None:
    with runtime_lite.Runtime() as runtime:
        found = list(verify_model(runtime.load(built.folder / "bundle")))
    assert all(each.holds for each in found)
    assert {each.bucket for each in found} == {f"stapel={rows},stueck={slots}" for rows in (1, 4) for slots in (2, 4)}


def test_rows_of_one_call_have_chunks_of_different_lengths_and_ages(built: Project) -> None:
    """Each row is what it is alone, whatever lies behind its chunk."""
    with runtime_lite.Runtime() as runtime:
        runner = runtime.load(built.folder / "bundle").runner("net")
        ages, lengths = (0, 1, 4), (1, 4, 3)
        states, originals = [], []
        for row, age in enumerate(ages):
            state, original = initial_state(runner.graph, 1), Original()
            for call in range(age):
                chunk = random_chunk(1 + call % MOST, 10 * row + call)
                _, state = runner.step(runner.check("test", {"features": chunk}), state)
                original.push(chunk)
            states.append(state)
            originals.append(original)
        chunks = [random_chunk(length, 100 + row) for row, length in enumerate(lengths)]
        feeds = [runner.check("test", {"features": chunk}) for chunk in chunks]
        answers = [
            runner.step_streams(feeds, states, {"stapel": 4, "stueck": 4}, fill=fill) for fill in (0.0, np.nan, 1e30)
        ]
    for row, original in enumerate(originals):
        outputs, after = answers[0][row]
        np.testing.assert_allclose(outputs["logits"], original.push(chunks[row]), rtol=1e-5, atol=1e-5)
        for spoiled, state in (answer[row] for answer in answers[1:]):
            assert spoiled["logits"].tobytes() == outputs["logits"].tobytes()
            assert all(state.values[name].tobytes() == after.values[name].tobytes() for name in after.values)
