"""Quantises MatMuls of data with cached states or tables to 8-bit integers, with scales fixed by calibration.

Before:
    scores = MatMul(queries, Concat(cached keys, new keys));  heard = MatMul(Softmax(scores), Concat(cached, new))
After:
    scores = MatMul(DQ(Q(queries)), DQ(Q(Concat(cached keys, new keys))))         # queries uint8, keys int8

Requires: calibration data; states apart, as packed ones have no grid in common; carry_codes behind it, without which
    every call quantises whole windows. It comes before quantize_static: once other products round as well, the error of
    attention alone cannot be measured.
Ensures: outputs keep sqnr_db and, where there is a task, its results; rows are independent, proved anew.
Keeps: all such products of the results of a Softmax, where with them the figures are missed; then all.
Numerics: rounds, each operand to the nearest of 256 steps of one scale.
Source: shares of a Softmax need a scale of their own, too: on a grid up to 1 flat attention over a window of 144 frames
    has two steps. A CPU multiplies unsigned data with signed keys fastest.
"""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

import onnx_ir as ir

from compiler.calib.noise import decibels
from compiler.calib.watched_streams import calibration_of, noise_between
from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.stages import Calibration, Lowered, Outcome, Refusal
from compiler.numerics.quantization.cached_products import CachedProduct, cached_products
from compiler.numerics.quantization.operand_grids import Grids, grids_of, operands_of
from compiler.numerics.quantization.placement import CPU
from compiler.numerics.quantization.writer import Writer
from compiler.proof.propagation.rows_alone import prove_rows


@dataclasses.dataclass(frozen=True)
class QuantizeAttention:
    """Attention on integers.

    Attributes:
        sqnr_db: least ratio of signal to noise that these roundings may leave in any output on the calibration streams.
        max_task_increase: largest distance of the task's results on the development data from the original's.
    """

    sqnr_db: float = 40.0
    max_task_increase: float = 0.01

    name: ClassVar[str] = "quantize_attention"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True

    def apply(self, lowered: Lowered) -> Outcome:
        """Quantize the operands of attention products with caches; see the module docstring.

        Raises:
            Refused: there are no calibration data, or the first call is a graph of its own.
            DataError: the calibration data never exercise a value.
        """
        graphs.infer_shapes(lowered.model)
        products = cached_products(lowered)
        if not products:
            return Outcome(lowered)
        calibration = calibration_of(lowered)
        grids, ranges = grids_of(lowered, products, calibration.streams)
        without_shares = [product for product in products if not product.of_shares]
        missed = "nothing tried"
        for chosen in [products, without_shares] if len(without_shares) < len(products) else [products]:
            names = frozenset(str(product.node.name) for product in chosen)
            rounded = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
            _write(rounded.model, cached_products(rounded), names, grids)
            worst, fails = self._misses(lowered, rounded, calibration)
            if names and fails is None:
                left = _left(products, names, missed)
                proof = () if rounded.batch_axis is None else (prove_rows(rounded),)
                detail = f"{decibels(worst):.1f} dB of results above their rounding"
                used = tuple(ranges[name] for name in operands_of(chosen))
                return Outcome(rounded, len(products), len(names), left, records=proof, detail=detail, precision=used)
            missed = fails or missed
        return Outcome(lowered, len(products), refused=_left(products, frozenset(), missed))

    def _misses(self, exact: Lowered, rounded: Lowered, calibration: Calibration) -> tuple[float, str | None]:
        """Return the largest noise-to-signal ratio of an output, and which limit is missed, or None."""
        noise = noise_between(exact, rounded, calibration.streams)
        name = max(exact.data_outputs, key=lambda each: noise[each])
        if decibels(noise[name]) < self.sqnr_db:
            return noise[name], f"its rounding leaves {name} {decibels(noise[name]):.1f} dB, not {self.sqnr_db:g}"
        distance = calibration.task_distance(rounded)
        if distance is not None and distance > self.max_task_increase:
            return noise[
                name
            ], f"the task is {distance:.4f} from the original's, and {self.max_task_increase:g} is allowed"
        return noise[name], None


def _write(model: ir.Model, products: Iterable[CachedProduct], names: frozenset[str], grids: Grids) -> None:
    """Quantize the operands of the named products; a shared operand once."""
    writer = Writer(model, QuantizeAttention.name, CPU, {})
    for product in products:
        if str(product.node.name) in names:
            for at, value in enumerate((product.first, product.second)):
                product.node.replace_input_with(at, writer.on_grid(value, grids[str(value.name)]))
    graphs.infer_shapes(model)


def _left(products: Iterable[CachedProduct], names: frozenset[str], reason: str) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(reason, Location(node=str(product.node.name), op="MatMul", source=graphs.source_of(product.node)))
        for product in products
        if str(product.node.name) not in names
    )
