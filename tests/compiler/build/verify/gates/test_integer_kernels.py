"""The gate on integer kernels, in whole builds."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime.quantization  # noqa: TID251 - what it writes is refused
import pytest

from compiler.base.pieces import write_files
from compiler.build.verify.gates.integer_kernels import check_integer_kernels, integer_layers
from compiler.errors import GateFailed
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Pass
from compiler.passes.quantize_dynamic import QuantizeDynamic
from compiler.passes.quantize_static import QuantizeStatic
from compiler.targets import placements
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.graphs import copy_of, random_weights
from tests.kit.models.project import Project
from tests.kit.models.quantised import quantised
from tests.kit.quantization import speech


def test_integers_that_the_runtime_does_not_see_fail_the_build(project: Project) -> None:
    ended = quantised(project, "quantize_static: {placement: tensorrt, pins: []}", rows="[2]")
    assert ended.code == 4, ended.out
    assert "stage integer kernels, graph net, node " in ended.message and "in float stay" in ended.message
    assert not (project.folder / "bundle").exists()


def shipped(folder: Path, made: Pass) -> Path:
    return written(folder, made.apply(copy_of(speech())).lowered)


def written(folder: Path, lowered: Lowered) -> Path:
    """As a bundle has it: weights, but for the smallest, in a file of their own."""
    built = OnnxStatic().emit(lowered, {"batch": (2,)})
    write_files(folder, built.files)
    return folder / built.artifacts[0].file


@pytest.mark.parametrize(("made", "count"), [(QuantizeStatic(pins=()), 7), (QuantizeDynamic(pins=()), 5)])
def test_what_the_passes_write_runs_on_integers(tmp_path: Path, made: Pass, count: int) -> None:
    assert check_integer_kernels(shipped(tmp_path, made), "speech") == count


def test_nothing_quantised_is_nothing_to_check(tmp_path: Path) -> None:
    assert check_integer_kernels(written(tmp_path, speech()), "speech") == 0


def test_a_bias_that_the_runtime_fuses_first_is_caught_and_named(tmp_path: Path) -> None:
    """Without the bias in a shape of its own, products become Gemm before their operands are seen to be integers."""
    with pytest.raises(GateFailed, match="expected 5 products") as caught:
        check_integer_kernels(shipped(tmp_path, QuantizeStatic(placements()["tensorrt"], pins=())), "speech")
    assert "expanded_matmul_int8_merged_node" in str(caught.value)


def test_weights_alone_are_caught(tmp_path: Path) -> None:
    """Codes that are only stored: the runtime multiplies real numbers."""
    lowered = QuantizeStatic(pins=(), keep_float=("op:Conv",)).apply(copy_of(speech())).lowered
    for node in graphs.nodes_of(lowered.model):
        data = node.inputs[0]
        producer = data.producer() if data is not None else None
        if graphs.is_op(node, "MatMul") and graphs.is_op(producer, "DequantizeLinear") and producer is not None:
            codes = producer.inputs[0]
            made = None if codes is None else codes.producer()
            if made is not None:
                node.replace_input_with(0, made.inputs[0])
    graphs.prune(lowered.model)
    with pytest.raises(GateFailed, match="in float stay"):
        check_integer_kernels(written(tmp_path, lowered), "speech")


def test_products_in_branches_are_looked_at(tmp_path: Path) -> None:
    """Apart from what dequantises their operands they run on real numbers."""
    lowered = QuantizeStatic(pins=()).apply(copy_of(speech())).lowered
    model = lowered.model
    layer = next(
        node for node in graphs.nodes_of(model) if "_int8_" in str(node.name) and graphs.is_op(node, "Gemm", "MatMul")
    )
    is_first, old = ir.val("is_first", ir.DataType.BOOL, []), layer.outputs[0]
    model.graph.inputs.append(is_first)
    branches = []
    for name in ("then_branch", "else_branch"):
        made = ir.Value(name=f"{old.name}_{name}", type=old.type, shape=old.shape)
        copy = ir.Node("", layer.op_type, layer.inputs, list(layer.attributes.values()), outputs=[made], name=name)
        branches.append(ir.AttrGraph(name, ir.Graph([], [made], nodes=[copy], name=name, opset_imports={"": 20})))
    chosen = ir.Value(name="chosen", type=old.type, shape=old.shape)
    model.graph.insert_before(layer, ir.Node("", "If", [is_first], branches, outputs=[chosen], name="chosen_node"))
    graphs.take_over(model, old, chosen, except_in=[layer])
    graphs.prune(model)
    with pytest.raises(GateFailed, match=r"expected 8 products .*, got 6; in float stay then_branch, else_branch"):
        check_integer_kernels(written(tmp_path, lowered), "speech")


def test_weights_of_any_size_lie_outside(tmp_path: Path) -> None:
    wide = speech({"expand": random_weights({"w": (8, 512)})["w"], "expand_b": random_weights({"b": (512,)})["b"],
                   "reduce": random_weights({"w": (512, 8)})["w"]})  # fmt: skip
    file = written(tmp_path, QuantizeStatic(pins=()).apply(wide).lowered)
    assert any(tensor.external_data for tensor in onnx.load(file, load_external_data=False).graph.initializer)
    assert check_integer_kernels(file, "speech") == 7


def test_sites_are_found_in_what_others_have_quantised(tmp_path: Path) -> None:
    file = written(tmp_path, speech())
    onnxruntime.quantization.quantize_dynamic(file, tmp_path / "dynamic.onnx", op_types_to_quantize=["MatMul"])  # noqa: TID251
    assert len(integer_layers(onnx.load(tmp_path / "dynamic.onnx"))) >= 5


def test_the_checker_sees_what_the_runtime_sees(tmp_path: Path) -> None:
    file = shipped(tmp_path, QuantizeStatic(pins=()))
    layers = {node.name for node in integer_layers(onnx.load(file))}
    assert len(layers) == 7 and all("_int8_" in name for name in layers)
    assert np.all([isinstance(name, str) for name in layers]) and ir.load(file) is not None
