"""Presents wired graphs as one: names the inputs and outputs that callers see, and checks and splits feeds.

A pipeline consists of all graphs of a bundle that have wires. A caller feeds the inputs of role data that no wire
fills, and gets every output of role data. Inputs, outputs and axes have their own name if only one graph of the
pipeline has that name, else `graph.name`. A feed is checked for all graphs before the first one runs; the sizes of the
tensors on wires follow from the manifest.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from runtime_lite.calls.feeds import Feed, RowLengths
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, join_states
from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Tensor, Wire, static_shape

Place = tuple[str, str]
"""A graph name, and the name of an input, output or axis of it."""


class Pipeline:
    """Wired graphs of one bundle.

    Args:
        runners: runners of all graphs of the bundle, by name.
        wiring: checked wires, which connect data only.

    Attributes:
        name: names of all its graphs joined by +, for messages.
        order: names of its graphs, each after those whose outputs it takes.
        wiring: the wires.
    """

    def __init__(self, runners: Mapping[str, GraphRunner], wiring: Sequence[Wire]) -> None:
        """Choose the names of the inputs, outputs and lengths for callers."""
        self.wiring = tuple(wiring)
        self.order = _in_order([name for name in runners if any(name in _ends(wire) for wire in wiring)], wiring)
        self.name = "+".join(self.order)
        self._runners = {name: runners[name] for name in self.order}
        wired = {(wire.to_graph, wire.input) for wire in wiring}
        self._inputs = _public_names(
            (name, tensor.name)
            for name, runner in self._runners.items()
            for tensor in runner.graph.inputs
            if tensor.role == "data" and (name, tensor.name) not in wired
        )
        self._outputs = _public_names(
            (name, tensor.name)
            for name, runner in self._runners.items()
            for tensor in runner.graph.outputs
            if tensor.role == "data"
        )
        first = [name for name in self.order if not any(wire.to_graph == name for wire in wiring)]
        self._lengths = _public_names(
            (name, axis) for name in first for axis, record in runners[name].graph.axes.items() if record.length_input
        )

    # What it is

    @property
    def runners(self) -> Mapping[str, GraphRunner]:
        """The runners of the graphs by name, each after those whose outputs it takes."""
        return self._runners

    @property
    def inputs(self) -> Mapping[str, Place]:
        """The graph and input of each name that callers feed."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, Place]:
        """The graph and output of each name that callers get."""
        return self._outputs

    @property
    def fed(self) -> dict[str, int | None]:
        """The batch axis of every input that a caller feeds, by name; None for an input without one."""
        return {public: self._runners[graph].fed[name] for public, (graph, name) in self._inputs.items()}

    @property
    def batched(self) -> dict[str, int]:
        """The batch axis of every output, by name; empty if the graphs have none."""
        found = {public: self._runners[graph].batched.get(name) for public, (graph, name) in self._outputs.items()}
        return {public: axis for public, axis in found.items() if axis is not None}

    @property
    def has_states(self) -> bool:
        """Whether one of the graphs has states."""
        return any(runner.has_states for runner in self._runners.values())

    @property
    def most_rows(self) -> int:
        """Largest number of rows that all graphs can run at once."""
        return min(runner.most_rows for runner in self._runners.values())

    def batching_fault(self) -> str | None:
        """Return why rows of several callers may not share a run, or None if they may."""
        return next((fault for runner in self._runners.values() if (fault := runner.batching_fault())), None)

    @property
    def slots(self) -> dict[str, int]:
        """The largest length of a stream by `graph.axis`, as `longest` returns it for each graph."""
        return {f"{name}.{axis}": most for name, runner in self._runners.items() for axis, most in runner.slots.items()}

    def initial_state(self, rows: int) -> StreamState:
        """Return the state of a new stream: the initial states of all graphs, joined."""
        return join_states(rows, {name: runner.initial_state(rows) for name, runner in self._runners.items()})

    # Feeds

    def check(self, where: str, feeds: Mapping[str, Array], rows: int = 1, *, copy: bool = False) -> Feed:
        """Check a feed and return it, with arrays by the names of callers and sizes by `graph.axis`.

        Raises:
            BadInput: the feed does not fit a graph, or an output on a wire does not fit the next graph.
        """
        by_graph = self._sorted(where, feeds)
        sizes: dict[str, Mapping[str, int]] = {}
        arrays: dict[str, Mapping[str, Array]] = {}
        for name, runner in self._runners.items():
            feed = runner.check(f"{where}: graph {name!r}", by_graph[name], rows, self._stand_ins(name, sizes), copy)
            sizes[name], arrays[name], rows = feed.sizes, feed.arrays, feed.rows
        return self._feed({public: arrays[graph][name] for public, (graph, name) in self._inputs.items()}, sizes, rows)

    def check_ragged(
        self, where: str, feeds: Mapping[str, Array], lengths: Mapping[str, RowLengths], copy: bool = False
    ) -> list[Feed]:
        """Return one checked feed per row; `lengths` are those of the graphs that take from no other.

        Raises:
            BadInput: as for `check`, or the lengths are wrong.
        """
        arrays_of = self._sorted(where, feeds)
        lengths_of = self._sorted_lengths(where, lengths)
        rows_of: dict[str, list[Feed]] = {}
        for name, runner in self._runners.items():
            place = f"{where}: graph {name!r}"
            if name in lengths_of:
                rows_of[name] = runner.check_ragged(place, arrays_of[name], lengths_of[name], copy)
            else:
                rows = len(next(iter(rows_of.values()))) if rows_of else 1
                rows_of[name] = [
                    runner.check(f"{place}: row {row}", arrays, 1, self._stand_ins(name, _sizes(rows_of, row)), copy)
                    for row, arrays in enumerate(self._rows_of(place, runner, arrays_of[name], rows))
                ]
        counts = {name: len(graph_rows) for name, graph_rows in rows_of.items()}
        if len(set(counts.values())) > 1:
            _refuse(where, "one number of rows", show(counts), "feed the same rows to all graphs")
        return [self._row(rows_of, row) for row in range(next(iter(counts.values())))]

    def split(self, feed: Feed) -> list[Feed]:
        """Split a feed into parts of at most `most_rows` rows, in order."""
        most = self.most_rows
        if feed.rows <= most:
            return [feed]
        return [self._part(feed, slice(start, start + most)) for start in range(0, feed.rows, most)]

    def plan(self, feeds: Sequence[Feed]) -> list[list[int]]:
        """Return one group per feed: the feeds of a pipeline share runs graph by graph, not as a whole."""
        return [[number] for number in range(len(feeds))]

    def feed_of(self, feed: Feed, graph: str) -> Feed:
        """Return the part of a caller's feed that one graph takes; inputs filled by wires have no array yet."""
        arrays = {name: feed.arrays[public] for public, (at, name) in self._inputs.items() if at == graph}
        sizes = {axis: feed.sizes[f"{graph}.{axis}"] for axis in self._runners[graph].graph.axes}
        return Feed(arrays, sizes, feed.rows)

    def _sorted(self, where: str, feeds: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
        """Return a caller's arrays by graph and input."""
        names = ", ".join(repr(name) for name in self._inputs) or "none"
        if not isinstance(feeds, Mapping):
            _refuse(where, "a mapping of input names to arrays", f"a {type(feeds).__name__}", "write {'name': array}")
        for public in feeds:
            if public not in self._inputs:
                _refuse(where, f"the inputs {names}", f"unknown input {show(public)}", "leave it out")
        by_graph: dict[str, dict[str, Array]] = {name: {} for name in self._runners}
        for public, (graph, name) in self._inputs.items():
            if public not in feeds:
                _refuse(where, f"the inputs {names}", f"no {public!r}", "feed it")
            by_graph[graph][name] = feeds[public]
        return by_graph

    def _sorted_lengths(self, where: str, lengths: Mapping[str, RowLengths]) -> dict[str, dict[str, RowLengths]]:
        """Return a caller's lengths by graph and axis."""
        names = ", ".join(repr(name) for name in self._lengths) or "none"
        if not isinstance(lengths, Mapping):
            _refuse(where, "lengths as a mapping", f"a {type(lengths).__name__}", "write {'axis': [length of a row]}")
        found: dict[str, dict[str, RowLengths]] = {}
        for public, rows in lengths.items():
            if public not in self._lengths:
                _refuse(where, f"lengths of the axes {names}", show(public), "correct the name or leave it out")
            graph, axis = self._lengths[public]
            found.setdefault(graph, {})[axis] = rows
        return found

    def _stand_ins(self, graph: str, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Array]:
        """Return placeholder arrays without memory, in the right sizes, for the inputs that wires fill."""
        found = {}
        for wire in self.wiring:
            if wire.to_graph == graph:
                tensor = self.output_of(wire)
                shape = static_shape(tensor.shape, sizes[wire.from_graph])
                found[wire.input] = np.broadcast_to(np.zeros((), tensor.dtype), shape)
        return found

    def output_of(self, wire: Wire) -> Tensor:
        """Return the output that a wire starts from."""
        outputs = self._runners[wire.from_graph].graph.outputs
        return next(tensor for tensor in outputs if tensor.name == wire.output)

    def _rows_of(
        self, where: str, runner: GraphRunner, arrays: Mapping[str, Array], rows: int
    ) -> Iterator[dict[str, Array]]:
        """Yield the arrays of each row of a caller's feed, for a graph without lengths from the caller."""
        axes = runner.fed
        for name, array in arrays.items():
            axis = axes[name]
            if axis is not None and (not isinstance(array, np.ndarray) or array.ndim <= axis):
                _refuse(f"{where}: {name!r}", "an array with rows", show(array), "feed a NumPy array")
            if axis is not None and array.shape[axis] != rows:
                _refuse(f"{where}: {name!r}", f"{rows} rows", str(array.shape[axis]), "feed the same rows everywhere")
        for row in range(rows):
            yield {
                name: array if (axis := axes[name]) is None else array[(*(slice(None),) * axis, slice(row, row + 1))]
                for name, array in arrays.items()
            }

    def _row(self, rows_of: Mapping[str, Sequence[Feed]], row: int) -> Feed:
        arrays = {public: rows_of[graph][row].arrays[name] for public, (graph, name) in self._inputs.items()}
        return self._feed(arrays, _sizes(rows_of, row), 1)

    def _part(self, feed: Feed, rows: slice) -> Feed:
        count = len(range(feed.rows)[rows])
        arrays = dict(feed.arrays)
        for public, axis in self.fed.items():
            if axis is not None:
                arrays[public] = arrays[public][(*(slice(None),) * axis, rows)]
        batch = {f"{name}.{runner.graph.batch_axis}": count for name, runner in self._runners.items()}
        return Feed(arrays, {**feed.sizes, **{axis: n for axis, n in batch.items() if axis in feed.sizes}}, count)

    def _feed(self, arrays: Mapping[str, Array], sizes: Mapping[str, Mapping[str, int]], rows: int) -> Feed:
        return Feed(
            arrays, {f"{graph}.{axis}": size for graph, own in sizes.items() for axis, size in own.items()}, rows
        )


Runnable = GraphRunner | Pipeline
"""What a request or a stream runs: one graph, or the wired graphs together."""


def _sizes(rows_of: Mapping[str, Sequence[Feed]], row: int) -> dict[str, Mapping[str, int]]:
    return {name: found[row].sizes for name, found in rows_of.items()}


def _ends(wire: Wire) -> Place:
    return wire.from_graph, wire.to_graph


def _in_order(names: Sequence[str], wiring: Sequence[Wire]) -> tuple[str, ...]:
    """Return graph names without cycles, each after those it takes from, else in the order of the manifest."""
    found: list[str] = []
    while len(found) < len(names):
        found.append(
            next(
                name
                for name in names
                if name not in found and all(wire.from_graph in found for wire in wiring if wire.to_graph == name)
            )
        )
    return tuple(found)


def _public_names(places: Iterable[Place]) -> dict[str, Place]:
    """Return names for callers: the own name if one graph has it, else `graph.name`."""
    found = list(places)
    count = collections.Counter(name for _, name in found)
    return {name if count[name] == 1 else f"{graph}.{name}": (graph, name) for graph, name in found}


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
