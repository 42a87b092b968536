"""Finds pairs of axis sizes that must match because one node concatenates, adds or multiplies the tensors."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from compiler.errors import Location, RecipeError
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import BROADCASTING, RECURRENCES


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Two sizes.

    Attributes:
        first: of one operand.
        second: of another.
        node: where they meet.
        may_be_one: whether either may be 1 beside any other.
    """

    first: graphs.Dim
    second: graphs.Dim
    node: ir.Node
    may_be_one: bool = False

    @property
    def clashes(self) -> bool:
        """Whether the sizes differ and one is fixed, so that no length of an axis makes them equal."""
        sizes = (self.first, self.second)
        is_number = any(isinstance(size, int) for size in sizes)
        return self.first != self.second and is_number and not (self.may_be_one and 1 in sizes)

    def one_for_one(self) -> tuple[str, str] | None:
        """Return the two axes that must be equal for these sizes to be, as of `past + 3` and `cache + 3`; else None."""
        apart = self.first - self.second
        if isinstance(apart, int) or len(apart.free_symbols) != 2:
            return None
        one, other = sorted(apart.free_symbols, key=str)
        return (str(one), str(other)) if apart in (one - other, other - one) else None


def meetings_in(model: ir.Model) -> Iterator[Meeting]:
    """Yield all pairs of sizes that meet in a graph with inferred shapes, node by node."""
    for node in model.graph:
        shapes = [None if value is None else graphs.dims_of(value) for value in node.inputs]
        known = [shape for shape in shapes if shape is not None]
        pairs: Iterable[tuple[graphs.Dim, graphs.Dim]] = ()
        if graphs.is_op(node, "Concat") and known:
            axis = axis_of(node, len(known[0]))
            pairs = _in_turn([*shape[:axis], *shape[axis + 1 :]] for shape in known)
        elif graphs.is_op(node, *BROADCASTING):
            pairs = _in_turn(shape[::-1] for shape in known)
        elif graphs.is_op(node, "MatMul") and len(known) == 2 and min(map(len, known)) > 1:
            left, right = known
            yield Meeting(left[-1], right[-2], node)
            pairs = _in_turn((left[-3::-1], right[-3::-1]))
        elif graphs.is_op(node, *RECURRENCES) and len(shapes) > 5:
            pairs = _in_turn(shape[1:2] for shape in (shapes[0], shapes[5]) if shape is not None)
        broadcasts = graphs.is_op(node, "MatMul", *BROADCASTING)
        yield from (Meeting(*pair, node, broadcasts) for pair in pairs)


def _in_turn(shapes: Iterable[Sequence[graphs.Dim]]) -> Iterator[tuple[graphs.Dim, graphs.Dim]]:
    """Yield each size with that of the previous shape on the same axis."""
    before: Sequence[graphs.Dim] = ()
    for shape in shapes:
        yield from zip(before, shape, strict=False)
        before = shape


def require_sizes_that_meet(model: ir.Model, wanted: Mapping[str, Sequence[int | str]], place: Location) -> None:
    """Require that the sizes in the recipe for a file's axes fit the operators that use these axes.

    Args:
        model: the file's graph; not changed.
        wanted: by input, the sizes and axis names of the recipe.
        place: location in the build, for messages.

    Raises:
        RecipeError: an axis meets another size. Two axis names are left to passes.
    """
    copy = graphs.clone(model)
    chosen: dict[graphs.Dim, list[str]] = {}
    for value in copy.graph.inputs:
        name = str(value.name)
        for own_size, size in zip(value.shape or wanted[name], wanted[name], strict=True):
            if not isinstance(own_size, int):
                chosen.setdefault(size if isinstance(size, int) else graphs.symbol(size), []).append(name)
        value.shape = ir.Shape(wanted[name])
    graphs.infer_shapes(copy)
    for meeting in meetings_in(copy):
        sizes = (meeting.first, meeting.second)
        if meeting.clashes and all(size in chosen or isinstance(size, int) for size in sizes):
            got = (f"{size} (written for {', '.join(chosen[size])})" if size in chosen else str(size) for size in sizes)
            node = meeting.node
            raise RecipeError(
                f"expected one size where operands meet, got {' and '.join(got)}",
                cure="give axes that are one the same name in all shapes, and one size under axes",
                place=dataclasses.replace(
                    place, node=str(node.name), op=node.op_type, source=node.metadata_props.get(graphs.SOURCE_KEY, "")
                ),
            )
