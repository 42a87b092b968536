"""The contract every pass keeps, as one function; each broken clause fails under its own name."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.differences import compare, worst_of
from compiler.build.verify.edge_agreement import FINITE, EdgeCase, first_disagreement
from compiler.build.verify.edge_feeds import CALLS, KINDS, Range, edge_feeds
from compiler.build.verify.invariance_check import check_invariance
from compiler.errors import GateFailed, InternalError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import OriginalCall, Runner
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Array, Feed, Lowered, Outcome, Pass
from compiler.recipe.gates import Tolerance
from tests.kit.graphs import copy_of, feeds_of

EDGE = Range(-4.0, 4.0)
"""Of real inputs on edge feeds."""


class ContractBroken(AssertionError):
    """One clause does not hold.

    Args:
        clause: its name: form, signature, stamp, weights, honesty, idempotence, determinism, meaning, edges, rows or
            padding.
        message: what was expected and what came.
    """

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(f"{clause}: {message}")
        self.clause = clause


def verify_pass(
    pass_: Pass, lowered: Lowered, *, tolerance: float, steps: int = 12, origin: Lowered | None = None, rows: int = 2
) -> Outcome:
    """Apply a pass to a copy of a graph and check everything that any pass promises.

    Args:
        pass_: the pass.
        lowered: the graph before it; stays as it is.
        tolerance: largest accepted difference of any output or state, relative to values above 1.
        steps: chained calls; enough to overflow the caches.
        origin: the dynamic graph that is the reference, when earlier passes made `lowered` of it.
        rows: rows of the batched comparisons.

    Returns:
        The outcome on the copy.

    Raises:
        ContractBroken: names the clause.
    """
    before, weights = content_of(lowered), weights_of(lowered.model)
    outcome = pass_.apply(copy_of(lowered))
    after = outcome.lowered
    check_form(after)
    check_signature(lowered, after)
    check_stamps(pass_.name, lowered.model, after.model)
    if weights_of(lowered.model) != weights or content_of(lowered) != before:
        raise ContractBroken("weights", "expected the graph that was copied to stay as it is, got another content")
    check_honesty(outcome, before)
    check_idempotence(pass_, after)
    if content_of(pass_.apply(copy_of(lowered)).lowered) != content_of(after):
        raise ContractBroken("determinism", "expected the same graph from the same graph, got another one")
    for count in (1, rows) if lowered.batch_axis is not None else (1,):
        check_meaning(origin or lowered, after, tolerance, steps, count)
        check_edges(origin or lowered, after, FINITE if pass_.lossy else limits_of(tolerance), count)
    if lowered.batch_axis is not None:
        check_rows(after, steps)
    if after.caches and after.is_padded:
        check_padding(after, steps)
    return outcome


# --- what a graph is --------------------------------------------------------------------------------------------------


def content_of(lowered: Lowered) -> bytes:
    """Everything a pass can change, as bytes: structure, weights and record; inferred shapes are annotations."""
    parts = [repr(dataclasses.replace(lowered, model=None, first_call=None)).encode()]  # type: ignore[arg-type]
    for model in (lowered.model, lowered.first_call):
        if model is not None:
            plain = graphs.clone(model)
            graphs.forget_shapes(plain)
            for node in plain.graph:
                for output in node.outputs:
                    output.metadata_props.clear()
            parts.append(graphs.serialized(plain))
    return b"\0".join(parts)


def weights_of(model: ir.Model) -> dict[str, bytes]:
    """Content of every initializer."""
    return {name: value.const_value.tobytes() for name, value in model.graph.initializers.items() if value.const_value}


def recorded(lowered: Lowered, feeds: Sequence[Feed], rows: int) -> list[OriginalCall]:
    """The calls of a dynamic graph, its caches cut to their newest frames: the reference."""
    runner = runner_of(lowered, rows)
    return [OriginalCall(feed, runner.step(feed), dict(runner.states)) for feed in feeds]


# --- the clauses ------------------------------------------------------------------------------------------------------


def check_form(after: Lowered) -> None:
    """The ONNX checker accepts the graph, and states are inputs and outputs of equal type."""
    try:
        check_between_passes(after)
    except InternalError as error:
        raise ContractBroken("form", str(error)) from error


def check_signature(before: Lowered, after: Lowered) -> None:
    """Data inputs and outputs keep order, name, type and rank; only states, lengths and masks may come and go."""
    for kind in ("inputs", "outputs"):
        old, new = _data(before, kind), _data(after, kind)
        if old != new:
            raise ContractBroken("signature", f"expected {kind} {old}, got {new}")


def _data(lowered: Lowered, kind: str) -> list[tuple[str, str, int | None]]:
    made = {state.input if kind == "inputs" else state.output for state in lowered.states}
    for cache in lowered.caches:
        made |= {cache.length_input, str(cache.mask_input)}
    values = lowered.model.graph.inputs if kind == "inputs" else lowered.model.graph.outputs
    return [
        (str(value.name), str(value.dtype), None if value.shape is None else len(value.shape))
        for value in values
        if value.name not in made
    ]


def check_stamps(name: str, before: ir.Model, after: ir.Model) -> None:
    """New nodes say which pass made them, and of which line of the model, if the old nodes knew theirs."""
    old = {node.name for node in before.graph}
    sourced = all(graphs.source_of(node) for node in before.graph)
    for node in after.graph:
        if node.name in old:
            continue
        if graphs.PASS_KEY not in node.metadata_props:
            raise ContractBroken("stamp", f"expected new node {node.name} stamped with a pass such as {name!r}")
        if sourced and not graphs.source_of(node):
            raise ContractBroken("stamp", f"expected a source line on new node {node.name}")


def check_honesty(outcome: Outcome, before: bytes) -> None:
    """`rewritten` is 0 exactly when graph and record are as before, and nothing is rewritten that did not match."""
    changed = content_of(outcome.lowered) != before
    if changed != bool(outcome.rewritten):
        raise ContractBroken("honesty", f"rewritten is {outcome.rewritten}, yet the graph changed: {changed}")


def check_idempotence(pass_: Pass, after: Lowered) -> None:
    """A second application finds nothing to do."""
    once = content_of(after)
    again = pass_.apply(copy_of(after))
    if again.rewritten or content_of(again.lowered) != once:
        raise ContractBroken("idempotence", f"expected nothing to do the second time, got {again.rewritten} rewrites")


def check_meaning(origin: Lowered, after: Lowered, tolerance: float, steps: int, rows: int) -> None:
    """Every output and every state of chained calls past full caches equals the dynamic graph's."""
    reference = recorded(origin, feeds_of(origin, steps, rows), rows)
    try:
        differences = compare(after, runner_of(after, rows), reference)
    except Exception as error:
        raise ContractBroken("meaning", f"the graph does not run: {error}") from error
    states = {state.output for state in origin.states}
    expected = {str(value.name) for value in origin.model.graph.outputs} - states
    missing = expected - {difference.tensor for difference in differences}
    if missing:
        raise ContractBroken("meaning", f"expected outputs {sorted(missing)}, got none of them")
    limits = limits_of(tolerance)
    worst = worst_of(differences, limits)
    if not worst.holds(limits):
        raise ContractBroken(
            "meaning", f"{worst.tensor} differs by {worst.max_abs:g} in step {worst.worst_step} with {rows} rows"
        )


