"""Compares the graph after a pass with the original, on chained calls and edge feeds, and finds the nodes to blame."""

from collections.abc import Callable, Sequence
from pathlib import Path

from compiler.build.capture.original import Original
from compiler.build.culprits.failure_message import explained
from compiler.build.verify.differences import Difference, compare, worst_of
from compiler.build.verify.edge_agreement import EDGE_CURE, first_disagreement, limits_at_edges
from compiler.build.verify.gates.parity import class_cure, parity_findings, require_parity
from compiler.errors import GateFailed, Location
from compiler.graph.runners.choose import runner_of, runners_of
from compiler.graph.runners.stream import Advance, CallRunner, OriginalCall
from compiler.graph.stages import Lowered
from compiler.recipe.gates import Tolerance

PASS_STEPS = 12
"""Chained steps compared after each pass: enough to overflow a window of 128 frames by chunks of 16."""

ROUNDED = (
    "the exported graph differs before any pass has touched it, the model answers alike twice, and node for node the "
    "graph is the model's: kernels of torch and ONNX Runtime round differently"
)

ROUNDING_PASS_CURE = (
    "numbers are rounded on purpose, and on these data by more than gates.parity.<graph>.lossy allows: let "
    "smooth_channels run in front, keep nodes in float with keep_float or a larger sqnr_db, calibrate with "
    "data that reach as far as the verification data do, or allow more"
)

ROUNDING_CURE = f"{ROUNDED}; compare with a looser max_abs"


class PassParity:
    """What every pass of one graph is held to.

    Args:
        original: the captured graph and the reference.
        failures: folder for the reproducer of a gate that fails, or None.
    """

    def __init__(self, original: Original, failures: Path | None) -> None:
        self.original, self.failures = original, failures
        self.name, self.gate = original.name, original.gate

    def steps(self) -> list[OriginalCall]:
        """Return the original's calls with which a graph is compared after every pass."""
        return self.original.steps(min(PASS_STEPS, self.gate.chained_steps))

    def compare(
        self, stage: str, before: Lowered, after: Lowered, advance: Advance, *, was_rounded: bool, is_rounded: bool
    ) -> tuple[Difference, float]:
        """Return the largest difference after a pass, and its limit.

        Args:
            stage: the pass.
            before: the graph before the pass.
            after: the graph after the pass.
            advance: called with the progress of the search for nodes to blame.
            was_rounded: whether an earlier pass rounds on purpose.
            is_rounded: whether an earlier pass or this one does.

        Raises:
            GateFailed: the difference exceeds its limit; the message names the pass and the nodes.
        """
        steps = self.steps()
        limits = self.gate.limits(lossy=is_rounded)
        try:
            fresh = runners_of(after)
            differences = compare(after, fresh(), steps)
        except Exception:
            self.require_captured(before, steps, limits)
            raise
        worst = worst_of(differences, limits)
        if worst.holds(limits):
            allowed = (limits_at_edges(self.gate, lossy=was_rounded), limits_at_edges(self.gate, lossy=is_rounded))
            self._compare_edges(stage, before, after, fresh, allowed, advance)
            return worst, worst.limit(limits)
        self.require_captured(before, steps, limits)
        error = GateFailed(
            f"expected {worst.tensor} after {stage} {worst.exceeded(limits)}",
            cure=class_cure(self.name, limits)
            if worst.classes is not None
            else ROUNDING_PASS_CURE
            if is_rounded
            else f"remove {stage} from the recipe's passes and report it; it is the pass that broke parity",
            place=Location(stage=stage, graph=self.name, tensor=worst.tensor),
            findings=parity_findings(self.name, differences, limits, after.parts),
        )
        raise self.explain(error, before, after, steps, limits, advance)

    def require_captured(self, captured: Lowered, steps: Sequence[OriginalCall], limits: Tolerance) -> None:
        """Require that the captured graph agrees with the original.

        Raises:
            SlipwayError: it differs, by a fault of the original or of the exporter, or by rounding.
        """
        try:
            differences = compare(captured, runner_of(captured), steps)
            worst = worst_of(differences, limits)
            if worst.holds(limits):
                return
            last = worst.worst_step
        except Exception as error:
            if (fault := self.original.fault([step.feed for step in steps])) is not None:
                raise fault from error
            raise
        if (fault := self.original.fault([step.feed for step in steps[: last + 1]])) is not None:
            raise fault
        require_parity(self.name, "capture", differences, limits, ROUNDING_CURE)

    def _compare_edges(
        self, stage: str, before: Lowered, after: Lowered, fresh: Callable[[], CallRunner],
        allowed: tuple[Tolerance, Tolerance], advance: Advance,
    ) -> None:  # fmt: skip
        """Compare a graph with the original on edge feeds, with a tolerance before and after the pass."""
        cases, (was, limits) = self.original.edges(), allowed
        disagreement = first_disagreement(after, fresh, cases, limits)
        if disagreement is None:
            return
        earlier = first_disagreement(before, runners_of(before), [disagreement.case], was)
        if earlier is not None:
            if (fault := self.original.fault([step.feed for step in earlier.case.steps])) is not None:
                raise fault
            raise earlier.failure(self.name, "capture", f"{ROUNDED}; {EDGE_CURE}")
        blame = f"remove {stage} from the recipe's passes and report it; it is the pass that broke this"
        if limits is not self.gate:
            blame = f"{stage} rounds on purpose, and not to a finite number here: keep the nodes named in float"
        error = disagreement.failure(self.name, stage, f"{blame}; {EDGE_CURE}")
        raise self.explain(error, before, after, disagreement.case.steps, limits, advance)

    def explain(
        self, error: GateFailed, before: Lowered, after: Lowered, steps: Sequence[OriginalCall], limits: Tolerance,
        advance: Advance, *, optimize: bool = False,
    ) -> GateFailed:  # fmt: skip
        """Extend a gate's error by the nodes to blame.

        Args:
            error: the error to explain.
            before: a graph that passes the gate.
            after: the graph that fails it.
            steps: the calls.
            limits: the tolerance.
            advance: called with the search's progress.
            optimize: whether the runtime may rewrite the graphs, as it does with shipped graphs.
        """
        return explained(error, before, after, steps, limits, self.failures, optimize=optimize, advance=advance)
