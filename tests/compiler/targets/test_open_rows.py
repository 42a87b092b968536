"""One file for all numbers of rows where nothing needs their number, and the reason where something does."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.base.pieces import write_files
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered
from compiler.passes import make_pass
from compiler.targets.base import Built
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.open_rows import open_rows
from compiler.targets.static_graphs import write_static
from tests.kit.graphs import BATCH, copy_of, feeds_of, parse, streaming

FLATTENED = """(float[batch,2,3] x) => (float[batch,6] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] six = {6}>
    { s = Shape(x)  n = Slice(s, zero, one)  size = Concat<axis=0>(n, six)  y = Reshape(x, size) }"""

MERGED = """(float[batch,2,3] x, float[3,3] w) => (float[batch,2,3] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>
    { s = Shape(x)  n = Slice(s, zero, one)  many = Mul(n, two)  flat = Concat<axis=0>(many, three)
      a = Reshape(x, flat)  b = MatMul(a, w)  back = Concat<axis=0>(n, two, three)  y = Reshape(b, back) }"""

EXPANDED = """(float[batch,3] x, float[1,3] w) => (float[batch,3] y)
    { s = Shape(x)  wide = Expand(w, s)  y = Concat<axis=1>(wide, x) }"""

COUNTED = """(float[batch,3] x) => (float[batch,3] y)
    <int64 zero = {0}>
    { s = Shape(x)  n = Gather(s, zero)  real = Cast<to=1>(n)  y = Div(x, real) }"""

FILLED = """(float[batch,3] x) => (float[batch,4] y)
    <int64[1] zero = {0}, int64[1] one = {1}>
    { s = Shape(x)  n = Slice(s, zero, one)  size = Concat<axis=0>(n, one)  wide = ConstantOfShape(size)
      y = Concat<axis=1>(x, wide) }"""

UNROLLED = """(float[batch,3] x) => (float[rows,3] y) { y = Concat<axis=0>(x, x) }"""


def lowered_of(text: str, **weights: np.ndarray) -> Lowered:
    return Lowered("net", parse(text, weights), batch_axis=BATCH)


def emitted(lowered: Lowered, rows: tuple[int, ...] = (1, 4)) -> Built:
    return write_static(OnnxStatic(), lowered, {BATCH: rows}, opens_rows=True)


def answer(built: Built, artifact: int, folder: Path, **feeds: np.ndarray) -> np.ndarray:
    write_files(folder, built.files)
    session = open_session(str(folder / built.artifacts[artifact].file))
    result: np.ndarray = session.run(None, feeds)[0]
    return result


def test_a_reshape_that_keeps_the_rows_copies_their_number(tmp_path: Path) -> None:
    built = emitted(lowered_of(FLATTENED))
    assert {each.file for each in built.artifacts} == {"graphs/net.batch.onnx"}
    assert [dict(each.sizes) for each in built.artifacts] == [{"batch": 1}, {"batch": 4}]
    assert built.refused == ()
    model = onnx.load_model_from_string(bytes(built.files["graphs/net.batch.onnx"]))
    assert [node.op_type for node in model.graph.node] == ["Reshape"], "no size is computed at run time"
    for artifact, rows in enumerate((1, 4)):
        x = np.arange(6 * rows, dtype=np.float32).reshape(rows, 2, 3)
        np.testing.assert_array_equal(answer(built, artifact, tmp_path, x=x), x.reshape(rows, 6))


def test_a_reshape_that_merges_the_rows_infers_their_number(tmp_path: Path) -> None:
    built = emitted(lowered_of(MERGED, w=np.eye(3, dtype=np.float32)))
    assert len(set(built.files)) == 2 and built.refused == ()
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(answer(built, 1, tmp_path, x=x), x)


def test_an_open_file_names_the_batch_axis_and_nothing_else() -> None:
    lowered = copy_of(streaming(two_caches=True))
    for name in ("pad_axes", "window_states", "pack_states"):
        lowered = make_pass(name, {}).apply(lowered).lowered
    built = emitted(lowered)
    assert built.refused == ()
    (file,) = {each.file for each in built.artifacts}
    model = onnx.load_model_from_string(bytes(built.files[file]))
    for value in (*model.graph.input, *model.graph.output):
        names = [dim.dim_param for dim in value.type.tensor_type.shape.dim if not dim.HasField("dim_value")]
        assert names == [BATCH]


@pytest.mark.parametrize("rows", [1, 4])
def test_an_open_file_answers_as_the_static_file_of_every_bucket(tmp_path: Path, rows: int) -> None:
    origin = streaming(two_caches=True)
    lowered = copy_of(origin)
    for name in ("pad_axes", "window_states", "pack_states"):
        lowered = make_pass(name, {}).apply(lowered).lowered
    answers = []
    for opens_rows in (False, True):
        built = write_static(OnnxStatic(), lowered, {BATCH: (1, 4)}, opens_rows=opens_rows)
        artifact = next(each for each in built.artifacts if each.sizes[BATCH] == rows)
        folder = tmp_path / str(opens_rows)
        write_files(folder, built.files)
        runner = Runner(artifact.lowered, open_session(str(folder / artifact.file)), rows)
        feeds = [{name: np.repeat(array, rows, 0) for name, array in feed.items()} for feed in feeds_of(origin, 9)]
        answers.append([runner.step(feed) for feed in feeds])
    for static, opened in zip(*answers, strict=True):
        for name, array in static.items():
            np.testing.assert_allclose(opened[name], array, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (COUNTED, "it reads the number of rows"),
        (FILLED, "it reads the number of rows"),
        (UNROLLED, "it has shape [2*batch,3]"),
    ],
)
def test_what_needs_the_number_of_rows_has_a_file_per_bucket_and_the_reason(text: str, words: str) -> None:
    built = emitted(lowered_of(text))
    assert [each.file for each in built.artifacts] == ["graphs/net.batch1.onnx", "graphs/net.batch4.onnx"]
    (reason,) = built.refused
    assert words in reason and "graph net" in reason, reason


def test_the_static_files_are_those_of_a_target_that_opens_nothing() -> None:
    assert emitted(lowered_of(COUNTED)).files == write_static(OnnxStatic(), lowered_of(COUNTED), {BATCH: (1, 4)}).files


def test_one_number_of_rows_stays_a_static_file() -> None:
    built = emitted(lowered_of(FLATTENED), rows=(4,))
    assert [each.file for each in built.artifacts] == ["graphs/net.batch4.onnx"]


def test_other_axes_have_a_file_for_each_of_their_sizes() -> None:
    lowered = Lowered(
        "net", parse("(float[batch,time,2] x) => (float[batch,time,2] y) { y = Relu(x) }"), batch_axis=BATCH
    )
    built = write_static(OnnxStatic(), lowered, {"batch": (1, 2), "time": (3, 5)}, opens_rows=True)
    assert [each.file for each in built.artifacts] == ["graphs/net.batch.time3.onnx", "graphs/net.batch.time5.onnx"] * 2
    assert [dict(each.sizes) for each in built.artifacts] == [{"batch": n, "time": t} for n in (1, 2) for t in (3, 5)]


def test_a_size_that_nobody_knows_closes_the_rows() -> None:
    with pytest.raises(Refused, match=r"one file for all numbers of rows .* it has shape None"):
        open_rows(lowered_of("(float[batch,3] x) => (float[batch,3] y) { y = com.acme.Twist(x) }"), (1, 4))


def test_another_size_at_a_bucket_than_the_open_graph_says_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    infer = graphs.infer_shapes

    def infer_wrongly(model: ir.Model) -> None:
        infer(model)
        if model.graph.inputs[0].shape == ir.Shape([4, 3]):
            model.graph.outputs[0].shape = ir.Shape([2, 3])

    monkeypatch.setattr(graphs, "infer_shapes", infer_wrongly)
    text = "(float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }"
    with pytest.raises(Refused, match=r"at 4 rows it has shape \[2, 3\], not \[4, 3\]"):
        open_rows(lowered_of(text), (1, 4))
    open_rows(lowered_of(text), (1, 2))
