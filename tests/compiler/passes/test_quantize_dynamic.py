"""quantize_dynamic: 8-bit integers with a scale per token."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime.quantization  # noqa: TID251 - what it writes is refused
import pytest

from compiler.build.lowering.certificates import replay_certificates
from compiler.calib.watched_streams import noise_between
from compiler.graph.runners.choose import runner_of
from compiler.passes.quantize_dynamic import QuantizeDynamic
from compiler.targets import placements
from tests.kit.contract import verify_pass
from tests.kit.graphs import copy_of, ops_of
from tests.kit.models.shared import shared_project
from tests.kit.models.tiny_graph import write_stream
from tests.kit.quantization import one_product, speech, streams


@pytest.mark.parametrize("placement", ["cpu", "tensorrt"])
def test_contract(placement: str) -> None:
    graph = speech()
    outcome = verify_pass(QuantizeDynamic(placements()[placement], pins=()), graph, tolerance=0.2)
    assert outcome.rewritten == 5 and ops_of(outcome.lowered.model).count("MatMulInteger") == 5
    assert replay_certificates(graph, outcome) > 30
    assert 1e-7 < noise_between(graph, outcome.lowered, streams(graph))["y"] < 1e-3


def test_a_token_of_zeros_gives_zeros() -> None:
    graph = speech()
    rounded = QuantizeDynamic(pins=()).apply(copy_of(graph)).lowered
    feed = {name: np.zeros_like(array) for name, array in streams(graph)[0][0].items()}
    exact, got = (runner_of(each).step(feed)["y"] for each in (graph, rounded))
    assert np.all(np.isfinite(got)) and np.allclose(exact, got, atol=0.1)


def test_a_loud_partner_changes_nothing() -> None:
    graph = QuantizeDynamic(pins=()).apply(copy_of(speech())).lowered
    feed = streams(graph)[0][0]
    for gain in (1.0, 100.0):
        both = {name: np.concatenate([array, gain * array]) for name, array in feed.items()}
        assert np.array_equal(runner_of(graph, 2).step(both)["y"][:1], runner_of(graph, 1).step(feed)["y"])


def test_default_pins_stay() -> None:
    outcome = QuantizeDynamic().apply(copy_of(speech()))
    assert outcome.rewritten == 4 and {each.node for each in outcome.precision} == {  # type: ignore[union-attr]
        "slid_conv", "depth_conv", "logits_matmul",
    }  # fmt: skip


@pytest.mark.slow
def test_what_the_runtime_quantises_by_itself_is_refused_with_the_node(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """DynamicQuantizeLinear makes one scale of all rows: a loud row would change the results of its partners."""
    project = shared_project(tmp_path_factory).copy_to(tmp_path / "project")
    write_stream(project.folder, one_product())
    assert project.build(recipe="stream.yaml", out="float").code == 0
    source, made = project.folder / "stream.onnx", project.folder / "made.onnx"
    onnxruntime.quantization.quantize_dynamic(source, made, op_types_to_quantize=["MatMul"])  # noqa: TID251
    made.replace(source)
    (node,) = [node.name for node in ir.load(source).graph if node.op_type == "DynamicQuantizeLinear"]
    ended = project.build(recipe="stream.yaml", out="integers")
    assert ended.code == 3 and node and node in ended.message and "DynamicQuantizeLinear" in ended.message
