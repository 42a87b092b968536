"""Applies the variants of a plan to a graph in which every size, except perhaps the number of rows, is fixed.

A variant that refuses leaves the graph as it was, which is reported; one that produces an illegal graph is a defect,
and fails the build under its name.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from compiler.errors import InternalError, Location, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Lowered, Refusal
from compiler.targets.forms import Variant


@dataclasses.dataclass(frozen=True)
class VariantOutcome:
    """The result of a variant.

    Attributes:
        variant: its name.
        seconds: wall time.
        matched: places that fit it.
        rewritten: places that it changed.
        refused: one reason per place that it left alone, or why it left the whole graph.
        detail: figures for the report.
    """

    variant: str
    seconds: float
    matched: int = 0
    rewritten: int = 0
    refused: tuple[str, ...] = ()
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class GraphWithVariants:
    """A graph after its variants, and what each of them did."""

    lowered: Lowered
    outcomes: tuple[VariantOutcome, ...] = ()


def apply_variants(plan: Sequence[Variant], lowered: Lowered) -> GraphWithVariants:
    """Apply variants one after the other.

    Args:
        plan: the variants that are on.
        lowered: the graph, whose sizes are fixed, except perhaps its rows; not changed.

    Raises:
        InternalError: a variant produces an illegal graph; the message names the variant.
    """
    outcomes = []
    for variant in plan:
        lowered, outcome = _applied(variant, lowered)
        outcomes.append(outcome)
    return GraphWithVariants(lowered, tuple(outcomes))


def _applied(variant: Variant, lowered: Lowered) -> tuple[Lowered, VariantOutcome]:
    started = time.perf_counter()
    try:
        outcome = variant.made.apply(dataclasses.replace(lowered, model=graphs.clone(lowered.model)))
        check_between_passes(outcome.lowered)
        _require_sizes(lowered, outcome.lowered)
    except Refused as refused:
        reason = str(Refusal(refused.message, refused.place))
        return lowered, VariantOutcome(variant.name, time.perf_counter() - started, refused=(reason,))
    except SlipwayError as error:
        raise error.at(stage=variant.name, graph=lowered.graph) from None
    reasons = tuple(map(str, outcome.refused))
    seconds = time.perf_counter() - started
    done = VariantOutcome(variant.name, seconds, outcome.matched, outcome.rewritten, reasons, outcome.detail)
    return outcome.lowered, done


def _require_sizes(before: Lowered, after: Lowered) -> None:
    """Require that a variant leaves fixed shapes fixed, except for an open number of rows.

    The target refuses graphs that had other shapes before the form.

    Raises:
        InternalError: a shape is not fixed; the message names the first.
    """
    if any(True for _ in _without_sizes(before)):
        return
    for node, value in _without_sizes(after):
        raise InternalError(
            f"expected a shape of numbers, got {value.shape} of {value.name}",
            place=Location(node=str(node.name), op=node.op_type, tensor=str(value.name)),
        )


def _without_sizes(lowered: Lowered) -> Iterator[tuple[ir.Node, ir.Value]]:
    rows = {graphs.symbol(str(lowered.batch_axis))}
    for node in lowered.model.graph:
        for value in node.outputs:
            dims = graphs.dims_of(value)
            if dims is None or any(not isinstance(dim, int) and not dim.free_symbols <= rows for dim in dims):
                yield node, value


def outcomes_of(graphs: Iterable[GraphWithVariants]) -> tuple[VariantOutcome, ...]:
    """Return the outcome of each variant over all graphs of one plan: largest count, distinct reasons, summed times."""
    return tuple(_together(alike) for alike in zip(*(each.outcomes for each in graphs), strict=True))


def _together(alike: Sequence[VariantOutcome]) -> VariantOutcome:
    most = max(alike, key=lambda each: (each.rewritten, each.matched))
    reasons = tuple(dict.fromkeys(reason for each in alike for reason in each.refused))
    files = f"in {sum(each.rewritten > 0 for each in alike)} of {len(alike)} files" if len(alike) > 1 else ""
    detail = ", ".join(each for each in (most.detail, files) if each)
    return dataclasses.replace(most, seconds=sum(each.seconds for each in alike), refused=reasons, detail=detail)