def limits_of(tolerance: float) -> Tolerance:
    """A tolerance as limits; of an exact pass no difference is small enough."""
    return Tolerance(max_abs=tolerance or sys.float_info.min)


def check_edges(origin: Lowered, after: Lowered, limits: Tolerance, rows: int) -> None:
    """Silence, full scale and their like are answered as by the dynamic graph, infinities and NaN included."""
    feeds = feeds_of(origin, CALLS, rows)
    ranges = {name: EDGE for name, array in feeds[0].items() if array.dtype.kind == "f"}
    cases = [EdgeCase(kind, tuple(recorded(origin, edge_feeds(kind, feeds, ranges), rows))) for kind in KINDS]
    found = first_disagreement(after, lambda: runner_of(after, rows), cases, limits)
    if found is not None:
        raise ContractBroken("edges", str(found.failure(after.graph, "contract", "")))


def check_rows(after: Lowered, steps: int) -> None:
    """What lies in one row of the batch cannot be seen in another, not by a bit."""
    clean, dirty = runner_of(after, 2), runner_of(after, 2)
    for feed in feeds_of(after, min(steps, 4), 2):
        results = []
        for runner, content in ((clean, 0.0), (dirty, np.nan)):
            filled = {name: _with_last_row(array, content) for name, array in feed.items()}
            results.append({name: array[:1] for name, array in runner.step(filled).items()})
        same_bits("rows", *results)


def check_padding(after: Lowered, steps: int) -> None:
    """NaN, infinities and huge values in padded slots and free rows leave every output as it is, bit by bit."""
    rows, feeds = 1, feeds_of(after, steps)
    if after.batch_axis is not None:
        rows, feeds = 3, [{name: array[:1] for name, array in feed.items()} for feed in feeds]
    try:
        check_invariance(Runner(after, open_session(graphs.serialized(after.model)), rows), feeds)
    except GateFailed as error:
        raise ContractBroken("padding", str(error)) from error


def same_bits(clause: str, got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Equal names and equal bytes."""
    for name, array in expected.items():
        if got[name].tobytes() != array.tobytes():
            raise ContractBroken(clause, f"expected {name} bit-identical, got other values")


def _with_last_row(array: Array, content: float) -> Array:
    array = array.copy()
    if array.dtype.kind == "f":
        array[-1] = content
    return array


# --- refusals ---------------------------------------------------------------------------------------------------------


def verify_refusal(
    pass_: Pass, lowered: Lowered, *, message: str, cure: str, op: str = "", axis: str = "", tensor: str = ""
) -> Refused:
    """Apply a pass that must refuse; the message names node, op, axis and source line where there is a node.

    Args:
        pass_: the pass.
        lowered: stays as it is.
        message: part of the sentence.
        cure: part of what to do.
        op: operator of the node.
        axis: axis of the recipe.
        tensor: value, where no node is to blame.
    """
    before = content_of(lowered)
    with pytest.raises(Refused) as raised:
        pass_.apply(copy_of(lowered))
    refused = raised.value
    place = refused.place
    assert message in refused.message, refused
    assert cure in refused.cure, refused
    assert (place.op, place.axis) == (op, axis), refused
    assert place.tensor == tensor or (op and not tensor), refused
    if op:
        assert place.node, refused
        assert place.source.startswith("tiny.py:"), refused
    assert content_of(lowered) == before
    return refused


def verify_untouched(pass_: Pass, lowered: Lowered, *, refused: str = "") -> Outcome:
    """Apply a pass that must leave a graph alone, for the reason given.

    Args:
        pass_: the pass.
        lowered: the twin of a graph that matches.
        refused: part of the reason that the outcome must report, or empty for none.
    """
    before = content_of(lowered)
    outcome = pass_.apply(copy_of(lowered))
    if outcome.rewritten or content_of(outcome.lowered) != before:
        raise ContractBroken("untouched", f"expected the graph left alone, got {outcome.rewritten} rewrites")
    reasons = "; ".join(map(str, outcome.refused))
    assert (refused in reasons) if refused else not reasons, f"expected the reason {refused!r}, got {reasons!r}"
    return outcome
