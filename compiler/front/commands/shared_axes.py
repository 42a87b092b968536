"""Finds axes of an ONNX file that always have the same size, although exporters give them different names."""

import re
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from compiler.build.capture.meeting_sizes import meetings_in
from compiler.graph import model as graphs
from compiler.graph.sizes.expressions import Dim, symbol

MADE_UP = re.compile(r".*_dim\d+|.*_dynamic_axes_\d+|unk__\d+|[su]\d+|DynamicDimension\W?\d+")
"""Names that nobody gave: ours, and those of exporters."""


def is_made_up(axis: str) -> bool:
    """Whether an exporter invented the name of an axis."""
    return MADE_UP.fullmatch(axis) is not None


def axes_that_meet(model: ir.Model) -> dict[str, str]:
    """Return, for each axis, the one that it equals; the model is not changed. See `share_axes`."""
    return share_axes(graphs.clone(model))


def share_axes(model: ir.Model) -> dict[str, str]:
    """Give axes of inputs that meet in the graph one name, the first given by a person, and infer all shapes again.

    Sizes that meet are equal, or one of them is 1; no recipe can state the latter, and a build proves or refuses what
    it states.

    Returns:
        The new name of each renamed axis.
    """
    renamed: dict[str, str] = {}
    while alike := dict(_met(model)):  # fewer axes have names of their own each time
        renamed = {old: alike.get(new, new) for old, new in renamed.items()} | alike
        for value in model.graph.inputs:
            dims = graphs.dims_of(value)
            if dims is not None:
                value.shape = ir.Shape([_renamed(dim, alike) for dim in dims])
        graphs.forget_shapes(model)
        graphs.infer_shapes(model)
    return renamed


def _renamed(dim: Dim, alike: Mapping[str, str]) -> int | str:
    if isinstance(dim, int):
        return dim
    return str(dim.subs({symbol(old): symbol(new) for old, new in alike.items()}))


def _met(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield axes of inputs with the axis that each meets and is renamed to; no axis is both."""
    named = [
        str(dim) for value in model.graph.inputs for dim in graphs.dims_of(value) or () if not isinstance(dim, int)
    ]
    order = {name: position for position, name in enumerate(sorted(dict.fromkeys(named), key=is_made_up))}
    leaders: set[str] = set()
    followers: set[str] = set()
    for meeting in meetings_in(model):
        pair = sorted((name for name in meeting.one_for_one() or () if name in order), key=order.__getitem__)
        if len(pair) == 2 and pair[0] not in followers and pair[1] not in leaders | followers:
            leaders.add(pair[0])
            followers.add(pair[1])
            yield pair[1], pair[0]
