"""Defines and checks the wires of a recipe: outputs of a graph that are inputs of another graph."""

from collections.abc import Mapping, Sequence

from compiler.base.did_you_mean import did_you_mean
from compiler.recipe.field_types import Name, Record, TensorName, disagree
from compiler.recipe.graph import Graph


class Wire(Record):
    """An output that another graph takes; of a state, what a stream of the other graph starts with.

    Attributes:
        from_graph: graph that gives it.
        output: its output.
        to_graph: graph that takes it.
        input: its input, a state where the output is one.
    """

    from_graph: Name
    output: TensorName
    to_graph: Name
    input: TensorName


def check_wiring(wiring: Sequence[Wire], graphs: Mapping[str, Graph]) -> None:
    """Check that every wire leads from an output to an input that fits, and that the graphs can be ordered.

    Raises:
        PydanticCustomError: a check fails; the error has the keys of the wire.
    """
    taken: dict[tuple[str, str], int] = {}
    for number, wire in enumerate(wiring):
        _check_names(number, wire, graphs)
        _check_states(number, wire, graphs)
        for graph in (wire.from_graph, wire.to_graph):
            if graphs[graph].flush:
                message = f"expected no flush in a graph that is wired, got it in {graph!r}"
                raise disagree(message, "delete the flush of it, or the wire", "wiring", number)
        first = taken.setdefault((wire.to_graph, wire.input), number)
        if first != number:
            message = f"expected one wire to an input, got a second one to {wire.input!r} of {wire.to_graph}"
            raise disagree(message, "delete one of them", "wiring", number)
    before = {
        wire.to_graph: {other.from_graph for other in wiring if other.to_graph == wire.to_graph} for wire in wiring
    }
    while ready := [name for name, givers in before.items() if not givers & before.keys()]:
        for name in ready:
            del before[name]
    if before:
        message = f"expected graphs that run one after the other, got a circle of {', '.join(sorted(before))}"
        raise disagree(message, "what a graph hands to its own next call is a state of it", "wiring")


def _check_names(number: int, wire: Wire, graphs: Mapping[str, Graph]) -> None:
    for key in ("from_graph", "to_graph"):
        name = getattr(wire, key)
        if name not in graphs:
            message = f"expected the name of a graph, got {name!r}"
            raise disagree(message, did_you_mean(name, graphs), "wiring", number, key)
    outputs, inputs = graphs[wire.from_graph].outputs, graphs[wire.to_graph].inputs
    for key, name, known in (("output", wire.output, outputs), ("input", wire.input, tuple(inputs))):
        if name not in known:
            message = f"expected the name of an {key}, got {name!r}"
            raise disagree(message, did_you_mean(name, known), "wiring", number, key)


def _check_states(number: int, wire: Wire, graphs: Mapping[str, Graph]) -> None:
    """Check that a state is wired to a state of the same type and rank, and data to an input that callers feed."""
    wanted = graphs[wire.to_graph].inputs[wire.input]
    fed = [input_spec for input_spec in graphs[wire.from_graph].inputs.values() if input_spec.state == wire.output]
    if not fed:
        if not wanted.is_data:
            message = f"expected an input that callers feed for the output {wire.output!r}, got {wire.input!r}"
            raise disagree(message, "name another input", "wiring", number, "input")
        return
    source = fed[0]
    if wanted.state is None:
        message = f"expected an input that is a state, as {wire.output!r} is one, got {wire.input!r}"
        raise disagree(message, "name the state that it starts", "wiring", number, "input")
    sizes = zip(source.shape, wanted.shape, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
    if source.dtype != wanted.dtype or len(source.shape) != len(wanted.shape) or differ:
        got = f"{source.dtype} {list(source.shape)} for {wanted.dtype} {list(wanted.shape)}"
        message = f"expected states of one type and shape, got {got}"
        raise disagree(message, "wire states that are the same tensor", "wiring", number)
