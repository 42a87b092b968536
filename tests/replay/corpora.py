"""The graphs that are traced: all three zoos, and random graphs of fixed seeds."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

import pydantic

from compiler.errors import SlipwayError
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.kit.whole_sequences import Drawing, whole_graph
from tests.property import fuzz, streams
from tests.property.derived_steps import KINDS, steps_of
from tests.replay.trace import Record, certificate_lines, graph_lines, told, traced
from tests.zoo.derived import families as derived_families
from tests.zoo.derived.family import WholeFamily
from tests.zoo.derived.prove import derived
from tests.zoo.families import FAMILIES
from tests.zoo.family import Family
from tests.zoo.prove import PASSES_TO_PADDING, lower
from tests.zoo.streams import families as stream_families
from tests.zoo.streams.family import StepFamily
from tests.zoo.streams.prove import captured

Graphs: TypeAlias = Iterator[tuple[str, Callable[[], Record]]]
"""Names, and what traces each."""

CALLS = 20
PADDED, STEPPED, DERIVED = 1400, 400, 200
"""Random graphs of each kind; with the zoos it takes a quarter of an hour."""


def zoo() -> Graphs:
    """Whole graphs of the zoo that could be exported."""
    for family in FAMILIES:
        if not family.stuck:
            yield family.name, partial(_of_whole, family)


def _of_whole(family: Family) -> Record:
    return traced(lower(family), PASSES_TO_PADDING)


def stream_zoo() -> Graphs:
    """Steps of the streaming zoo."""
    for family in stream_families.FAMILIES:
        yield family.name, partial(_of_step, family)


def _of_step(family: StepFamily) -> Record:
    return traced(captured(family, CALLS)[1], [each.name for each in family.spec.passes])


def derived_zoo() -> Graphs:
    """Decoders of which steps are derived, with the certificate of these."""
    for family in derived_families.FAMILIES:
        yield family.name, partial(_of_decoder, family)


def _of_decoder(family: WholeFamily) -> Record:
    _, made, start = derived(family, CALLS)
    return {"derived": "\n".join(certificate_lines(made.certificate))} | traced(
        start, [each.name for each in family.spec.passes]
    )


def padded() -> Graphs:
    """Random whole graphs."""
    for seed in range(PADDED):
        yield f"{seed}", partial(_of_padded, seed)


def _of_padded(seed: int) -> Record:
    return traced(fuzz.as_padded(fuzz.grow(seed, mixture=fuzz.mixture_of(seed))), [PadAxes.name])


def stepped() -> Graphs:
    """Random steps."""
    for seed in range(STEPPED):
        yield f"{seed}", partial(_of_drawn_step, seed)


def _of_drawn_step(seed: int) -> Record:
    try:
        return traced(streams.begun(streams.drawn(seed)), STANDARD_PASSES)
    except pydantic.ValidationError as refused:
        return {"recipe": str(refused)}


def derived_steps() -> Graphs:
    """Random whole graphs of which steps are derived."""
    kinds = list(KINDS.items())
    for seed in range(DERIVED):
        kind, draw = kinds[seed % len(kinds)]
        yield f"{kind}-{seed}", partial(_of_derivation, draw, seed)


def _of_derivation(draw: Callable[..., Drawing], seed: int) -> Record:
    drawing = draw(seed, spoiled=seed % 4 == 3)
    made = steps_of(drawing, whole_graph(drawing))
    return {"derived": "\n".join(certificate_lines(made.certificate)), "graph": "\n".join(graph_lines(made.model))}


CORPORA: Mapping[str, Callable[[], Graphs]] = {
    "zoo": zoo,
    "stream_zoo": stream_zoo,
    "derived_zoo": derived_zoo,
    "padded": padded,
    "stepped": stepped,
    "derived_steps": derived_steps,
}
"""By the name on the command line."""


def record_of(trace: Callable[[], Record]) -> Record:
    """What comes of one graph; what refuses it before the first pass is a part of its own."""
    try:
        return trace()
    except SlipwayError as error:
        return {"refused": told(error)}
