"""Operators whose spelling or meaning has changed from one operator set to another."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, since
from tests.property.spelling import Attribute

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _share(builder: GraphBuilder) -> None:
    """Softmax and its like: over one axis since opset 13, over all from it on before."""
    found = builder.pick()
    op, axis = str(builder.rng.choice(["Softmax", "LogSoftmax", "Hardmax"])), int(builder.rng.integers(1, 3))
    data = _in_steps(builder, found.value) if op == "Hardmax" else found.value
    builder.keep(builder.op(op, [data], {"axis": axis}), found.frames_last)


def _in_steps(builder: GraphBuilder, value: ir.Value) -> ir.Value:
    """In steps, at no round number: which of two entries is larger that are equal but for rounding decides nothing."""
    scaled = builder.op("Mul", [value, builder.scalar(7.3, FLOAT)])
    return builder.op("Floor", [builder.op("Add", [scaled, builder.scalar(0.31, FLOAT)])])


def _clip(builder: GraphBuilder) -> None:
    found = builder.pick()
    bounds = [builder.scalar(n, FLOAT) for n in builder.rng.choice([[-1.0, 1.0], [0.0, 2.0], [0.5, 0.7]])]
    builder.keep(builder.op("Clip", [found.value, *bounds]), found.frames_last)


def _batch_norm(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    spread = builder.insert.constant(np.abs(builder.rng.standard_normal(WIDTH)).astype(np.float32) + 0.5, "w")
    inputs = [found.value, *(builder.weights(WIDTH) for _ in range(3)), spread]
    builder.keep(builder.op("BatchNormalization", inputs), True)


def _top(builder: GraphBuilder) -> None:
    """Channels in the order of their size."""
    found = builder.pick(False)
    inputs = [found.value, builder.insert.int64s(WIDTH)]
    builder.keep(builder.several("TopK", inputs, {"axis": 2}, [FLOAT, INT64])[0], False)


def _split(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    a, b = builder.several("Split", [found.value, builder.insert.int64s(1, 3)], {"axis": 2}, [FLOAT, FLOAT])
    builder.keep(builder.op("Concat", [b, a], {"axis": 2}), False)


def _largest(builder: GraphBuilder) -> None:
    """Where the largest entry of the frames, or of the channels, lies."""
    found = builder.pick()
    place = builder.whole("ArgMax", [_in_steps(builder, found.value)], axis=int(builder.rng.integers(1, 3)), keepdims=1)
    builder.keep(builder.op("Add", [found.value, builder.op("Cast", [place], {"to": FLOAT})]), found.frames_last)


def _dropout(builder: GraphBuilder) -> None:
    found = builder.pick()
    builder.keep(builder.op("Dropout", [found.value, builder.scalar(0.1, FLOAT)]), found.frames_last)


def _twice(builder: GraphBuilder) -> None:
    """Every frame twice, or frames between neighbours."""
    found = builder.pick(True)
    scales = builder.insert.constant(np.array([1.0, 1.0, 2.0], np.float32), "scales")
    told: dict[str, Attribute] = {"mode": str(builder.rng.choice(["nearest", "linear"]))}
    if builder.opset < 10:
        return builder.keep(builder.op("Upsample", [found.value, scales], told), True)
    if builder.opset < 11:
        return builder.keep(builder.op("Resize", [found.value, scales], told), True)
    told |= {"coordinate_transformation_mode": "asymmetric"}
    told |= {"nearest_mode": "floor"} if told["mode"] == "nearest" else {}
    none = builder.insert.constant(np.zeros(0, np.float32), "roi") if builder.opset < 13 else None
    return builder.keep(builder.op("Resize", [found.value, none, scales], told), True)


def _last_frames(builder: GraphBuilder) -> None:
    """Cuts with bounds that do not change."""
    found = builder.pick(False)
    bounds = [(-2, graphs.END), (0, -1), (1, graphs.END)][int(builder.rng.integers(0, 3))]
    given = [builder.insert.int64s(n) for n in (*bounds, 1)]
    builder.keep(builder.op("Slice", [found.value, *given]), False)


@since(23)
def _rms_norm(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    builder.keep(builder.op("RMSNormalization", [found.value, builder.weights(WIDTH)], {"axis": -1}), False)


OPSET_KINDS: Kinds = (
    (_share, 3), (_clip, 1.5), (_batch_norm, 1.5), (_top, 1), (_split, 1), (_largest, 1), (_dropout, 1), (_twice, 1.5),
    (_last_frames, 1.5), (_rms_norm, 2),
)  # fmt: skip
"""What grows in graphs of old operator sets, and of the newest."""
