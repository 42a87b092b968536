"""Checks that a target's variants add no more noise than allowed to a graph that is rounded on purpose.

The same graph with variants and without rounds other values up and down, so that the two are as far from each other as
either is from the original. Therefore both are compared with the original, on the same calls, and then their ratios of
signal to noise. The limits of parity leave room for what rounds on purpose, which a variant that says the same in other
operators has no right to. Variants that round on purpose themselves are on both sides.
"""

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.differences import NO_PARTS, Difference, Parts, states_of
from compiler.build.verify.gate import Checked, Gate, Shipped, ShippedGraph
from compiler.errors import GateFailed, Location
from compiler.graph import model as graphs
from compiler.graph.runners.stream import Advance
from compiler.recipe.record import Recipe

LOSS = "parity.max_form_loss_db"

CALLS = 24
"""Chained calls that are compared; of a window of 128 frames and chunks of 16 two thirds have full caches."""

EXACT_DB = 100.0
"""What is so far above its noise counts as exact: sums of float32 in another order leave more than 120 dB, and 16 bits
no more than 98 (6.02 dB per bit and 1.76, of a full sine: W. R. Bennett, Spectra of Quantized Signals, 1948)."""

HALF_DB = {ir.DataType.FLOAT16: 62.0, ir.DataType.BFLOAT16: 44.0}
"""The same for graphs with values of these types, of 11 and of 8 bits: one bit less, by the same formula, because it is
a kernel's own choice which partial sums it rounds as well."""


def variant_findings(
    graph: str,
    complete: Sequence[Difference],
    plain: Sequence[Difference],
    most_db: float,
    parts: Parts = NO_PARTS,
    exact_db: float = EXACT_DB,
) -> Iterator[Finding]:
    """Yield findings on the noise that variants add to every output and state of floats.

    Args:
        graph: the graph's name.
        complete: differences from the original with all forms.
        plain: differences without the variants that are not meant to round.
        most_db: largest loss that holds.
        parts: the model's states by the tensor that they are packed into.
        exact_db: signal-to-noise ratio from which on a tensor counts as exact.
    """
    without = {difference.tensor: difference.sqnr_db for difference in plain}
    for difference in (difference for difference in complete if difference.classes is None):
        ratios = (difference.sqnr_db, without[difference.tensor])
        yield at_most(
            LOSS,
            graph,
            difference.tensor,
            limit=most_db,
            measured=_counted(ratios[1], exact_db) - _counted(ratios[0], exact_db),
            detail=f"{states_of(difference.tensor, parts)}{_words(ratios[0])} with forms, {_words(ratios[1])} without",
            figures={"steps": difference.steps, "sqnr_db": ratios[0], "sqnr_db_without_forms": ratios[1]},
        )


def _counted(sqnr_db: float | None, exact_db: float) -> float:
    return exact_db if sqnr_db is None else min(sqnr_db, exact_db)


def _words(sqnr_db: float | None) -> str:
    return "no noise" if sqnr_db is None else f"{sqnr_db:.1f} dB"


def _lost(finding: Finding) -> float:
    return finding.measured or 0.0


def _exact_db(graph: ShippedGraph) -> float:
    """Return the signal-to-noise ratio in dB that counts as exact, by the least exact type of the graph's values."""
    values = (value for node in graphs.nodes_of(graph.lowered.model) for value in node.outputs)
    return min((HALF_DB[value.dtype] for value in values if value.dtype in HALF_DB), default=EXACT_DB)


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    """Whether a graph is rounded on purpose, and a variant that does not round has changed it."""
    graph = shipped.graph
    changed = {each.variant for each in graph.built.forms if each.rewritten}
    return graph.is_rounded and bool(changed - set(graph.rounding_variants))


def _check(shipped: Shipped, advance: Advance) -> Checked:
    graph, limit = shipped.graph, shipped.original.gate.max_form_loss_db
    complete = graph.artefacts.differences(advance, CALLS)
    with graph.with_variants(graph.rounding_variants) as (_, other):
        plain = other.artefacts.differences(advance, CALLS)
    exact_db = _exact_db(graph)
    findings = list(variant_findings(shipped.name, complete, plain, limit, graph.lowered.parts, exact_db))
    failed = max((finding for finding in findings if not finding.holds), key=_lost, default=None)
    if failed is not None:
        raise GateFailed(
            f"expected {failed.subject} with the target's forms at most {limit:g} dB noisier than without, got "
            f"{failed.measured:.2f} dB: {failed.detail}; the limit is gates.parity.{shipped.name}.max_form_loss_db",
            cure="allow more, or take the form out of the target's forms; forms: [] builds without any",
            place=Location(stage="verify", graph=shipped.name, tensor=failed.subject),
            findings=findings,
        )
    if not findings:
        return Checked([], "forms: nothing in real numbers")
    worst = max(findings, key=_lost)
    return Checked(findings, f"forms: {worst.subject} {worst.detail}")


FORMS = Gate("forms", _check, lambda recipe, graph: (), _wanted, stage="verify")
