"""Estimates the error that a pass's rounding can cause in each subgraph.

The graph before the pass is run on values that are perturbed by as much as the element type rounds. The error that a
subgraph returns then is the error that a correct subgraph may have: it includes the subgraph's conditioning,
cancellation and saturation. The finest class is float32 with slack for sums in another order.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.calib.noise import rms
from compiler.graph.runners.forced_values import Bench, TeacherForcedRun
from compiler.graph.runners.instrumented import FORCED, forced
from compiler.graph.stages import Array, Lowered


class Rounding(enum.Enum):
    """The coarsest element type in a section; the value is the relative size of one rounding."""

    FLOAT32 = 2.0**-20
    FLOAT16 = 2.0**-11
    BFLOAT16 = 2.0**-8
    INT8 = 1 / 255
    INT4 = 1 / 15

    @property
    def is_scaled(self) -> bool:
        """Whether numbers are rounded to steps of the tensor's range, not of their own magnitude."""
        return self in (Rounding.INT8, Rounding.INT4)

    def noise(self, array: Array, rng: np.random.Generator) -> Array:
        """Return a copy with finite numbers changed by about one rounding step."""
        counted = is_counted(array)
        kept, off = array[counted].astype(np.float64), rng.uniform(-1.0, 1.0, int(counted.sum()))
        if self.is_scaled:
            span = float(kept.max(initial=0.0)) - float(kept.min(initial=0.0))
            kept += 0.5 * self.value * span * off
        else:
            kept *= 1.0 + self.value * off
        found = array.copy()
        found[counted] = kept
        return found


FILLS = (1e30, 65504.0)
"""What masks fill with: numbers of at least the first size, or of exactly the second, tell nothing about rounding."""


def is_counted(array: Array) -> npt.NDArray[np.bool_]:
    """Return where an array holds finite numbers that are no fill values."""
    with np.errstate(invalid="ignore"):
        size = np.abs(array)
        return np.asarray(np.isfinite(array) & (size < FILLS[0]) & (size != FILLS[1]))


QUANTIZED = ("quantize", "qlinear", "integer", "nbits")
"""Parts of the names of operators that compute on quantised numbers or make them."""


def rounding_of(nodes: Iterable[ir.Node]) -> Rounding:
    """Return the coarsest rounding among nodes."""
    coarsest = Rounding.FLOAT32
    for node in nodes:
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
        if any(part in node.op_type.lower() for part in QUANTIZED):
            four = node.op_type == "MatMulNBits" or bool(types & {ir.DataType.INT4, ir.DataType.UINT4})
            coarsest = max(coarsest, Rounding.INT4 if four else Rounding.INT8, key=_coarseness)
        if ir.DataType.FLOAT16 in types:
            coarsest = max(coarsest, Rounding.FLOAT16, key=_coarseness)
        if ir.DataType.BFLOAT16 in types:
            coarsest = max(coarsest, Rounding.BFLOAT16, key=_coarseness)
    return coarsest


def _coarseness(rounding: Rounding) -> float:
    return rounding.value


class ExplainedError:
    """Measures what roundings explain.

    Args:
        before: the graph before the pass.
        roundings: of every section of the graph after, by the value that it ends in.
        names: the values between sections.
    """

    def __init__(self, before: Lowered, roundings: Mapping[str, Rounding], names: Sequence[str]) -> None:
        self.roundings, self.names = roundings, names
        self.bench = Bench(forced(before, names))
        self.explained = dict.fromkeys(names, 0.0)

    def measure(self, forced_run: TeacherForcedRun) -> None:
        """Update the errors by those of one call; the largest counts."""
        for rounding in sorted(set(self.roundings.values()), key=_coarseness):
            rng = np.random.default_rng(forced_run.step)
            self.bench.continue_at(forced_run.lengths)
            feed, states, more = (
                {name: _off(array, rounding, rng) for name, array in arrays.items()}
                for arrays in (
                    forced_run.feed,
                    forced_run.before_states,
                    {f"{FORCED}{n}": forced_run.before[n] for n in self.names},
                )
            )
            got = self.bench.call(feed, states, more)
            for name in self.names:
                if self.roundings[name] is rounding:
                    right = forced_run.before[name]
                    counted = is_counted(right) & is_counted(got[name])
                    error = rms(got[name][counted].astype(np.float64) - right[counted])
                    error += rms(_off(right, rounding, rng)[counted] - right[counted])
                    self.explained[name] = max(self.explained[name], error)

    def of(self, name: str, signal: float) -> float:
        """Return the root mean square error that rounding explains in a section, given that of its value."""
        return max(self.explained.get(name, 0.0), self.roundings[name].value * signal)


def _off(array: Array, rounding: Rounding, rng: np.random.Generator) -> Array:
    return rounding.noise(array, rng) if array.dtype.kind == "f" else array
