"""Lists the targets by name; only this module of the compiler names a vendor outside the vendor's folder."""

from compiler.numerics.quantization.placement import Placement
from compiler.targets.base import Target
from compiler.targets.ethos_u.target import EthosU
from compiler.targets.null import Null
from compiler.targets.onnx_cuda import OnnxCuda
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.openvino.target import Openvino
from compiler.targets.qnn.target import Qnn
from compiler.targets.tensorrt.rtx_target import TensorrtRtx
from compiler.targets.tensorrt.target import Tensorrt

TARGETS: dict[str, type[Target]] = {
    each.name: each for each in (EthosU, Null, OnnxCuda, OnnxStatic, Openvino, Qnn, Tensorrt, TensorrtRtx)
}


def placements() -> dict[str, Placement]:
    """Return the placement rules for QuantizeLinear and DequantizeLinear, by their name in recipes."""
    return {kind.placement.name: kind.placement for kind in TARGETS.values() if kind.placement is not None}
