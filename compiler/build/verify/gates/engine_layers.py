"""Checks that a vendor's builder accepts the graphs, and that every node computes in its planned type.

It runs where there is a builder that needs no device. Its findings hold for that builder; the engine has not been run.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from compiler.base.records.findings import BUILT, Finding
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.precision_plan import Audited, Kept, audit, broken, counts, planned_nodes
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.record import Recipe
from compiler.targets.base import TrialEngine
from runtime_lite.format.manifest import bucket_name

NAMED = 12
"""Most nodes that break the plan and are named."""


def _check(shipped: Shipped, advance: Advance) -> Checked:
    build = shipped.graph.trial_builder
    assert build is not None
    files = shipped.graph.built.by_file
    findings: list[Finding] = []
    receipt, words = {}, ""
    for done, artefacts in enumerate(files, start=1):
        engine = build(shipped.folder, artefacts)
        bucket = "; ".join(bucket_name(emitted.sizes) for emitted in artefacts)
        findings += engine_findings(shipped.name, bucket, artefacts[0].lowered.model, engine)
        receipt[bucket] = {
            "builder": engine.builder,
            "device": engine.device,
            "sha256": engine.content_hash,
            "size_bytes": engine.size_bytes,
        }
        words = engine.words
        advance(done, len(files))
    return Checked(findings, f"{len(files)} engines {words}", {"engines": receipt})


def engine_findings(graph: str, bucket: str, model: ir.Model, engine: TrialEngine) -> Iterator[Finding]:
    """Yield findings: that the engine is built, and by type how many nodes compute in their planned type.

    Args:
        graph: the graph's name.
        bucket: the bucket's sizes, for messages.
        model: the graph file that the engine is built from.
        engine: the engine as its builder describes it.

    Raises:
        GateFailed: a node computes in another type than planned.
    """
    yield Finding(BUILT, graph, bucket, holds=True, detail=engine.words, figures={"bytes": engine.size_bytes})
    if engine.layers is None:
        yield Finding(
            LAYERS, graph, bucket, detail=f"{engine.builder} describes its layers in a form that is not known"
        )
        return
    plan = planned_nodes(model)
    audited = audit(plan, engine.layers)
    _require_kept(graph, bucket, engine, audited)
    fused = sum(len(layer.nodes) > 1 for layer in engine.layers)
    detail = f"layers, {fused} of them of several nodes"
    yield Finding(LAYERS, graph, bucket, len(engine.layers), holds=True, detail=detail, figures={"fused": fused})
    for kind, by_state in sorted(counts(audited).items()):
        shown = by_state[Kept.YES] + by_state[Kept.NOWHERE]
        holds = None if by_state[Kept.NOWHERE] else True
        unseen = [f"{by_state[state]} more {state.value}" for state in (Kept.INSIDE, Kept.NOWHERE) if by_state[state]]
        detail = ", ".join([f"nodes that compute in {kind}", *unseen])
        yield Finding(LAYERS, graph, f"{bucket}, {kind}", by_state[Kept.YES], shown, holds, detail, is_least=True)


def _require_kept(graph: str, bucket: str, engine: TrialEngine, audited: Sequence[Audited]) -> None:
    wrong = list(broken(audited))
    if not wrong:
        return
    named = ", ".join(map(str, wrong[:NAMED])) + (f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else "")
    first = wrong[0]
    raise GateFailed(
        f"expected {len(audited)} nodes that compute as the graph says in the engine of {engine.builder} for "
        f"{engine.device}, got {len(wrong)} that do not: {named}; {first.planned.node} is to compute in "
        f"{first.planned.type}, in layer {first.layers[0]}",
        cure="keep quantised nodes that it does not compute in integers in float (keep_float), where a 1x1 convolution "
        "becomes a product with lower_pointwise_convolutions",
        place=Location(
            stage=f"{GATE} {bucket}",
            graph=graph,
            node=first.planned.node,
            op=first.planned.op,
            source=first.planned.source,
        ),
        findings=[_failed(graph, bucket, audited_node) for audited_node in wrong],
    )


def _failed(graph: str, bucket: str, each: Audited) -> Finding:
    return Finding(
        LAYERS,
        graph,
        f"{bucket}, {each.planned.node}",
        holds=False,
        detail=f"to compute in {each.planned.type}, got {each} in {', '.join(each.layers)}",
    )


def require_read(findings: Iterable[Finding]) -> None:
    """Refuse engines whose layers could not be read.

    Raises:
        GateFailed: there is one; the message names the first.
    """
    unread = next((finding for finding in findings if finding.gate == LAYERS and finding.holds is None), None)
    if unread is not None:
        raise GateFailed(
            f"{unread.subject}: expected layers that can be read, got {unread.detail}",
            cure="use the version of the builder that pyproject.toml pins, or build without --strict",
            place=Location(stage=GATE, graph=unread.graph),
            findings=[dataclasses.replace(unread, holds=False)],
        )


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    return shipped.graph.trial_builder is not None


GATE, LAYERS = "engines", "engine layers"

ENGINE_LAYERS = Gate(GATE, _check, lambda recipe, graph: (), _wanted)
