"""Operators that move entries: reshapes, transposes, joins, cuts and paddings."""

import numpy as np

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.batching.form import INSERTED, Form, in_place
from compiler.batching.lifter import Site
from compiler.ir import Dim


def transpose(site: Site) -> None:
    """Axes in another order."""
    place, rank = site.place(), site.rank()
    order = house.ints_attribute(site.node, "perm") or tuple(reversed(range(rank)))
    if place is not None:
        site.read(0, in_place(place))
        site.keep(in_place(order.index(place)))
        return
    site.read(0, INSERTED)
    site.set("perm", [0, *(axis + 1 for axis in order)])
    site.keep(INSERTED)


def squeeze(site: Site) -> None:
    """An axis of size 1 goes; where it is the batch's place, the batch stays instead."""
    axes = _squeezed_axes(site)
    place = site.place()
    if place is None:
        site.read(0, INSERTED)
        site.give(1, np.array([axis + 1 for axis in axes], np.int64))
        site.keep(INSERTED)
        return
    others = [axis for axis in axes if axis != place]
    at = place - sum(axis < place for axis in others)
    form = Form(at, None) if place in axes else in_place(at)
    tensor = site.read(0, in_place(place))
    if not others:
        site.become(tensor, form)
        return
    site.give(1, np.array(others, np.int64))
    site.keep(form)


def _squeezed_axes(site: Site) -> tuple[int, ...]:
    dims = site.dims()
    if site.has(1):
        return tuple(axis % len(dims) for axis in site.constants(1, "axes"))
    return tuple(axis for axis, size in enumerate(dims) if size == 1)


def unsqueeze(site: Site) -> None:
    """An axis of size 1 comes; in front of everything it is the batch's place."""
    axes = site.constants(1, "axes")
    rank = site.rank() + len(axes)
    axes = tuple(sorted(axis % rank for axis in axes))
    place = site.place()
    if place is not None:
        site.read(0, in_place(place))
        kept = [axis for axis in range(rank) if axis not in axes]
        site.give(1, np.array(axes, np.int64))
        site.keep(in_place(kept[place]))
        return
    tensor = site.read(0, INSERTED)
    if axes == (0,):
        site.become(tensor, in_place(0))
        return
    inside = [axis for axis in axes if axis] if axes[0] == 0 else [axis + 1 for axis in axes]
    site.give(1, np.array(inside, np.int64))
    site.keep(in_place(0) if axes[0] == 0 else INSERTED)


def reshape(site: Site) -> None:
    """The batch keeps the place of a 1 that has the same axes in front before and after; else it goes in front."""
    site.require_shared(1, what="its target")
    allow_zero = bool(house.int_attribute(site.node, "allowzero", 0))
    target = house.array_of(site.value(1))
    numbers = None if target is None else [int(number) for number in target]
    before, after, place = site.dims(), site.out_dims(), site.place()
    if "allowzero" in site.node.attributes:
        del site.node.attributes["allowzero"]
    if allow_zero and (numbers is None or 0 in numbers):
        site.set("allowzero", 1)
    elif numbers is not None and place is not None and _keeps_place(before, after, place):
        site.read(0, in_place(place))
        numbers[place] = 0
        site.node.replace_input_with(1, site.insert.int64s(*numbers))
        site.keep(in_place(place))
        return
    site.read(0, INSERTED)
    first = site.lifter.count() if "allowzero" in site.node.attributes else 0
    rest = [site.value(1)] if numbers is None or "allowzero" in site.node.attributes else numbers
    site.node.replace_input_with(1, site.lifter.joined(site.insert, [first, *rest]))
    site.keep(INSERTED)


def _keeps_place(before: tuple[Dim, ...], after: tuple[Dim, ...], place: int) -> bool:
    return len(after) > place and before[:place] == after[:place] and after[place] == 1


