"""ONNX files of unknown origin: read whole, named and located, or answered with one sentence."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.build.capture.onnx_source.onnx_file import first_words, keep_numbers, read_onnx, require_runnable
from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from tests.kit.graphs import parse

TRACE = """File "/env/lib/site-packages/torch/nn/functional.py", line 7, in relu
    return torch.relu(input)
File "/env/lib/site-packages/torchaudio/net.py", line 12, in forward
    x = relu(x)
File "/env/lib/site-packages/torch/nn/modules.py", line 9, in call
    return forward(x)"""


def write(path: Path, model: ir.Model) -> Path:
    path.write_bytes(graphs.serialized(model))
    return path


def read(path: Path) -> ir.Model:
    return read_onnx(path, Location(stage="explain"), "check the path")


def test_nodes_get_distinct_names_and_source_lines(tmp_path: Path) -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Neg(c) }")
    for node, name in zip(model.graph, ("same", "same", None, "last"), strict=True):
        node.name = name
        node.metadata_props.clear()
    next(iter(model.graph)).metadata_props["pkg.torch.onnx.stack_trace"] = TRACE
    nodes = list(read(write(tmp_path / "m.onnx", model)).graph)
    assert [node.name for node in nodes] == ["same", "same_1", "Relu_2", "last"]
    assert graphs.source_of(nodes[0]) == "net.py:12 in forward: x = relu(x)"
    assert graphs.source_of(nodes[2]).endswith("m.onnx node Relu_2")


def test_weights_that_an_old_file_lists_as_inputs_are_constants(tmp_path: Path) -> None:
    weight = np.ones((2, 2), np.float32)
    model = parse("(float[batch,2] x, float[2,2] w) => (float[batch,2] y) { y = MatMul(x, w) }", {"w": weight})
    model.graph.inputs.append(model.graph.initializers["w"])
    got = read(write(tmp_path / "m.onnx", model))
    assert [value.name for value in got.graph.inputs] == ["x"]
    kept = graphs.array_of(got.graph.initializers["w"])
    assert kept is not None and np.array_equal(kept, weight)


def test_axis_names_of_the_exporter_give_way(tmp_path: Path) -> None:
    model = parse("(float[batch,2] x) => (float[rows,2] y) { y = Relu(x) }")
    model.graph.outputs[0].shape = ir.Shape(["rows", 2])
    keep_numbers(model)
    assert [getattr(dim, "value", dim) for dim in model.graph.outputs[0].shape or ()] == [None, 2]


STALE = {
    "another number": ["batch", 32],
    "a number for an axis": [7, 2],
    "another axis": ["other", 2],
    "another rank": ["batch", 2, 1],
}


@pytest.mark.parametrize("noted", STALE.values(), ids=STALE)
def test_shapes_that_a_file_notes_are_inferred_anew(noted: list[int | str], tmp_path: Path) -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { h = Relu(x)  y = Neg(h) }")
    next(iter(model.graph)).outputs[0].shape = ir.Shape(noted)
    (tmp_path / "m.onnx").write_bytes(ir.to_proto(model).SerializeToString())
    got = read(tmp_path / "m.onnx")
    made = next(iter(got.graph)).outputs[0]
    assert made.shape is None
    graphs.infer_shapes(got)
    assert graphs.dims_of(made) == (graphs.symbol("batch"), 2)


def test_sizes_and_passes_that_a_file_notes_are_forgotten(tmp_path: Path) -> None:
    """A graph that a pass has written is a source like any other: its nodes are judged."""
    model = parse("(int64[2] n, float[batch,2] x) => (float[p,q] y) { h = Reshape(x, n)  y = Neg(h) }")
    model.graph.inputs[0].metadata_props[graphs.SYM_DATA] = "[3, 4]"
    for node in model.graph:
        node.metadata_props[graphs.PASS_KEY] = "pad_axes"
        node.outputs[0].metadata_props[graphs.SYM_DATA] = "[3, 4]"
    got = read(write(tmp_path / "m.onnx", model))
    assert graphs.integers_of(got.graph.inputs[0]) is None
    assert not any(node.metadata_props.get(graphs.PASS_KEY) for node in got.graph)
    assert not any(node.outputs[0].metadata_props.get(graphs.SYM_DATA) for node in got.graph)


def test_what_is_no_onnx_file_is_answered(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    for path, words in (
        (tmp_path, "got the folder"),
        (tmp_path / "none.onnx", "got nothing at"),
        (tmp_path / "text.onnx", "expected an ONNX file at"),
    ):
        with pytest.raises(RecipeError, match=words):
            read(path)


def test_missing_weights_beside_the_file_are_named(tmp_path: Path) -> None:
    weights = {"w": np.ones((32, 32), np.float32)}
    model = parse("(float[batch,32] x, float[32,32] w) => (float[batch,32] y) { y = MatMul(x, w) }", weights)
    onnx.save(ir.to_proto(model), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert len(list(read(tmp_path / "m.onnx").graph)) == 1
    (tmp_path / "w.bin").unlink()
    with pytest.raises(RecipeError, match=r"w\.bin"):
        read(tmp_path / "m.onnx")


def test_operators_that_nothing_runs_are_refused() -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { y = com.acme.Foo(x) }")
    with pytest.raises(Refused, match=r"cannot run m\.onnx"):
        require_runnable(model, "m.onnx", Location())


def test_a_failed_export_tells_the_innermost_cause_in_one_plain_line() -> None:
    error = RuntimeError("Failed to convert.\n\x1b[96mThis is step 3/3\x1b[0m of exporting.\nNext steps:")
    error.__cause__ = AssertionError("only 4D query, key, and value are supported")
    assert first_words(error) == "AssertionError: only 4D query, key, and value are supported"
    assert first_words(ValueError("conflicts between ranges:\n- inferred 15 for dimension 1\n- inferred 16")) == (
        "conflicts between ranges: - inferred 15 for dimension 1"
    )
    assert first_words(ValueError("\x1b[96mplain\x1b[0m words\nmore")) == "plain words"
