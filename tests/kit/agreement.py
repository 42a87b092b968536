"""One graph through prover, checker and comparison: proved by all three, or refused with words that help."""

import dataclasses
import json

import onnx_ir as ir

from compiler.build.capture.onnx_source.opset_conversion import raised
from compiler.checker.check import check
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import check_meaning, check_padding, check_rows
from tests.kit.graphs import parse
from tests.kit.offline import check_padded

PROVED, REFUSED = "proved", "refused"

BLAMELESS = ("add a rule", "compiler/proof", "report it", "Traceback")
"""Words that no refusal may answer with: a user cannot act on them."""


def lowered(
    text: str,
    *,
    batch: str | None = "batch",
    axes: tuple[str, ...] = ("time",),
    opset: int = 20,
    caches: tuple[CacheAxis, ...] = (),
    states: tuple[State, ...] = (),
) -> Lowered:
    """A graph in ONNX text, as capture would hand it on."""
    padded = tuple(PaddedAxis(axis, f"{axis}_length") for axis in axes)
    model = parse(text, opset=opset)
    return Lowered("small", model, states=states, caches=caches, batch_axis=batch, padded_axes=padded)


def judged(origin: Lowered, *, seeds: int = 2, tolerance: float = 1e-4) -> tuple[str, Outcome | Refused]:
    """What becomes of a graph.

    Args:
        origin: the graph before any pass, in whichever operator set.
        seeds: draws of lengths and contents for the comparison.
        tolerance: of it.

    Returns:
        `proved` with the outcome, or `refused` with the refusal.

    Raises:
        Rejected: the checker rejects what the prover claims.
        Differs: a padded row is not the row alone.
        ContractBroken: a padded stream is not the stream.
        AssertionError: a refusal has no cure, or one that the user cannot follow.
    """
    try:
        model = raised(graphs.clone(origin.model))
        graphs.infer_shapes(model)
        before = ir.serde.serialize_model(model)
        outcome = PadAxes().apply(dataclasses.replace(origin, model=model))
    except Refused as refused:
        require_helpful(refused)
        return REFUSED, refused
    after = ir.serde.serialize_model(outcome.lowered.model)
    check(before, after, json.loads(json.dumps(outcome.records[0])))
    if not origin.caches:
        for seed in range(seeds):
            check_padded(origin, outcome, seed=seed, rows=3 if origin.batch_axis else 1, tolerance=tolerance)
        return PROVED, outcome
    check_meaning(origin, outcome.lowered, tolerance, 6, 1 if origin.batch_axis is None else 2)
    if origin.batch_axis is not None:
        check_rows(outcome.lowered, 3)
    check_padding(outcome.lowered, 4)
    return PROVED, outcome


def require_helpful(refused: Refused) -> None:
    """A refusal says what to do.

    Raises:
        AssertionError: it does not.
    """
    said = str(refused)
    assert refused.cure, f"no cure: {said}"
    found = [words for words in BLAMELESS if words in said]
    assert not found, f"{found} is no cure: {said}"
