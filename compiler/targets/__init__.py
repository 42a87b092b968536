"""The targets by name."""

from compiler.targets.base import Target
from compiler.targets.null import Null
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.tensorrt.target import Tensorrt

TARGETS: dict[str, type[Target]] = {"onnx_static": OnnxStatic, "null": Null, "tensorrt": Tensorrt}
