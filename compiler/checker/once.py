"""Checks a pass's record of the values that a graph computes only in the first call of a stream and then keeps.

The record names the inputs that a stream is fed alike in every call, and per value that is kept the state that carries
it and what stands in its place. Nothing of it is taken on trust:

1. Source: in the graph before, the value is computed of these inputs and their true lengths; of others, sizes count.
2. Wiring: every node that was there computes what it computed, of what stands in the place of the values that are kept.
3. Replay: streams begin and go on, rows at different times, in calls of several sizes. What a stream is fed later, what
   lies behind true lengths and what states hold in front of a first call is poison. What stands for a value is what the
   graph before makes of each row alone, and behind its true length of zeros: what padding was proved with.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper  # noqa: TID251 - nothing of the prover's vocabulary

from compiler.checker.compare import is_near
from compiler.checker.graph import Array, DoesNotRun, Graph, Part, Record, Rejected, Weights, numbers_of
from compiler.checker.slots import names_in, size_of

KIND = "once"
"""What a record calls itself."""

DRAWING = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Operators that give other numbers in every run."""

ROWS = 3

ANEW = ((0, 1, 2), (), (1,), ())
"""Rows that begin, in every call of a replay; the others go on."""

LEGAL_INDICES = 2
"""Whole numbers of which nothing is told are drawn below: a table has as many rows."""


def check_once(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    record: Record,
    *,
    seeds: int = 2,
    weights: Weights = MappingProxyType({}),
) -> int:
    """Replay a record of values that are computed once per stream.

    Args:
        before: the graph that computes them in every call, with weights and the types of all values.
        after: the graph that carries them.
        record: `inputs`, `batch`, `lengths` (per axis with slots, its `input` of true lengths and `minimum`), `slots`,
            `begun` (`input` and `output` of the state that marks rows whose stream begins), `ranges` (the smallest and
            the largest number of inputs), and `kept`, per value its name, what `stands` for it, and `input` and
            `output` of its state.
        seeds: draws.
        weights: content of the weights that the graphs refer to.

    Returns:
        The number of kept values.

    Raises:
        Rejected: a check fails; the message names the value or node, and the difference.
    """
    check = _Once(Graph(before, weights), Graph(after, weights), record)
    check.require_named()
    for kept_value in check.kept:
        check.require_alike(kept_value["value"])
    check.require_wired()
    for seed in range(seeds):
        check.replay(np.random.default_rng(seed))
    return len(check.kept)


@dataclasses.dataclass(frozen=True)
class _Row:
    """What one stream is fed alike in every call.

    Attributes:
        lengths: true lengths by axis.
        arrays: by input, without the rows axis, as long as they truly are.
    """

    lengths: Mapping[str, int]
    arrays: Mapping[str, Array]


