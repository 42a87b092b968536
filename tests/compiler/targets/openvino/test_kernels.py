"""Which products run on integers: those that OpenVINO says, by the names of the graph file."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.targets.openvino.kernels import integer_products
from compiler.targets.openvino.target import Openvino
from tests.kit.graphs import parse


@pytest.mark.parametrize(
    "behind", ["r = Relu(h)", "r = Identity(h)", "b = Add(h, scales)  r = Relu(b)", "r = Add(h, x)"]
)
def test_a_product_between_roundings_runs_on_integers_and_one_of_real_numbers_does_not(
    behind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    text = f"""(float[rows,64] x, float scale, uint8 zero, int8[64,64] codes, float[64,64] real, float[64] scales)
        => (float[rows,64] y) {{
        q = QuantizeLinear(x, scale, zero)  d = DequantizeLinear(q, scale, zero)
        w = DequantizeLinear<axis = 1>(codes, scales)
        h = MatMul(d, w)  {behind}  y = MatMul(r, real) }}"""
    constants: dict[str, Array] = {
        "scale": np.array(0.02, np.float32),
        "zero": np.array(128, np.uint8),
        "codes": rng.integers(-127, 128, (64, 64)).astype(np.int8),
        "real": rng.standard_normal((64, 64)).astype(np.float32),
        "scales": rng.uniform(0.01, 0.02, 64).astype(np.float32),
    }
    model = parse(text, constants)
    names = [node.name for node in model.graph if node.op_type == "MatMul"]
    file = tmp_path / "net.onnx"
    file.write_bytes(graphs.serialized(model))
    found = Openvino().integer_products(file)
    assert [name in found for name in names] == [True, False], found


def test_a_product_keeps_its_name_where_openvino_adds_to_it() -> None:
    def node(**told: str) -> SimpleNamespace:
        info = {key: SimpleNamespace(astype=lambda _, value=value: value) for key, value in told.items()}
        return SimpleNamespace(get_rt_info=lambda: info)

    nodes = [
        node(layerType="FullyConnected", runtimePrecision="u8", originalLayersNames="a/DequantizationMultiply,bias"),
        node(layerType="MatMul", runtimePrecision="f32", originalLayersNames="b"),
        node(layerType="Eltwise", runtimePrecision="u8", originalLayersNames="c"),
    ]
    assert integer_products(SimpleNamespace(get_ops=lambda: nodes)) == {"a", "bias"}
