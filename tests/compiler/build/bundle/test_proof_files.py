"""The graphs of a proof ship with weights shared or, where they would be many times the bundle, with their bounds."""

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.base.pieces import Content
from compiler.build.bundle.proof_files import LEFT_OUT, Proof, drawn, proof_files
from compiler.graph.runners.structure import Structure
from compiler.targets.base import Built

SHAPE = (200, 200)


def model_of(weight: np.ndarray) -> Structure:
    model = onnx.ModelProto()
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return Structure(model, {})


def written(weight: np.ndarray, *, lossy: bool) -> tuple[dict[str, Content], dict[str, str]]:
    model = model_of(weight)
    proof = Proof("pad_axes", ({"batch": "batch"},), model, model, {})
    certificate, files = proof_files("net", [proof], Built((), {}, {}), lossy=lossy)
    assert b'"proofs/net.0.before.onnx"' in certificate
    (tensor,) = onnx.load_model_from_string(bytes(files["proofs/net.0.before.onnx"])).graph.initializer
    return files, {entry.key: entry.value for entry in tensor.external_data}


def test_equal_weights_are_written_once() -> None:
    weight = np.arange(40_000, dtype=np.float32).reshape(SHAPE)
    files, told = written(weight, lossy=False)
    assert files["proofs/net.weights"] == weight.tobytes()
    assert told == {"location": "net.weights", "offset": "0", "length": "160000"}


def test_large_weights_of_a_graph_that_is_rounded_are_their_bounds() -> None:
    files, told = written(np.linspace(-2, 3, 40_000, dtype=np.float32).reshape(SHAPE), lossy=True)
    assert "proofs/net.weights" not in files
    assert told == {"location": LEFT_OUT, "low": "-2.0", "high": "3.0"}


def test_a_weight_that_one_side_alone_has_is_kept_where_something_is_said_of_both() -> None:
    table = np.linspace(-2, 3, 40_000, dtype=np.float32).reshape(SHAPE)
    cut = np.ascontiguousarray(table[:150])
    of_both, of_one = {"batch": "batch"}, {"batch": "batch", "after": True}
    for records, kept in (((of_both,), table.tobytes() + cut.tobytes()), ((of_one,), None)):
        proof = Proof("pad_axes", records, model_of(table), model_of(cut), {})
        _, files = proof_files("net", [proof], Built((), {}, {}), lossy=True)
        assert files.get("proofs/net.weights") == kept


def test_equal_weights_of_other_names_are_equal_where_they_are_left_out() -> None:
    of = [onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=SHAPE) for name in ("w", "w_again")]
    first, second = (drawn(each, -2.0, 3.0) for each in of)
    assert np.array_equal(first, second)


def test_a_table_of_infinities_is_kept_whatever_is_rounded() -> None:
    mask = np.triu(np.full(SHAPE, -np.inf, np.float32), 1)
    assert written(mask, lossy=True)[0]["proofs/net.weights"] == mask.tobytes()


def test_what_stands_for_a_weight_has_its_bounds() -> None:
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=SHAPE)
    array = drawn(tensor, -2.0, 3.0)
    assert (array.shape, array.dtype, array.min(), array.max()) == (SHAPE, np.float32, -2.0, 3.0)
