"""Operators whose spelling or meaning has changed from one operator set to another."""

import numpy as np
import onnx_ir as ir

from compiler import ir as graphs
from tests.property.garden import WIDTH, Garden, Kinds, since
from tests.property.spelling import Attribute

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _share(garden: Garden) -> None:
    """Softmax and its like: over one axis since opset 13, over all from it on before."""
    found = garden.pick()
    op, axis = str(garden.rng.choice(["Softmax", "LogSoftmax", "Hardmax"])), int(garden.rng.integers(1, 3))
    data = _in_steps(garden, found.value) if op == "Hardmax" else found.value
    garden.keep(garden.op(op, [data], {"axis": axis}), found.frames_last)


def _in_steps(garden: Garden, value: ir.Value) -> ir.Value:
    """In steps, at no round number: which of two entries is larger that are equal but for rounding decides nothing."""
    scaled = garden.op("Mul", [value, garden.scalar(7.3, FLOAT)])
    return garden.op("Floor", [garden.op("Add", [scaled, garden.scalar(0.31, FLOAT)])])


def _clip(garden: Garden) -> None:
    found = garden.pick()
    bounds = [garden.scalar(n, FLOAT) for n in garden.rng.choice([[-1.0, 1.0], [0.0, 2.0], [0.5, 0.7]])]
    garden.keep(garden.op("Clip", [found.value, *bounds]), found.frames_last)


def _batch_norm(garden: Garden) -> None:
    found = garden.pick(True)
    spread = garden.insert.constant(np.abs(garden.rng.standard_normal(WIDTH)).astype(np.float32) + 0.5, "w")
    inputs = [found.value, *(garden.weights(WIDTH) for _ in range(3)), spread]
    garden.keep(garden.op("BatchNormalization", inputs), True)


def _top(garden: Garden) -> None:
    """Channels in the order of their size."""
    found = garden.pick(False)
    inputs = [found.value, garden.insert.int64s(WIDTH)]
    garden.keep(garden.several("TopK", inputs, {"axis": 2}, [FLOAT, INT64])[0], False)


def _split(garden: Garden) -> None:
    found = garden.pick(False)
    a, b = garden.several("Split", [found.value, garden.insert.int64s(1, 3)], {"axis": 2}, [FLOAT, FLOAT])
    garden.keep(garden.op("Concat", [b, a], {"axis": 2}), False)


def _largest(garden: Garden) -> None:
    """Where the largest entry of the frames, or of the channels, lies."""
    found = garden.pick()
    place = garden.whole("ArgMax", [_in_steps(garden, found.value)], axis=int(garden.rng.integers(1, 3)), keepdims=1)
    garden.keep(garden.op("Add", [found.value, garden.op("Cast", [place], {"to": FLOAT})]), found.frames_last)


def _dropout(garden: Garden) -> None:
    found = garden.pick()
    garden.keep(garden.op("Dropout", [found.value, garden.scalar(0.1, FLOAT)]), found.frames_last)


def _twice(garden: Garden) -> None:
    """Every frame twice, or frames between neighbours."""
    found = garden.pick(True)
    scales = garden.insert.constant(np.array([1.0, 1.0, 2.0], np.float32), "scales")
    told: dict[str, Attribute] = {"mode": str(garden.rng.choice(["nearest", "linear"]))}
    if garden.opset < 10:
        return garden.keep(garden.op("Upsample", [found.value, scales], told), True)
    if garden.opset < 11:
        return garden.keep(garden.op("Resize", [found.value, scales], told), True)
    told |= {"coordinate_transformation_mode": "asymmetric"}
    told |= {"nearest_mode": "floor"} if told["mode"] == "nearest" else {}
    none = garden.insert.constant(np.zeros(0, np.float32), "roi") if garden.opset < 13 else None
    return garden.keep(garden.op("Resize", [found.value, none, scales], told), True)


def _last_frames(garden: Garden) -> None:
    """Cuts with bounds that do not change."""
    found = garden.pick(False)
    bounds = [(-2, graphs.END), (0, -1), (1, graphs.END)][int(garden.rng.integers(0, 3))]
    given = [garden.insert.int64s(n) for n in (*bounds, 1)]
    garden.keep(garden.op("Slice", [found.value, *given]), False)


@since(23)
def _rms_norm(garden: Garden) -> None:
    found = garden.pick(False)
    garden.keep(garden.op("RMSNormalization", [found.value, garden.weights(WIDTH)], {"axis": -1}), False)


OPSET_KINDS: Kinds = (
    (_share, 3), (_clip, 1.5), (_batch_norm, 1.5), (_top, 1), (_split, 1), (_largest, 1), (_dropout, 1), (_twice, 1.5),
    (_last_frames, 1.5), (_rms_norm, 2),
)  # fmt: skip
"""What grows in graphs of old operator sets, and of the newest."""
