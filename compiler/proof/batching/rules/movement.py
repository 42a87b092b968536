"""Batches operators that move or repeat entries, such as Transpose, Reshape, Expand, Concat, Split, Slice and Pad."""

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, named_axes, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.repeats import tile_of
from compiler.graph.operators.reshapes import copies_zeros
from compiler.graph.operators.slices import slice_of
from compiler.proof.batching.form import INSERTED, RowLayout, in_place
from compiler.proof.batching.lifter import LiftedNode
from compiler.proof.facts.facts import refuse


def transpose(lifted: LiftedNode) -> None:
    """Lift Transpose."""
    place, rank = lifted.place(), lifted.rank()
    order = perm_of(lifted.node, rank)
    if place is not None:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(order.index(place)))
        return
    lifted.read(0, INSERTED)
    lifted.set("perm", [0, *(axis + 1 for axis in order)])
    lifted.keep(INSERTED)


def squeeze(lifted: LiftedNode) -> None:
    """Lift Squeeze of axes of size 1; where one of them is replaced by the batch, the batch stays."""
    axes = _squeezed_axes(lifted)
    place = lifted.place()
    if place is None:
        lifted.read(0, INSERTED)
        lifted.give(1, np.array([axis + 1 for axis in axes], np.int64))
        lifted.keep(INSERTED)
        return
    others = [axis for axis in axes if axis != place]
    new_place = place - sum(axis < place for axis in others)
    layout = RowLayout(new_place, None) if place in axes else in_place(new_place)
    tensor = lifted.read(0, in_place(place))
    if not others:
        lifted.become(tensor, layout)
        return
    lifted.give(1, np.array(others, np.int64))
    lifted.keep(layout)


def _squeezed_axes(lifted: LiftedNode) -> tuple[int, ...]:
    if lifted.has(1):
        return _named_axes(lifted, lifted.rank())
    return tuple(axis for axis, size in enumerate(lifted.dims()) if size == 1)


def _named_axes(lifted: LiftedNode, rank: int) -> tuple[int, ...]:
    """Return the axes that a Squeeze or Unsqueeze names.

    Raises:
        Refused: the axes are computed.
    """
    return named_axes(lifted.node, lambda value: lifted.constants(1, "axes"), rank) or ()


def unsqueeze(lifted: LiftedNode) -> None:
    """Lift Unsqueeze; an axis added in front of all others becomes the batch."""
    rank, place = len(lifted.out_dims()), lifted.place()
    axes = tuple(sorted(_named_axes(lifted, rank)))
    if place is not None:
        lifted.read(0, in_place(place))
        original_axes = [axis for axis in range(rank) if axis not in axes]
        lifted.give(1, np.array(axes, np.int64))
        lifted.keep(in_place(original_axes[place]))
        return
    tensor = lifted.read(0, INSERTED)
    if axes == (0,):
        lifted.become(tensor, in_place(0))
        return
    inside = [axis for axis in axes if axis] if axes[0] == 0 else [axis + 1 for axis in axes]
    lifted.give(1, np.array(inside, np.int64))
    lifted.keep(in_place(0) if axes[0] == 0 else INSERTED)


def reshape(lifted: LiftedNode) -> None:
    """Lift Reshape: the batch stays where the axes before it are unchanged, else it is moved to the front."""
    lifted.require_shared(1, what="its target")
    copies = copies_zeros(lifted.node)
    target = graphs.array_of(lifted.value(1))
    numbers = None if target is None else [int(number) for number in target]
    before, after, place = lifted.dims(), lifted.out_dims(), lifted.place()
    lifted.node.attributes.pop("allowzero", None)
    counts = not copies and (numbers is None or 0 in numbers)
    if counts:
        lifted.set("allowzero", 1)
    elif numbers is not None and place is not None and _keeps_place(before, after, place):
        lifted.read(0, in_place(place))
        numbers[place] = 0
        lifted.node.replace_input_with(1, lifted.insert.int64s(*numbers))
        lifted.keep(in_place(place))
        return
    lifted.read(0, INSERTED)
    first = lifted.lifter.count() if counts else 0
    rest = [lifted.value(1)] if numbers is None or counts else numbers
    lifted.node.replace_input_with(1, lifted.lifter.joined(lifted.insert, [first, *rest]))
    lifted.keep(INSERTED)


