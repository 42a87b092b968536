"""Makes the records of original and emitted graphs, which gates check and bundles store."""

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler.base.pieces import write_files
from compiler.build.bundle.manifest_of import GraphParts
from compiler.build.bundle.proof_files import Derivation, proof_files
from compiler.build.bundle.source_lines import derivation_without_lines, proof_without_lines
from compiler.build.lowering.emission import emit_exact, emit_with, explain, explain_variant
from compiler.build.lowering.lowering import Lowering
from compiler.build.verify.chunk_lengths import Flush
from compiler.build.verify.gate import Artefacts, OriginalGraph, ShippedGraph
from compiler.build.verify.stream_artefacts import StreamArtefacts
from compiler.build.verify.utterance_artefacts import UtteranceArtefacts
from compiler.recipe.load import LoadedRecipe
from compiler.targets.base import Built
from compiler.targets.forms import Variant


def original_graph(lowering: Lowering) -> OriginalGraph:
    """Return the record of the original that a graph is compared with."""
    original = lowering.plan.original
    return OriginalGraph(
        gate=original.gate,
        run=lambda feeds: original.reference().run(feeds),
        streams=original.streams,
        edges=original.edges,
        check_apart=original.check_apart,
    )


def shipped_graph(
    lowering: Lowering, variants: Sequence[Variant], built: Built, folder: Path, engines: Path, loaded: LoadedRecipe
) -> ShippedGraph:
    """Return the record of one graph for the gates.

    Args:
        lowering: the graph after its passes.
        variants: the variants that have made the artefacts, in order.
        built: the artefacts.
        folder: where they lie.
        engines: a folder for engines.
        loaded: the recipe.
    """
    plan, final = lowering.plan, lowering.graph.final
    steps = plan.original.steps(max(plan.gate.chained_steps, 1))
    spec, target = loaded.recipe.graphs[plan.name], plan.target
    limits = plan.gate.limits(lossy=plan.is_rounded)
    artefacts: Artefacts = (
        UtteranceArtefacts(folder, final, built.artifacts, limits, steps, target.open)
        if final.has_utterances
        else StreamArtefacts(
            folder,
            final,
            built.artifacts,
            limits,
            steps,
            plan.original.streams(),
            target.open,
            Flush(spec.flush, spec.flush_values),
        )
    )
    return ShippedGraph(
        lowered=final,
        built=built,
        limits=limits,
        steps=steps,
        artefacts=artefacts,
        explain=(lambda error, *_: error) if variants else functools.partial(explain, lowering),
        is_rounded=plan.is_rounded,
        integer_products=target.integer_products,
        is_timed_here=built.engine is None and target.times_here,
        before_rounding=functools.partial(emit_exact, lowering),
        open_exact=target.unrounded().open,
        forms=[variant.name for variant in variants],
        rounding_variants=[variant.name for variant in variants if variant.made.lossy],
        with_variants=functools.partial(_in_part, lowering, loaded),
        trial_builder=target.trial_builder(engines),
        lacks_device=built.engine is None and target.cannot_run() is not None,
    )


@contextlib.contextmanager
def _in_part(lowering: Lowering, loaded: LoadedRecipe, names: Sequence[str]) -> Iterator[tuple[Path, ShippedGraph]]:
    """Yield a graph emitted with some of its variants only; a failure of the graph is blamed on the last of them."""
    variants = [variant for variant in lowering.plan.target.plan if variant.name in names]
    built = emit_with(lowering, names)
    with tempfile.TemporaryDirectory() as scratch:
        write_files(Path(scratch), built.files)
        graph = shipped_graph(lowering, variants, built, Path(scratch), Path(scratch), loaded)
        if variants:
            blame = functools.partial(explain_variant, lowering, names[:-1], built)
            graph = dataclasses.replace(graph, explain=blame)
        yield Path(scratch), graph


def graph_parts(shipped: ShippedGraph, lowering: Lowering, *, source_lines: bool) -> GraphParts:
    """Return what the bundle records of one graph; `source_lines` says whether the places in the model's code ship."""
    plan, steps = lowering.plan, tuple(lowering.graph.proofs.values())
    derived = plan.original.captured.derivation()
    derivation = None if derived is None else Derivation(*derived)
    if not source_lines:
        steps = tuple(map(proof_without_lines, steps))
        derivation = None if derivation is None else derivation_without_lines(derivation)
    certificate, proofs = proof_files(plan.name, steps, shipped.built, derivation, lossy=shipped.is_rounded)
    return GraphParts(
        lowered=shipped.lowered,
        parts=shipped.lowered.parts,
        buckets=plan.buckets,
        target=plan.target.name,
        built=shipped.built,
        certificate=certificate,
        golden=shipped.artefacts.golden(),
        proofs=proofs,
    )
