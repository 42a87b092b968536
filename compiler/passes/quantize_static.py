"""Quantises MatMuls and convolutions with constant weights to 8-bit integers, with scales fixed by calibration.

Before:
    y = MatMul(x [batch, 16, 256], W [256, 2048]) + b
After:
    y = MatMul(DQ(Q(x)), DQ(W8)) + b'          # W8 int8 with a scale per output channel, x uint8 with one scale
    y = DQ(Q(Relu(Conv(DQ(Q(x)), DQ(W8), DQ(b32)))))

Requires: calibration data; symbolic shapes.
Ensures: the rows of a batch are independent, proved anew on the graph as it is afterwards.
Keeps: layers that the recipe pins, and, where the task minds all of them together, those that it asks for: ranked by
    what quantising each alone does to the outputs, decided by the task's distance on the development data. Softmax,
    normalisation, residual sums and products of two computed values stay in float.
Numerics: rounds. Scales are constant, so a row's result does not depend on its partners.
Source: Q/DQ as ONNX Runtime and vendors read it; ranges by the error behind the consumers, weights clipped by the
    square error weighted with E[x^2], bias corrected by E[W x - W_q x_q] (Nagel et al. 2019).
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from compiler.calib.noise import decibels
from compiler.calib.watched_streams import calibration_of
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.numerics.quantization.choice import Chosen, choose, pinned_layers
from compiler.numerics.quantization.placement import CPU, Placement
from compiler.numerics.quantization.plans import Plan, make_plans, ranges_chosen
from compiler.numerics.quantization.recording import inputs_of, record
from compiler.numerics.quantization.sensitivity import sensitivities
from compiler.numerics.quantization.weighted_layers import PINS, find_layers, left_out
from compiler.numerics.quantization.writer import Writer
from compiler.proof.propagation.rows_alone import prove_rows


@dataclasses.dataclass(frozen=True)
class QuantizeStatic:
    """Integers with fixed grids.

    Attributes:
        placement: the target's rules; recipes write their name.
        pins: kinds of layers that stay in float.
        keep_float: what stays in float in any case: names with wildcards, `op:Conv`, `scope:layers.0`.
        max_task_increase: largest distance of the task's results on the development data from the original's.
    """

    placement: Placement = CPU
    pins: tuple[str, ...] = PINS
    keep_float: tuple[str, ...] = ()
    max_task_increase: float = 0.01

    name: ClassVar[str] = "quantize_static"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True

    def apply(self, lowered: Lowered) -> Outcome:
        """Quantize layers with calibrated scales; see the module docstring.

        Raises:
            Refused: there are no calibration data, the first call is a graph of its own, no choice satisfies the task,
                or rows would depend on each other.
            DataError: the calibration data never exercise a value.
        """
        check_pins(self.pins)
        graphs.infer_shapes(lowered.model)
        placement = self.placement
        layers = find_layers(lowered.model)
        pins = pinned_layers(layers, lowered.data_outputs, placement, self.pins, self.keep_float)
        free = [layer for layer in layers if layer.name not in pins]
        if not free:
            return Outcome(lowered, precision=tuple(pins.values()))
        calibration = calibration_of(lowered, otherwise="use quantize_dynamic, which needs none")
        table = record(lowered, inputs_of(free), calibration.streams)
        plans = make_plans(free, table, placement)

        def losses_of() -> Mapping[str, float]:
            return sensitivities(lowered, plans, placement, calibration.streams)

        def distance_of(names: frozenset[str]) -> float | None:
            copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
            _write(copy, names, placement, plans)
            return calibration.task_distance(copy)

        chosen = choose(free, losses_of, distance_of, self.max_task_increase)
        ranges = ranges_chosen([layer for layer in free if layer.name in chosen.quantised], plans, table)
        _write(lowered, chosen.quantised, placement, plans)
        proof = () if lowered.batch_axis is None else (prove_rows(lowered),)
        return Outcome(
            lowered,
            matched=len(layers),
            rewritten=len(chosen.quantised),
            refused=tuple(left_out(lowered.model)),
            records=proof,
            detail=f"{table.calls} calls, table {table.digest[:12]}{_words(chosen)}",
            precision=(*pins.values(), *chosen.pins, *ranges),
        )


def _words(chosen: Chosen) -> str:
    """Return the distance of the task as text, with the losses of quantized layers where they were ranked."""
    if chosen.distance is None:
        return ""
    said = f", task {chosen.distance:.4f} from the original's in {chosen.evaluations} evaluations"
    losses = {name: chosen.losses[name] for name in chosen.quantised if name in chosen.losses}
    if not losses:
        return said
    loudest = max(losses, key=losses.__getitem__)
    predicted, most = decibels(sum(losses.values())), decibels(losses[loudest])
    return f"{said}, {predicted:.1f} dB predicted, {most:.1f} dB of them by {loudest}"


def _write(lowered: Lowered, names: frozenset[str], placement: Placement, plans: Mapping[str, Plan]) -> None:
    """Replace the named layers by their quantized forms."""
    layers = [layer for layer in find_layers(lowered.model) if layer.name in names]
    Writer(lowered.model, QuantizeStatic.name, placement, plans).write(layers)


def check_pins(pins: tuple[str, ...]) -> None:
    """Refuse unknown pins.

    Raises:
        Refused: a pin is unknown; the message lists the known ones.
    """
    for pin in pins:
        if pin not in PINS:
            raise Refused(f"expected pins of {sorted(PINS)}, got {pin!r}", cure="write some of them, or keep_float")
