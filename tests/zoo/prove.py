"""Runs the passes of a build over a family's graph and attacks what comes out."""

import dataclasses

import numpy as np

from compiler.build.lowering.certificates import replay_certificates
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes import make_pass
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.zoo.family import BATCH, DEFAULT_SIZES, Family
from tests.zoo.measure import Attack, Measured, runs
from tests.zoo.store import load

PASSES_TO_PADDING = STANDARD_PASSES[1 : STANDARD_PASSES.index(PadAxes.name) + 1]
"""As in a build, but for the first pass, as graphs are stored simplified, and for masks, which many families have."""


@dataclasses.dataclass(frozen=True)
class Proved:
    """A padded family.

    Attributes:
        nodes: of the graph before.
        inserted: nodes that padding added.
        axes: with the limits of the lengths.
        replayed: steps of the certificate that the checker made again.
        measured: what the attack found.
    """

    nodes: int
    inserted: int
    replayed: int
    axes: tuple[PaddedAxis, ...]
    measured: Measured


def prove(family: Family) -> Proved:
    """Pad a family's graph and attack it.

    Raises:
        Refused: it cannot be proved.
        GateFailed: the checker rejects the proof.
    """
    lowered = lower(family)
    original = graphs.clone(lowered.model)
    replayed = 0
    for name in PASSES_TO_PADDING:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        outcome = make_pass(name, {}).apply(lowered)
        replayed += replay_certificates(before, outcome)
        lowered = outcome.lowered
    graphs.infer_shapes(lowered.model)
    attack = Attack(original, lowered.model, family.inputs, lowered.padded_axes)
    rows = 4 if BATCH in family.axes else 1
    batches = list(runs(lowered.padded_axes, {**DEFAULT_SIZES, **family.sizes}, np.random.default_rng(1), rows=rows))
    return Proved(
        nodes=len(list(original.graph)),
        inserted=sum(node.metadata_props.get(graphs.PASS_KEY) == PadAxes.name for node in lowered.model.graph),
        replayed=replayed,
        axes=lowered.padded_axes,
        measured=attack.measure(batches),
    )


def lower(family: Family) -> Lowered:
    """The family's graph as a build has it after capture."""
    return Lowered(
        graph=family.name,
        model=load(family.name),
        batch_axis=BATCH if BATCH in family.axes else None,
        data_outputs=family.outputs,
        padded_axes=tuple(_padded_axis(family, axis) for axis in family.padded),
    )


def _padded_axis(family: Family, axis: str) -> PaddedAxis:
    lengths = tuple(name for name, given in family.inputs.items() if given.length_of == axis)
    return PaddedAxis(
        axis=axis,
        length_input=lengths[0] if lengths else f"{axis}_length",
        mask_inputs=tuple(name for name, given in family.inputs.items() if given.mask_of == axis),
        length_inputs=lengths,
    )