def flatten(site: Site) -> None:
    """Two axes: those in front of one, and the others."""
    axis = house.int_attribute(site.node, "axis", 1) % (site.rank() + 1)
    if site.place() == 0 and axis == 1:
        site.read(0, in_place(0))
        site.keep(in_place(0))
        return
    target = [size if isinstance(size, int) else -1 for size in site.out_dims()]
    if target.count(-1) > 1:
        raise refuse(f"Flatten to two unknown sizes {list(site.out_dims())}", "write it as a Reshape")
    tensor = site.tensor(0, INSERTED)
    flat = site.insert.op("Reshape", [tensor, site.insert.int64s(0, *target)], name=f"{tensor.name}_flat")
    site.become(flat, INSERTED)


def expand(site: Site) -> None:
    """Repetition along axes of size 1; that of the batch's place is another axis."""
    site.require_shared(1, what="its sizes")
    place, rank, out = site.place(), site.rank(), site.out_dims()
    if place is not None and out[place + len(out) - rank] == 1:
        site.read(0, in_place(place))
        site.keep(in_place(place + len(out) - rank))
        return
    site.node.replace_input_with(0, site.aligned(0, len(out)))
    (length,) = site.dims(1)
    if length == len(out):
        site.node.replace_input_with(1, site.lifter.joined(site.insert, [1, site.value(1)]))
    site.keep(INSERTED)


def tile(site: Site) -> None:
    """Repetition of whole axes."""
    site.require_shared(1, what="its repeats")
    place = site.place()
    repeats = house.integers_of(site.value(1))
    if place is not None and repeats is not None and repeats[place] == 1:
        site.read(0, in_place(place))
        site.keep(in_place(place))
        return
    site.read(0, INSERTED)
    site.node.replace_input_with(1, site.lifter.joined(site.insert, [1, site.value(1)]))
    site.keep(INSERTED)


def concat(site: Site) -> None:
    """Parts that all rows share are repeated for every row."""
    axis = site.axis(0)
    places = {site.place(operand) for operand in site.rows} - {None, axis}
    for place in sorted(place for place in places if place is not None):
        if all(site.dims(operand)[place] == 1 for operand in site.present):
            form = in_place(place)
            break
    else:
        form = INSERTED
        site.set("axis", axis + 1)
    for operand in site.present:
        site.read(operand, form)
    site.keep(form)


def split(site: Site) -> None:
    """Parts of one axis."""
    site.require_shared(1, what="its sizes")
    axis, place = site.axis(0), site.place()
    form = INSERTED if place is None or place == axis else in_place(place)
    site.read(0, form)
    if form == INSERTED:
        site.set("axis", axis + 1)
    site.keep(form)


def cut(site: Site) -> None:
    """Slice."""
    site.require_shared(1, 2, 3, 4, what="its bounds")
    rank, place = site.rank(), site.place()
    (count,) = site.dims(1)
    if site.has(3):
        axes = tuple(axis % rank for axis in site.constants(3, "axes"))
    elif isinstance(count, int):
        axes = tuple(range(count))
    else:
        raise refuse("Slice along unknown axes", "give axes as constants")
    form = INSERTED if place is None or place in axes else in_place(place)
    site.read(0, form)
    if form == INSERTED:
        site.give(3, np.array([axis + 1 for axis in axes], np.int64))
    site.keep(form)


def pad(site: Site) -> None:
    """Entries in front of and behind the axes."""
    site.require_shared(1, 2, 3, what="its pads")
    rank, place = site.rank(), site.place()
    pads = site.constants(1, "pads")
    if site.has(3):
        axes = tuple(axis % rank for axis in site.constants(3, "axes"))
        half = len(axes)
        if place is None or place in axes:
            site.read(0, INSERTED)
            kind = site.value(3).dtype
            assert kind is not None
            site.give(3, np.array([axis + 1 for axis in axes], kind.numpy()))
            site.keep(INSERTED)
            return
    else:
        half = rank
        if place is None or pads[place] or pads[place + rank]:
            site.read(0, INSERTED)
            site.give(1, np.array([0, *pads[:half], 0, *pads[half:]], np.int64))
            site.keep(INSERTED)
            return
    site.read(0, in_place(place))
    site.keep(in_place(place))
