"""Finds the input values whose table lookups are all in range, by running the nodes that compute the indices.

    tokens [batch, books, time] -> Add(books * 1024) -> Gather(table [8192, 64])    0 to 1023 are in the table
    tokens -> Less(0) -> Where(0, tokens) -> Gather(table [500, 64])                so is every number below 500

Places are computed for all numbers of a range, or for many of a wide one, among them its ends and the numbers that the
graph compares with. A lookup whose indices follow from other data than these inputs is not covered here: padding keeps
its indices within the table, or refuses it.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.runners.part import Part

Array = npt.NDArray[Any]
Ranges = dict[str, tuple[int, int]]
"""The smallest and the largest number, by input."""

LOOKUPS = ("Gather", "GatherElements")

MOST_TRIED, MOST_CALLS = 2**14, 2**8
"""Most numbers of a range that are tried; of a wider range, this many that lie evenly in it. Where rows have no
name, each takes a call of its own, and fewer are tried."""

MOST_ENTRIES = 2**22
"""Of what is fed in one call: of long rows fewer numbers are tried."""

EITHER = (0, 1)
"""What masks, truths and lengths hold where places are computed of them, too."""

MOST_ROUNDS = 4
"""Calls after which a state holds no new numbers, or is one that counts on."""

OTHER_SIZES = (2, 1, 3, 8, 16)
"""Sizes of axes that no one names, tried until the places can be computed."""


@dataclasses.dataclass(frozen=True)
class _Lookup:
    """Entries of a table, chosen at places that follow from inputs alone.

    Attributes:
        node: that looks up.
        places: the indices that it looks up.
        entries: of the table.
        inputs: whose numbers the places are computed of.
    """

    node: ir.Node
    places: ir.Value
    entries: int
    inputs: frozenset[str]

    def holds(self, places: Array | None) -> bool:
        """Whether the table has an entry at each index; negative ones count from its end."""
        if places is None or not places.size:
            return True
        return int(places.min()) >= -self.entries and int(places.max()) < self.entries


@dataclasses.dataclass(frozen=True)
class Carried:
    """A state of whole numbers.

    Attributes:
        output: the output that gives the state of the next call.
        begins: the smallest and the largest number of a new stream.
    """

    output: str
    begins: tuple[int, int] = (0, 0)


def lookup_ranges(
    model: ir.Model,
    declared: Mapping[str, Sequence[float]],
    fed: Collection[str],
    sizes: Mapping[str, int],
    carried: Mapping[str, Carried] = MappingProxyType({}),
) -> Ranges:
    """Return the integers that inputs may hold, where they index tables or have a declared range.

    Args:
        model: with shapes.
        declared: the smallest and the largest number that callers feed, by input.
        fed: inputs that callers feed.
        sizes: of axes by name; others are tried.
        carried: states by input, which may index tables as well, as they hold values of earlier calls.

    Returns:
        The declared ranges of integer inputs; for other inputs that index tables, the integers from 0 up to the last
        whose indices are all within their tables, or the first such integers where 0 is not among them.

    Raises:
        Refused: a place that follows from these numbers is not in its table, or no number has places in all tables;
            names the node.
    """
    inputs = {name: value.dtype for name, value in graphs.inputs_named(model).items() if value.dtype is not None}
    tokens = {name for name, dtype in inputs.items() if name in fed and (dtype.is_integer() or name in declared)}
    others = {
        name for name, dtype in inputs.items() if name not in {*tokens, *carried}
        and (dtype == ir.DataType.BOOL or name not in fed)
    }  # fmt: skip
    states = _states_of(model, carried, tokens | others)
    lookups = [lookup for lookup in _lookups(model, {*tokens, *others, *states}) if lookup.inputs & {*tokens, *states}]
    asked = [name for name in inputs if name in tokens and any(name in lookup.inputs for lookup in lookups)]
    known: Ranges = {
        name: (int(low), int(high)) for name, (low, high) in declared.items()
        if name in asked or (name in tokens and inputs[name].is_integer())
    }  # fmt: skip
    if not lookups:
        return known
    places = _Places(model, lookups, asked, states, sorted(others), sizes)
    for name in asked:
        if name not in known:
            known[name] = places.legal(name, known)
    everywhere = places.with_states(known)
    for lookup in lookups:
        if lookup.inputs <= everywhere.keys():
            places.require_within(lookup, everywhere)
    return known


def told_ranges(ranges: Ranges) -> dict[str, list[int]]:
    """Return ranges as a certificate writes them."""
    return {name: list(span) for name, span in sorted(ranges.items())}


def assumed_ranges(ranges: Ranges) -> list[str]:
    """Return, as text, the ranges of integers that are assumed."""
    return [f"{name!r} holds whole numbers from {low} to {high}" for name, (low, high) in sorted(ranges.items())]


def _states_of(model: ir.Model, carried: Mapping[str, Carried], followed: Collection[str]) -> dict[str, Carried]:
    """Return the states whose next values depend on these inputs, on sizes and on such states alone."""
    outputs = graphs.outputs_named(model)
    found = {name: each for name, each in carried.items() if each.output in outputs}
    behind = {name: graphs.contents_behind([outputs[each.output]]) for name, each in found.items()}
    while lost := [name for name in found if not behind[name] <= {*followed, *found}]:
        found = {name: each for name, each in found.items() if name not in lost}
    return found


def _lookups(model: ir.Model, inputs: Collection[str]) -> Iterator[_Lookup]:
    """Yield the lookups in tables of fixed size whose indices depend on some inputs and on sizes alone."""
    for node in model.graph:
        if not graphs.is_op(node, *LOOKUPS):
            continue
        data, places = node.inputs[0], node.inputs[1]
        dims = None if data is None else graphs.dims_of(data)
        if not dims or places is None or graphs.array_of(places) is not None:
            continue
        entries, read = dims[axis_of(node, len(dims))], graphs.contents_behind([places])
        if isinstance(entries, int) and read and read <= set(inputs):
            yield _Lookup(node, places, entries, frozenset(read))


class _Places:
    """The places of all lookups, computed.

    Args:
        model: that they are in.
        lookups: whose places are computed.
        asked: the inputs of which they are.
        states: of which they may be, too.
        others: masks, truths and lengths of which they may be, too.
        sizes: of axes by name.
    """

    def __init__(
        self,
        model: ir.Model,
        lookups: Sequence[_Lookup],
        asked: Sequence[str],
        states: Mapping[str, Carried],
        others: Collection[str],
        sizes: Mapping[str, int],
    ) -> None:
        self.lookups, self.states, self.sizes = lookups, states, sizes
        self.largest = max(lookup.entries for lookup in lookups)
        outputs = graphs.outputs_named(model)
        next_states = [outputs[state.output] for state in states.values()]
        self.part = Part(model.graph, list(dict.fromkeys([*(lookup.places for lookup in lookups), *next_states])))
        self.noted = _numbers_in(self.part.model)
        self.asked = [name for name in (*asked, *states, *others) if name in self.part.inputs]
        self.others = dict.fromkeys(others, EITHER)

    def legal(self, name: str, known: Ranges) -> tuple[int, int]:
        """Return the first range of an input that is legal in all tables, given the ranges of the others.

        Raises:
            Refused: there is none.
        """
        first = next(
            (
                first_integer
                for first_integer in self._firsts()
                if self._is_legal(name, known, first_integer, first_integer)
            ),
            None,
        )
        if first is None:
            lookup = next(lookup_of_input for lookup_of_input in self.lookups if name in lookup_of_input.inputs)
            raise Refused(
                f"expected values of {name!r} that index a table of {lookup.entries} entries, got none",
                cure=f"write at {name} the range of values that callers feed, as in range: [0, {lookup.entries - 1}]",
                place=_place(lookup),
            )
        low, beyond = first, self.largest + first
        while beyond - low > 1:  # all numbers from the first to `low` are legal, those to `beyond` are not
            middle = (low + beyond) // 2
            low, beyond = (middle, beyond) if self._is_legal(name, known, first, middle) else (low, middle)
        return first, low

    def _firsts(self) -> list[int]:
        powers = [2**at for at in range(self.largest.bit_length())]
        return [0, *sorted({*powers, *(each for each in self.noted if each > 0)})]

    def _is_legal(self, name: str, known: Ranges, low: int, high: int) -> bool:
        begun = {state: each.begins for state, each in self.states.items()}
        found = self._found({**self.others, **begun, **known, name: (low, high)})
        return all(each.holds(found.get(str(each.places.name))) for each in self.lookups if name in each.inputs)

    def with_states(self, known: Ranges) -> Ranges:
        """Return the ranges, extended by those of states that stay within a range over several calls."""
        begun = {state: each.begins for state, each in self.states.items()}
        for _ in range(MOST_ROUNDS if begun else 0):
            found = self._found({**self.others, **known, **begun})
            after = {state: _joined(span, found.get(self.states[state].output)) for state, span in begun.items()}
            if after == begun:
                return {**self.others, **known, **begun}
            begun = after
        return {name: span for name, span in {**self.others, **known}.items() if name not in begun}

    def require_within(self, lookup: _Lookup, known: Ranges) -> None:
        """Require that every index of a lookup is within its table.

        Raises:
            Refused: an index is not.
        """
        places = self._found(known).get(str(lookup.places.name))
        if places is None or lookup.holds(places):
            return
        low, high = int(places.min()), int(places.max())
        told = sorted(lookup.inputs - self.states.keys() - self.others.keys()) or sorted(lookup.inputs)
        held = " and ".join(f"{name!r} from {known[name][0]} to {known[name][1]}" for name in told)
        raise Refused(
            f"expected indices into a table of {lookup.entries} entries, got {low} to {high} for {held}",
            cure=self._cure(lookup, known),
            place=_place(lookup),
        )

    def _cure(self, lookup: _Lookup, known: Ranges) -> str:
        name = min(lookup.inputs - self.states.keys() or lookup.inputs)
        rest = {each: span for each, span in known.items() if each not in {name, *self.states}}
        try:
            low, high = self.legal(name, rest)
        except Refused:
            return "write under range the numbers that callers feed, or clamp them before the lookup"
        return f"write range: [{low}, {high}] at {name} where callers feed no others, or clamp them before the lookup"

    def _found(self, ranges: Ranges) -> dict[str, Array]:
        """Return indices and next states for all integers of some ranges, by name; empty where not computable."""
        rows = _rows_of([value for name, value in self.part.inputs.items() if name in self.asked])
        row = sum(math.prod(self._shape(value, {}, OTHER_SIZES[0])[1:]) for value in self.part.inputs.values())
        most = MOST_CALLS if rows is None else max(min(MOST_TRIED, MOST_ENTRIES // max(row, 1)), MOST_CALLS)
        table = _combined([_tried(*ranges.get(name, (0, 0)), self.noted, most) for name in self.asked])
        for size in OTHER_SIZES:
            sizes = {} if rows is None else {rows: len(table)}
            calls = [table] if rows is not None else [table[row : row + 1] for row in range(len(table))]
            try:
                results = [
                    self.part.run({n: self._filled(v, call, sizes, size) for n, v in self.part.inputs.items()})
                    for call in calls
                ]
            except Exception:  # noqa: BLE001 - of sizes that the graph does not take
                continue
            return {
                name: np.concatenate([call_results[number].reshape(-1) for call_results in results])
                for number, name in enumerate(self.part.names)
            }
        return {}

    def _shape(self, value: ir.Value, sizes: Mapping[str, int], size: int) -> list[int]:
        known = {**self.sizes, **sizes}
        return [dim if isinstance(dim, int) else known.get(str(dim), size) for dim in graphs.dims_of(value) or ()]

    def _filled(self, value: ir.Value, table: Array, sizes: Mapping[str, int], size: int) -> Array:
        """Return the content of an input: each row holds a number of its own, or zeros where no index depends on it."""
        assert value.dtype is not None
        shape = self._shape(value, sizes, size)
        array = np.zeros(shape, value.dtype.numpy())
        if value.name in self.asked:
            column = table[:, self.asked.index(str(value.name))]
            array[...] = column.reshape([-1, *[1] * (len(shape) - 1)]) if len(column) > 1 else column[0]
        return array


def _place(lookup: _Lookup) -> Location:
    node = lookup.node
    return Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))


def _numbers_in(model: ir.Model) -> list[int]:
    """Return the integers among small constants, which the graph may compare with."""
    arrays = [array for value in model.graph.initializers.values() if (array := graphs.array_of(value)) is not None]
    small = [array for array in arrays if array.size <= MOST_TRIED and array.dtype.kind in "iuf"]
    found = {float(number) for array in small for number in array.reshape(-1)[:64]}
    return sorted({int(number) for number in found if number.is_integer() and abs(number) < 2**62})


def _rows_of(values: Sequence[ir.Value]) -> str | None:
    """Return the name of the first axis, where all inputs have the same; None elsewhere."""
    names = {str(dims[0]) if dims and not isinstance(dims[0], int) else None for dims in map(graphs.dims_of, values)}
    return names.pop() if len(names) == 1 else None


def _tried(low: int, high: int, noted: Sequence[int], most: int) -> Array:
    """Return all numbers of a range; of a wide one its ends, neighbours of noted numbers, and evenly spaced ones."""
    if high - low < most:
        return np.arange(low, high + 1)
    near = [number + more for number in noted for more in (-1, 0, 1) if low <= number + more <= high]
    return np.unique(np.array([low, high, *near, *np.linspace(low, high, most).astype(np.int64)], np.int64))


def _joined(span: tuple[int, int], numbers: Array | None) -> tuple[int, int]:
    if numbers is None or not numbers.size:
        return span
    return min(span[0], int(numbers.min())), max(span[1], int(numbers.max()))


def _combined(numbers: Sequence[Array]) -> Array:
    """Return rows of one number per input, with every number used once and all combinations of the ends."""
    random = np.random.default_rng(0)
    most = max(each.size for each in numbers)
    columns = [numbers[0] if each is numbers[0] else random.permutation(each) for each in numbers]
    table = np.stack([np.resize(each, most) for each in columns], axis=1)
    ends = np.array(np.meshgrid(*[[each[0], each[-1]] for each in numbers])).reshape(len(numbers), -1).T
    return np.concatenate([table, ends])
