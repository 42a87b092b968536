"""Static graphs: one graph per bucket, no symbol left, one weights file that every bucket shares."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.base.pieces import write_files
from compiler.build.verify.differences import compare, worst_of
from compiler.errors import Refused
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered
from compiler.passes import make_pass
from compiler.recipe.gates import Tolerance
from compiler.targets.base import Built
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import prepare_static, write_prepared, write_static
from compiler.targets.weights_file import ALIGNMENT_BYTES, INLINE_BYTES, LARGE_BYTES, SMALL_ALIGNMENT_BYTES
from tests.kit.contract import content_of, recorded, weights_of
from tests.kit.graphs import BATCH, copy_of, feeds_of, parse, streaming

BUCKETS = {BATCH: (1, 4)}


def heavy() -> tuple[Lowered, Lowered]:
    """A graph with two large weights, and a stream after the passes."""
    origin = streaming(two_caches=True)
    rng = np.random.default_rng(0)
    weights = {"up": rng.standard_normal((4, 4096)), "down": rng.standard_normal((4096, 100))}
    weights["last"] = rng.standard_normal((100, 4))
    text = """(float[batch,2,4] x, float[4,4096] up, float[4096,100] down, float[100,4] last) => (float[batch,2,4] y)
        { u = MatMul(x, up)  v = MatMul(u, down)  y = MatMul(v, last) }"""
    big = parse(text, {name: array.astype(np.float32) for name, array in weights.items()})
    plain = Lowered("big", big, batch_axis=BATCH)
    lowered = copy_of(origin)
    for name in ("pad_axes", "window_states", "pack_states"):
        lowered = make_pass(name, {}).apply(lowered).lowered
    return plain, lowered


def emitted(lowered: Lowered) -> Built:
    return write_static(OnnxStatic(), lowered, BUCKETS)


def written(built: Built, folder: Path) -> Path:
    write_files(folder, built.files)
    return folder


def dims_of(proto: onnx.ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    infos = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    return [dim for info in infos for dim in info.type.tensor_type.shape.dim]


def test_a_symbol_is_refused() -> None:
    prepared = prepare_static(OnnxStatic(), streaming(), BUCKETS)
    unfrozen = tuple((sizes, fixed, streaming()) for sizes, fixed, _ in prepared.graphs)
    with pytest.raises(Refused, match="a static target needs numbers"):
        write_prepared(OnnxStatic(), dataclasses.replace(prepared, graphs=unfrozen))


def test_one_graph_per_bucket_and_one_weights_file() -> None:
    built = emitted(heavy()[0])
    assert sorted(built.files) == ["graphs/big.batch1.onnx", "graphs/big.batch4.onnx", "graphs/big.weights"]
    assert [(dict(each.sizes), each.file, each.files) for each in built.artifacts] == [
        ({"batch": 1}, "graphs/big.batch1.onnx", ("graphs/big.weights",)),
        ({"batch": 4}, "graphs/big.batch4.onnx", ("graphs/big.weights",)),
    ]
    assert built.versions == {"opset": 20, "ir_version": 10}


def test_the_opset_is_that_of_what_is_written() -> None:
    text = """(float[batch,2,3,4] q, float[batch,2,4,5] k, float[batch,2,5,4] v) => (float[batch,2,3,4] y)
        { s = MatMul(q, k)  p = Softmax<axis = -1>(s)  y = MatMul(p, v) }"""
    lowered = Lowered("tiny", parse(text), batch_axis=BATCH)
    built = write_static(OnnxStatic(forms=("fuse_attention",)), lowered, {BATCH: (1,)})
    (proto,) = (onnx.load_model_from_string(bytes(built.files[each.file])) for each in built.artifacts)
    assert [each.version for each in proto.opset_import] == [built.versions["opset"]] == [23]


@pytest.mark.parametrize("which", [0, 1])
def test_no_dimension_is_a_name_or_unknown(which: int) -> None:
    built = emitted(heavy()[which])
    for artifact in built.artifacts:
        proto = onnx.load_model_from_string(bytes(built.files[artifact.file]))
        assert dims_of(proto)
        assert all(dim.HasField("dim_value") for dim in dims_of(proto))


def test_buckets_share_weights_by_content_and_stay_within_the_file() -> None:
    built = emitted(heavy()[0])
    weights = built.files["graphs/big.weights"]
    places: list[dict[str, tuple[int, int]]] = []
    for artifact in built.artifacts:
        found = {}
        for tensor in onnx.load_model_from_string(bytes(built.files[artifact.file])).graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries:
                offset, length = int(entries["offset"]), int(entries["length"])
                assert entries["location"] == "big.weights"
                assert offset % (ALIGNMENT_BYTES if length >= LARGE_BYTES else SMALL_ALIGNMENT_BYTES) == 0
                assert 0 <= offset <= offset + length <= len(weights)
                assert length == 4 * int(np.prod(tensor.dims))
                found[tensor.name] = (offset, length)
            else:
                assert len(tensor.raw_data) <= INLINE_BYTES
        places.append(found)
    assert places[0] == places[1]
    assert set(places[0]) == {"up", "down", "last"}
    assert len(weights) == 4 * (4 * 4096 + 4096 * 100 + 100 * 4), "nothing is wasted on the small one"


def test_the_bytes_are_the_same_every_time_and_the_graph_stays() -> None:
    for lowered in heavy():
        before, weights = content_of(lowered), weights_of(lowered.model)
        assert emitted(lowered).files == emitted(copy_of(lowered)).files
        assert content_of(lowered) == before
        assert weights_of(lowered.model) == weights


@pytest.mark.parametrize("rows", [1, 4])
def test_what_is_written_runs_as_the_original(rows: int, tmp_path: Path) -> None:
    origin = streaming(two_caches=True)
    built = emitted(heavy()[1])
    folder = written(built, tmp_path)
    artifact = next(each for each in built.artifacts if each.sizes[BATCH] == rows)
    session = open_session(str(folder / artifact.file), optimize=True)
    steps = recorded(origin, feeds_of(origin, 12, rows), rows)
    limits = Tolerance(max_abs=1e-5)
    assert worst_of(compare(artifact.lowered, Runner(artifact.lowered, session, rows), steps), limits).holds(limits)


def test_external_weights_are_read_from_the_file(tmp_path: Path) -> None:
    built = emitted(heavy()[0])
    session = open_session(str(written(built, tmp_path) / "graphs/big.batch1.onnx"))
    x = np.ones((1, 2, 4), np.float32)
    weights = heavy()[0].model.graph.initializers
    expected = x
    for name in ("up", "down", "last"):
        tensor = weights[name].const_value
        assert tensor is not None
        expected = expected @ tensor.numpy()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-3)


def test_without_buckets_there_is_one_static_graph() -> None:
    lowered = Lowered("plain", parse("(float[1,2] x) => (float[1,2] y) { y = Relu(x) }"))
    built = write_static(OnnxStatic(), lowered, {})
    assert [artifact.file for artifact in built.artifacts] == ["graphs/plain.static.onnx"]


def test_a_symbol_that_stays_is_refused_with_node_and_source() -> None:
    with pytest.raises(Refused, match="a static target needs numbers") as raised:
        write_static(OnnxStatic(), streaming(), BUCKETS)
    assert raised.value.place.tensor == "past"
    assert "pad_axes for the window" in raised.value.cure


def test_a_size_made_at_run_time_is_refused_with_its_node() -> None:
    text = "(float[batch,2] x) => (int64[2,n] y) { y = NonZero(x) }"
    with pytest.raises(Refused, match="needs numbers") as raised:
        write_static(OnnxStatic(), Lowered("tiny", parse(text), batch_axis=BATCH), BUCKETS)
    assert raised.value.place.op == "NonZero"
    assert raised.value.place.source.startswith("tiny.py:1")


def test_two_bucketed_axes_give_every_combination() -> None:
    text = "(float[batch,beam] x) => (float[batch,beam] y) { y = Relu(x) }"
    lowered = dataclasses.replace(Lowered("two", parse(text)), batch_axis=BATCH)
    built = write_static(OnnxStatic(), lowered, {"batch": (1, 2), "beam": (3, 5)})
    assert [artifact.file for artifact in built.artifacts] == [
        f"graphs/two.batch{batch}.beam{beam}.onnx" for batch in (1, 2) for beam in (3, 5)
    ]
