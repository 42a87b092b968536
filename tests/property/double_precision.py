"""Whole graphs in double precision: ONNX's reference evaluator, with operators of our own where it answers wrongly."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from compiler.checker.double_precision import in_double
from compiler.graph.stages import Array


class MaxPool(OpRun):
    """Along one axis, as ONNX Runtime answers: NaN is passed over, and where nothing is left, the lowest number stays.

    The library's own has no answer to NaN alone, nor to some windows that begin in the padding.
    """

    op_domain = ""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int] | None = None,
        **_: object,
    ) -> tuple[Array]:
        lowest = float(np.finfo(np.float32).min)
        wide = np.pad(x, ((0, 0), (0, 0), tuple(pads or (0, 0))), constant_values=lowest)
        windows = np.lib.stride_tricks.sliding_window_view(wide, kernel_shape[0], 2)[:, :, :: strides[0]]
        return (np.fmax.reduce(windows, -1, initial=lowest),)


class Pad(OpRun):
    """Amounts below zero cut entries off, as ONNX Runtime has it; the library's own takes none."""

    op_domain = ""

    def _run(
        self,
        data: Array,
        pads: Array,
        constant_value: Array | None = None,
        axes: Array | None = None,
        mode: str = "constant",
        **_: object,
    ) -> tuple[Array]:
        amounts = {int(at) % data.ndim: pair for at, pair in zip(
            range(data.ndim) if axes is None else axes, np.asarray(pads).reshape(2, -1).T, strict=True)}  # fmt: skip
        both = [amounts.get(at, (0, 0)) for at in range(data.ndim)]
        cut = tuple(
            slice(max(-low, 0), size + min(high, 0)) for (low, high), size in zip(both, data.shape, strict=True)
        )
        added = [(max(low, 0), max(high, 0)) for low, high in both]
        if mode != "constant":
            return (np.pad(data[cut], added, mode=mode),)  # type: ignore[call-overload]
        filler = 0 if constant_value is None else np.asarray(constant_value).reshape(())
        return (np.pad(data[cut], added, constant_values=filler),)


class _Recurrent(OpRun):
    """A recurrence over as many frames as each row has, in either direction; the library's own knows neither."""

    op_domain = ""
    cells = 0

    def step(self, x: Array, h: Array, c: Array, r: Array) -> tuple[Array, Array]:
        """The next state and cell of one row: of the gates' share of the input, state, cell, and recurrent weights."""
        raise NotImplementedError

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        direction: str = "forward",
        **_: object,
    ) -> tuple[Array, ...]:
        (frames, rows, _), (ways, _, size) = x.shape, r.shape
        bias = np.zeros(ways) if b is None else np.sum(np.split(b, 2, axis=1), axis=0)
        y, last = np.zeros((frames, ways, rows, size), x.dtype), np.zeros((2, ways, rows, size), x.dtype)
        for way in range(ways):
            back = direction == "reverse" or way == 1
            for row in range(rows):
                h, c = (np.zeros(size, x.dtype) if each is None else each[way, row] for each in (initial_h, initial_c))
                count = frames if lengths is None else int(lengths[row])
                for at in reversed(range(count)) if back else range(count):
                    h, c = self.step(x[at, row] @ w[way].T + bias[way], h, c, r[way])
                    y[at, way, row] = h
                last[:, way, row] = h, c
        return (y, *last[: 1 + self.cells])


class RNN(_Recurrent):
    def step(self, x: Array, h: Array, c: Array, r: Array) -> tuple[Array, Array]:
        return np.tanh(x + h @ r.T), c


class GRU(_Recurrent):
    def step(self, x: Array, h: Array, c: Array, r: Array) -> tuple[Array, Array]:
        (xz, xr, xn), (rz, rr, rn) = np.split(x, 3), np.split(r, 3)
        update, reset = _sigmoid(xz + h @ rz.T), _sigmoid(xr + h @ rr.T)
        return (1 - update) * np.tanh(xn + (reset * h) @ rn.T) + update * h, c


class LSTM(_Recurrent):
    cells = 1

    def step(self, x: Array, h: Array, c: Array, r: Array) -> tuple[Array, Array]:
        entered, shown, kept, new = np.split(x + h @ r.T, 4)
        c = _sigmoid(kept) * c + _sigmoid(entered) * np.tanh(new)
        return _sigmoid(shown) * np.tanh(c), c


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class InDouble:
    """A model in double precision."""

    def __init__(self, model: ir.Model) -> None:
        self.evaluator = ReferenceEvaluator(
            in_double(ir.serde.serialize_model(model)), new_ops=[MaxPool, Pad, RNN, GRU, LSTM]
        )

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in the order of `names`; all where that is None."""
        double = {name: each.astype(np.float64) if each.dtype == np.float32 else each for name, each in feeds.items()}
        with np.errstate(all="ignore"):
            return [np.asarray(each) for each in self.evaluator.run(names, double)]
