"""Twin of compiler/graph/runners/structure.py: graphs and their large weights apart."""

import gc
import hashlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.checker.graph import numbers_of
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners import structure
from compiler.graph.runners.session import open_model, open_session
from compiler.graph.runners.structure import check_structure, is_same, outside, references, split, written
from compiler.graph.stages import Array
from tests.kit.graphs import parse

WIDE = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
TEXT = """(float[n,32] x, float[32,32] wide, float[32,32] dead, float[32,32] unused,
    float[32,32] given) => (float[n,32] y, float[n,32] z) <int64[2] shape = {-1, 32}>
    { a = MatMul(x, wide)  b = MatMul(x, dead)  y = Reshape(a, shape)  z = MatMul(x, given) }"""


def model() -> ir.Model:
    """Three weights, one read by a dead node and one by nobody, and an input that has a default."""
    made = parse(TEXT, {"wide": WIDE.copy(), "dead": WIDE.copy(), "unused": WIDE.copy()})
    given = graphs.inputs_named(made)["given"]
    given.const_value = ir.tensor(WIDE.copy(), name="given")
    made.graph.initializers["given"] = given
    return made


def test_large_weights_stand_apart_and_are_shared() -> None:
    given = model()
    apart = split(given)
    named = references(apart.proto)
    assert set(named) == {"wide", "dead"}, "no input's default, nothing unread, and not what is read as a shape"
    assert set(named.values()) == {hashlib.sha256(WIDE.tobytes()).hexdigest()}, "equal weights are one"
    held = [given.graph.initializers[name].const_value for name in named]
    (array,) = apart.weights.values()
    assert any(np.shares_memory(array, each.numpy()) for each in held if each is not None)
    assert len(apart.content) < 2 * WIDE.nbytes + 2000
    assert not isinstance(given.graph.initializers["wide"].const_value, ir.ExternalTensor), "the model is as it was"


def test_weights_of_the_same_bytes_keep_their_own_shapes_and_types() -> None:
    text = """(float[n,32] x, float[32,16] a, float[16,32] b, float16[32,32] c) => (float[n,32] y)
        { h = MatMul(x, a)  g = MatMul(h, b)  d = Cast<to = 1>(c)  y = MatMul(g, d) }"""
    arrays: dict[str, Array] = {
        "a": WIDE[:16].reshape(32, 16),
        "b": WIDE[:16].copy(),
        "c": WIDE[:16].view(np.float16).reshape(32, 32),
    }
    arrays = {name: np.abs(array.view(np.uint8) & 0x3B).view(array.dtype) for name, array in arrays.items()}
    given = parse(text, arrays)
    apart = split(given)
    assert len(apart.weights) == 1 and len(references(apart.proto)) == 3
    for name, value in apart.model().graph.initializers.items():
        assert value.const_value is not None
        np.testing.assert_array_equal(value.const_value.numpy(), arrays[name], strict=True)
    for tensor in outside(apart.proto):
        np.testing.assert_array_equal(numbers_of(tensor, apart.weights), arrays[tensor.name], strict=True)
    feed = {"x": np.ones((2, 32), np.float32)}
    (got,), (wanted,) = (each.run(None, feed) for each in (open_model(given), open_session(graphs.serialized(given))))
    np.testing.assert_array_equal(got, wanted)


def test_the_structure_is_the_whole_graph_but_for_the_content_of_its_weights() -> None:
    given = model()
    for at, value in enumerate(given.graph.initializers.values()):
        value.metadata_props["place"], value.doc_string = str(at), f"weight {at}"
    apart = split(given)
    weights = references(apart.proto)
    got, whole = onnx.load_model_from_string(apart.content), ir.serde.serialize_model(given)
    for proto in (got, whole):
        for tensor in proto.graph.initializer:
            if tensor.name in weights:
                tensor.ClearField("raw_data")
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
    assert got == whole
    assert len(got.graph.value_info) > len(weights), "what is known of the weights is written, too"


def test_an_opened_model_answers_as_its_bytes_do_also_when_it_is_gone() -> None:
    given = model()
    whole = open_session(graphs.serialized(given))
    feeds = {"x": WIDE[:3]}
    for optimize in (False, True):
        opened = open_model(ir.from_proto(onnx.load_model_from_string(graphs.serialized(given))), optimize=optimize)
        gc.collect()
        for got, right in zip(opened.run(None, feeds), whole.run(None, feeds), strict=True):
            assert got.tobytes() == right.tobytes() or (optimize and np.allclose(got, right, rtol=1e-5))
        assert np.array_equal(opened.run(["z"], {**feeds, "given": np.zeros_like(WIDE)})[0], np.zeros((3, 32)))


@pytest.mark.parametrize(
    "change",
    [
        lambda each: each.graph.initializers["wide"].const_value.numpy().__setitem__((5, 7), -0.0),
        lambda each: setattr(each.graph.node(0), "name", "other"),
        lambda each: each.graph.initializers.pop("unused"),
        lambda each: each.graph.initializers["shape"].const_value.numpy().__setitem__(0, 1),
        lambda each: each.metadata_props.__setitem__("k", "v"),
        lambda each: each.graph.outputs.pop(),
    ],
)
def test_models_are_the_same_to_the_byte_or_not(change: object) -> None:
    before, after = model(), model()
    assert is_same(before, graphs.clone(before))
    for each in (before, after):
        for value in each.graph.initializers.values():
            assert value.const_value is not None
            array = value.const_value.numpy().copy()
            if value.name == "wide":
                array[5, 7] = 0.0
            value.const_value = ir.tensor(array, name=value.name)
    change(after)  # type: ignore[operator]
    assert not is_same(before, after)


def test_models_with_other_arrays_of_the_same_content_are_the_same() -> None:
    assert is_same(model(), model())
    again = split(model()).model()
    assert is_same(model(), again)
    assert not isinstance(again.graph.initializers["wide"].const_value, ir.ExternalTensor)


def test_a_structure_that_no_reader_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = split(model()).proto
    monkeypatch.setattr(structure, "LARGEST_PROTOBUF", proto.ByteSize() - 1)
    with pytest.raises(Refused, match="without its large weights"):
        written(proto)


def test_the_rules_of_onnx_hold_without_the_weights() -> None:
    given = model()
    check_structure(given)
    given.graph.node(0).op_type = "NoSuchOperator"
    with pytest.raises(onnx.checker.ValidationError):
        check_structure(given)