class _Once:
    def __init__(self, before: Graph, after: Graph, record: Record) -> None:
        self.before, self.after, self.record = before, after, record
        self.inputs: Sequence[str] = record["inputs"]
        self.kept: Sequence[Record] = record["kept"]
        self.lengths: Mapping[str, Record] = record["lengths"]
        self.slots: int = record["slots"]

    def require_named(self) -> None:
        """Require that inputs have rows and named axes, and that states are the added ones, each once."""
        told = [*self.inputs, *(length["input"] for length in self.lengths.values())]
        for name in told:
            if name not in self.before.inputs or name not in self.after.inputs:
                raise Rejected(f"input {name!r} is not there")
        for name in self.inputs:
            first, *others = self.before.dims(name)
            unknown = [dim for dim in others if isinstance(dim, str) and dim not in self.lengths]
            if first != self.record["batch"] or unknown:
                raise Rejected(f"input {name!r}: {unknown or first} is no axis of which a stream has one size")
        states = [*self.kept, self.record["begun"]]
        for end, old, new in (
            ("input", set(self.before.inputs), list(self.after.inputs)),
            ("output", set(self.before.outputs), self.after.outputs),
        ):
            named = [state[end] for state in states]
            if sorted([*old, *named]) != sorted(new):
                raise Rejected(f"the {end}s of the graph are {sorted(new)}, not what it had and {sorted(named)}")
        if not self.kept:
            raise Rejected("nothing is kept")

    def require_alike(self, value: str) -> None:
        """Require that a value depends only on inputs that are the same in all calls of a stream."""
        part = self.before.part([value], {})
        given = {*self.inputs, *(each["input"] for each in self.lengths.values())}
        for node in part.nodes:
            if node.op_type in DRAWING or any(each.type in _BODIES for each in node.attribute):
                raise Rejected(f"value {value!r}: {node.name!r} ({node.op_type}) may give something else in every call")
            for name in node.input:
                if name in part.sources and name not in given and node.op_type != "Shape":
                    raise Rejected(f"value {value!r} is computed of {name!r}, too, which is fed anew in every call")

    def require_wired(self) -> None:
        """Require that all old nodes are unchanged, except for reading replacements of kept values."""
        stands = {kept_value["value"]: kept_value["stands"] for kept_value in self.kept}
        had = {*self.before.producers, *self.before.inputs, *self.before.initializers}
        had -= {value for value, name in stands.items() if value == name}  # an output that keeps its name
        for node in self.after.nodes.values():
            known = self.before.nodes.get(node.name)
            if known is None:
                if taken := had & set(node.output):
                    raise Rejected(f"node {node.name!r} is new and gives {min(taken)!r}, which was there")
                continue
            reads = [(name, stands.get(name, name)) for name in known.input]
            same = len(reads) == len(node.input) and all(n in pair for n, pair in zip(node.input, reads, strict=True))
            if not same or _what_it_is(node) != _what_it_is(known):
                raise Rejected(f"node {node.name!r} is not what it was")
        for name in self.before.initializers.keys() & self.after.initializers.keys():
            arrays = [numbers_of(graph.initializers[name], graph.weights) for graph in (self.before, self.after)]
            if arrays[0] is arrays[1]:
                continue
            if arrays[0].shape != arrays[1].shape or arrays[0].tobytes() != arrays[1].tobytes():
                raise Rejected(f"constant {name!r} is not what it was")

    def replay(self, random: np.random.Generator) -> None:
        """Run streams that begin and continue, and compare; see the module docstring."""
        values, states = [kept_value["value"] for kept_value in self.kept], [*self.kept, self.record["begun"]]
        alone = self.before.part(values, {})
        call = self.after.part(
            [*(kept_value["stands"] for kept_value in self.kept), *(state["output"] for state in states)], {}
        )
        rows = [self._drawn(random) for _ in range(ROWS)]
        carried: dict[str, Array] = {}
        for number, begin in enumerate(ANEW):
            if number:
                rows = [self._drawn(random) if row in begin else row_of_call for row, row_of_call in enumerate(rows)]
            sizes = {
                axis: max(row_of_call.lengths[axis] for row_of_call in rows) if begin else self.slots
                for axis in self.lengths
            }
            feeds = self._other_sizes(call, random, ROWS, sizes) | self._fed(rows, begin, sizes, random)
            feeds |= self._states(carried, begin)
            results = self._run(call, feeds, f"call {number}")
            carried = {state["input"]: array for state, array in zip(states, results[len(values) :], strict=True)}
            for row, row_of_call in enumerate(rows):
                self._compare(
                    alone, row_of_call, [array[row] for array in results[: len(values)]], sizes, f"row {row}", random
                )

    def _drawn(self, random: np.random.Generator) -> _Row:
        lengths = {
            axis: int(random.integers(max(each["minimum"], 1), self.slots + 1)) for axis, each in self.lengths.items()
        }
        return _Row(lengths, {name: self._numbers(name, lengths, random) for name in self.inputs})

    def _numbers(self, name: str, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
        shape = [size_of(dim, sizes) for dim in self.before.dims(name)[1:]]
        dtype = _dtype(self.before, name)
        is_whole = dtype.kind in "iub"
        low, high = self.record.get("ranges", {}).get(name, (0, LEGAL_INDICES - 1))  # of older ones none is told
        numbers = random.integers(low, high + 1, shape) if is_whole else random.uniform(-1, 1, shape)
        return np.asarray(numbers).astype(dtype)

    def _fed(
        self, rows: Sequence[_Row], begin: Sequence[int], sizes: Mapping[str, int], random: np.random.Generator
    ) -> dict[str, Array]:
        """Return the feed of one call: new rows get their numbers, with poison behind them and in continuing rows."""
        feeds = {
            length["input"]: np.array([row.lengths[axis] for row in rows], _dtype(self.before, length["input"]))
            for axis, length in self.lengths.items()
        }
        for name in self.inputs:
            arrays = [self._numbers(name, sizes, random) for _ in rows]
            for number, (row, array) in enumerate(zip(rows, arrays, strict=True)):
                if array.dtype.kind == "f":
                    array[...] = np.nan
                if number in begin:
                    array[tuple(slice(size) for size in row.arrays[name].shape)] = row.arrays[name]
            feeds[name] = np.stack(arrays)
        return feeds

    def _states(self, carried: Mapping[str, Array], begin: Sequence[int]) -> dict[str, Array]:
        """Return the states of one call: poison in rows that begin, except in the state that marks them."""
        begun, fed = self.record["begun"]["input"], {}
        for name in (*(each["input"] for each in self.kept), begun):
            shape = [size_of(dim, {self.record["batch"]: ROWS}) for dim in self.after.dims(name)]
            array = carried[name].copy() if carried else np.zeros(shape, _dtype(self.after, name))
            if list(array.shape) != shape:
                raise Rejected(f"state {name!r}: {list(array.shape)} comes back, {shape} is fed")
            array[list(begin)] = 0 if name == begun else np.nan
            fed[name] = array
        return fed

    def _other_sizes(
        self, part: Part, random: np.random.Generator, rows: int, known: Mapping[str, int]
    ) -> dict[str, Array]:
        """Return zeros for inputs of which only sizes may matter, of other sizes in every call."""
        sizes = dict(known)
        feeds = {}
        for name in part.sources:
            dims = (self.before if name in self.before.inputs else self.after).dims(name)
            for axis in sorted({each for dim in dims if isinstance(dim, str) for each in names_in(dim)}):
                sizes.setdefault(axis, rows if axis == self.record["batch"] else int(random.integers(1, 6)))
            feeds[name] = np.zeros([size_of(dim, sizes) for dim in dims], _dtype(self.after, name))
        return feeds

    def _compare(
        self, part: Part, row: _Row, found: Sequence[Array], sizes: Mapping[str, int], where: str,
        random: np.random.Generator,
    ) -> None:  # fmt: skip
        """Require that replacements equal the values of the row alone, and those of zeros behind its true length."""
        filled = {name: self._filled(name, array) for name, array in row.arrays.items()}
        lengths = {
            length["input"]: np.array([row.lengths[axis]], _dtype(self.before, length["input"]))
            for axis, length in self.lengths.items()
        }
        alone, padded = (
            self._run(part, self._other_sizes(part, random, 1, known) | lengths | _in_front(arrays), f"{where} alone")
            for arrays, known in ((row.arrays, row.lengths), (filled, dict.fromkeys(self.lengths, self.slots)))
        )
        for told, got, valid, whole in zip(self.kept, found, alone, padded, strict=True):
            name = f"{told['stands']!r}, which stands for {told['value']!r}: {where}"
            cut = whole[0][self._places(told["value"], sizes)]
            if got.shape != cut.shape or not is_near(got, cut).all():
                raise Rejected(f"{name} differs from what is computed in every call")
            true = got[self._places(told["value"], row.lengths)]
            if true.shape != valid[0].shape or not is_near(true, valid[0]).all():
                raise Rejected(f"{name} differs from the row alone")

    def _filled(self, name: str, array: Array) -> Array:
        """Return an array padded with zeros to all slots."""
        dims = zip(self.before.dims(name)[1:], array.shape, strict=True)
        return np.pad(array, [(0, self.slots - size if dim in self.lengths else 0) for dim, size in dims])

    def _places(self, value: str, sizes: Mapping[str, int]) -> tuple[slice, ...]:
        """Return the index of the first entries of one row of a value, along axes with slots."""
        if value not in self.before.types:
            raise Rejected(f"value {value!r}: nothing tells its axes")
        dims = [dim.dim_param or dim.dim_value for dim in self.before.types[value].tensor_type.shape.dim]
        return tuple(slice(sizes[dim] if dim in self.lengths else None) for dim in dims[1:])

    def _run(self, part: Part, feeds: Mapping[str, Array], where: str) -> list[Array]:
        try:
            return part.run(feeds)
        except DoesNotRun as error:
            raise Rejected(f"{where} does not run: {str(error)[:200]}") from None


_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _dtype(graph: Graph, name: str) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(graph.inputs[name].type.tensor_type.elem_type))


def _in_front(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays with an axis of one row in front."""
    return {name: array[None] for name, array in arrays.items()}


def _what_it_is(node: onnx.NodeProto) -> tuple[object, ...]:
    attributes = sorted(each.SerializeToString(deterministic=True) for each in node.attribute)
    return node.domain, node.op_type, tuple(node.output), tuple(attributes)