def _keeps_place(before: tuple[Dim, ...], after: tuple[Dim, ...], place: int) -> bool:
    return len(after) > place and before[:place] == after[:place] and after[place] == 1


def flatten(lifted: LiftedNode) -> None:
    """Lift Flatten to two axes."""
    axis = axis_of(lifted.node, lifted.rank())
    if lifted.place() == 0 and axis == 1:
        lifted.read(0, in_place(0))
        lifted.keep(in_place(0))
        return
    target = [size if isinstance(size, int) else -1 for size in lifted.out_dims()]
    if target.count(-1) > 1:
        raise refuse(f"Flatten to two unknown sizes {list(lifted.out_dims())}", "write it as a Reshape")
    tensor = lifted.tensor(0, INSERTED)
    flat = lifted.insert.op("Reshape", [tensor, lifted.insert.int64s(0, *target)], name=f"{tensor.name}_flat")
    lifted.become(flat, INSERTED)


def expand(lifted: LiftedNode) -> None:
    """Lift Expand, which repeats along axes of size 1; along that of the batch it adds another axis."""
    lifted.require_shared(1, what="its sizes")
    place, rank, out = lifted.place(), lifted.rank(), lifted.out_dims()
    if place is not None and out[place + len(out) - rank] == 1:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place + len(out) - rank))
        return
    lifted.node.replace_input_with(0, lifted.aligned(0, len(out)))
    (length,) = lifted.dims(1)
    if length == len(out):
        lifted.node.replace_input_with(1, lifted.lifter.joined(lifted.insert, [1, lifted.value(1)]))
    lifted.keep(INSERTED)


def tile(lifted: LiftedNode) -> None:
    """Lift Tile, which repeats whole axes."""
    lifted.require_shared(1, what="its repeats")
    place, view = lifted.place(), tile_of(lifted.node, graphs.integers_of, lifted.rank())
    if place is not None and view is not None and view.repeats[place] == 1:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place))
        return
    lifted.read(0, INSERTED)
    lifted.node.replace_input_with(1, lifted.lifter.joined(lifted.insert, [1, lifted.value(1)]))
    lifted.keep(INSERTED)


def concat(lifted: LiftedNode) -> None:
    """Lift Concat; parts that all rows share are repeated for every row."""
    axis = lifted.axis()
    places = {lifted.place(operand) for operand in lifted.rows} - {None, axis}
    for place in sorted(place for place in places if place is not None):
        if all(lifted.dims(operand)[place] == 1 for operand in lifted.present):
            layout = in_place(place)
            break
    else:
        layout = INSERTED
        lifted.set("axis", axis + 1)
    for operand in lifted.present:
        lifted.read(operand, layout)
    lifted.keep(layout)


def split(lifted: LiftedNode) -> None:
    """Lift Split along one axis."""
    lifted.require_shared(1, what="its sizes")
    axis, place = lifted.axis(), lifted.place()
    layout = INSERTED if place is None or place == axis else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.set("axis", axis + 1)
    lifted.keep(layout)


def slice_axes(lifted: LiftedNode) -> None:
    """Lift Slice; `canonicalize_positions` turns slices with a start per row into lookups before."""
    lifted.require_shared(1, 2, 3, 4, what="its bounds")
    place, view = lifted.place(), slice_of(lifted.node, lifted.rank())
    axes = None if view is None else view.sliced_axes(graphs.integers_of)
    if view is None or axes is None:
        raise refuse("Slice along unknown axes", "give axes as constants")
    layout = INSERTED if place is None or place in axes else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.give(3, np.array([axis + 1 for axis in axes], view.kind.numpy()))
    lifted.keep(layout)


def pad(lifted: LiftedNode) -> None:
    """Lift Pad."""
    lifted.require_shared(1, 2, 3, what="its pads")
    place, pad = lifted.place(), pad_of(lifted.node, graphs.integers_of, lifted.rank())
    numbers = None if pad is None else pad.numbers
    if numbers is None:
        raise refuse("Pad with computed pads", "give pads as constants")
    if place is not None and numbers.get(place, (0, 0)) == (0, 0):
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place))
        return
    lifted.read(0, INSERTED)
    if lifted.has(3):
        lifted.give(3, np.array([axis + 1 for axis in numbers], np.int64))
    else:
        fronts, behind = zip(*numbers.values(), strict=True)
        lifted.give(1, np.array([0, *fronts, 0, *behind], np.int64))
    lifted.keep(INSERTED)
