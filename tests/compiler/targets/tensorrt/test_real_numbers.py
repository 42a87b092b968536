"""What a quantised graph is without its rounding: the alternative that engines are built of, too."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from compiler.graph.runners.session import run_model
from compiler.targets.tensorrt.target import in_real_numbers
from tests.kit.graphs import parse
from tests.runtime_lite.bundles import replace_hashed
from tests.runtime_lite.engines import write_engine_bundle

QUANTISED = """(float16[2,4] x, int8[4,4] codes, float16 s, int8 z) => (float16[2,4] y) {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    w = DequantizeLinear(codes, s, z)
    p = MatMul(d, w)
    y = Relu(p)
}"""


def test_pairs_are_left_out_and_weights_are_what_they_stand_for(tmp_path: Path) -> None:
    bundle, rng = write_engine_bundle(tmp_path / "bundle"), np.random.default_rng(0)
    assert in_real_numbers(bundle) == {}
    codes = rng.integers(-128, 128, (4, 4)).astype(np.int8)
    constants: dict[str, np.ndarray] = {"codes": codes, "s": np.array(0.125, np.float16), "z": np.array(0, np.int8)}
    file = "graphs/plain.batch1.frames2.onnx"
    replace_hashed(bundle, file, ir.serde.serialize_model(parse(QUANTISED, constants)).SerializeToString())
    ((name, files),) = in_real_numbers(bundle).items()
    assert (name, list(files)) == ("real numbers", [file])
    content = files[file]
    assert isinstance(content, bytes)
    model = ir.from_proto(onnx.ModelProto.FromString(content))
    assert [node.op_type for node in model.graph] == ["MatMul", "Relu"]
    x = rng.standard_normal((2, 4)).astype(np.float16)
    wanted = np.maximum(x.astype(np.float32) @ (codes * 0.125), 0)
    np.testing.assert_allclose(run_model(model, {"x": x})["y"], wanted, rtol=2e-3, atol=2e-2)
