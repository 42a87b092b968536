"""Lowers nodes to half precision as far as the outputs keep their accuracy on calibration data.

Before:
    h = MatMul(x, w); s = Add(x, h); y = LayerNormalization(s, gamma, beta)      # s reaches 90 000
After:
    h = MatMul(half x, half w)                                                    # in float16
    s = Add(x, Cast(h)); y = Cast(LayerNormalization(s, gamma, beta))             # an island in float32

Calibration streams are run once with every value watched: a value that half precision cannot hold forces its producer
and its readers into float32. Then each node alone is rounded for a call or two, which predicts the effect of its
rounding on the results. A minimum cut chooses the islands: time saved against noise, casts paid once per value and
type. The choice is run on the streams in emulated half precision, and made again with a smaller budget while it misses
its figures.

Requires: calibration data; one graph, so merge_first_call comes before, as does what looks for float32 patterns.
Ensures: every operator's operands agree in type; one Cast per value and type; results keep float32.
Keeps: integers, float64, operators without a half form, nodes that the recipe pins: `float32: [op:Softmax,
    scope:layers.0]`.
Numerics: rounds, to at least `sqnr_db` between the outputs and states before and after on the calibration streams.
    Every node is taken to add in float32 and store in half precision, as tensor cores do.
Source: the additive noise model and the cut are of this project (compiler/numerics/precision/cut.py); thresholds on
    single values, as ModelOpt AutoCast has, and bisection of a prefix, as Polygraphy has, are what benchmarks compare
    with.
"""

import dataclasses
import math
from typing import ClassVar

import onnx_ir as ir

from compiler.calib.magnitudes import largest_magnitudes
from compiler.calib.noise import decibels, share_of
from compiler.calib.quantized_pairs import without_quantized_pairs
from compiler.calib.rounding_noise import rounding_noise
from compiler.calib.watched_streams import calibration_of, noise_between
from compiler.errors import GateFailed, RecipeError
from compiler.graph import model as graphs
from compiler.graph.stages import Calibration, Lowered, Outcome
from compiler.numerics.precision.float32_nodes import Plan, Planner
from compiler.numerics.precision.write import write_types

KINDS = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}

PROBED_CALLS = 2
"""Calls on which each node is rounded alone: the last of two streams, when caches are full."""

VERIFICATIONS = 6
"""Most tries of a choice on all calibration streams; with the watched run that is seven runs over the data."""


TIGHTER = 1.25
"""How much less noise than it needs a choice is asked for after one that has missed its figures."""


@dataclasses.dataclass(frozen=True)
class LowerPrecision:
    """Half precision with float32 islands.

    Attributes:
        type: `float16` or `bfloat16`.
        sqnr_db: least ratio of signal to noise that rounding may leave in any output and state, in dB.
        headroom: how many times larger than in calibration a value may become without overflow.
        max_task_increase: how much the task's metric may differ from the original's results on the data to choose
            on.
        float32: what stays in float32 in any case, by name, `op:` or `scope:`, with wildcards.
    """

    name: ClassVar[str] = "lower_precision"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = True
    type: str = "float16"
    sqnr_db: float = 40.0
    headroom: float = 2.0
    max_task_increase: float = 0.002
    float32: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the options."""
        if self.type not in KINDS:
            raise RecipeError(f"type: expected one of {sorted(KINDS)}, got {self.type!r}", cure="change the value")
        if self.headroom < 1.0:
            raise RecipeError(f"headroom: expected 1 or more, got {self.headroom:g}", cure="change the value")

    def apply(self, lowered: Lowered) -> Outcome:
        """Choose which nodes run in half precision, and rewrite them; see the module docstring.

        Raises:
            Refused: there are no calibration data, or the first call is a graph of its own.
            RecipeError: a pin matches no node.
            GateFailed: no choice keeps the required figures.
        """
        calibration = calibration_of(lowered)
        streams = calibration.streams
        kind = KINDS[self.type]
        plain = without_quantized_pairs(lowered)
        magnitudes, feeds = largest_magnitudes(plain, streams)
        noise = rounding_noise(plain.model, kind, feeds[:PROBED_CALLS])
        planner = Planner(lowered, kind, magnitudes, noise, self.headroom, self.float32)
        wanted = share_of(self.sqnr_db)
        budget = wanted
        for tries in range(1, VERIFICATIONS + 1):
            plan = planner.plan(budget)
            after = write_types(plain, plan.float32, kind) if plain is not lowered else None
            rounded = write_types(lowered, plan.float32, kind)
            measured = max(noise_between(plain, after or rounded, streams).values(), default=0.0)
            if measured <= wanted and self._keeps_task(calibration, rounded):
                return self._outcome(rounded, planner, plan, measured, tries)
            if plan.noise == 0.0:
                break
            budget = plan.noise / max(TIGHTER, TIGHTER * measured / wanted)
        raise GateFailed(
            f"expected {self.type} with at most {-self.sqnr_db:g} dB of noise on the calibration data, got "
            f"{_decibels(measured)} dB with {len(plan.pins)} of {len(planner.graph_nodes)} nodes in float32",
            cure="lower sqnr_db, raise max_task_increase, or pin what matters under float32",
        )

    def _keeps_task(self, calibration: Calibration, rounded: Lowered) -> bool:
        distance = calibration.task_distance(rounded)
        return distance is None or distance <= self.max_task_increase

    def _outcome(self, rounded: Lowered, planner: Planner, plan: Plan, measured: float, tries: int) -> Outcome:
        casts = sum(node.op_type == "Cast" and node.metadata_props.get(graphs.PASS_KEY) == self.name
                    for node in rounded.model.graph)  # fmt: skip
        total = len(planner.graph_nodes)
        detail = (
            f"{total - len(plan.pins)} of {total} nodes in {self.type}, {len(plan.pins)} stay float32, {casts} casts; "
            f"{_decibels(measured)} dB (predicted {_decibels(plan.noise)}) after {tries + 1} runs over the data and "
            f"{len(planner.noise)} probes"
        )
        return Outcome(rounded, total, total - len(plan.pins), detail=detail, precision=plan.pins)


def _decibels(share: float) -> str:
    """Return a signal-to-noise ratio in decibels as text."""
    return "infinitely many" if share == 0.0 else "no" if math.isinf(share) else f"{decibels(share):.1f}"
