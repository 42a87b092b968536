"""Replays steps of a certificate on the worst values: each row alone without padding, and all rows together padded."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
from onnx import helper  # noqa: TID251 - nothing of the prover's vocabulary

from compiler.checker.compare import DiffersFromAlone, compare_output
from compiler.checker.double_precision import is_rounding
from compiler.checker.free_axes import SHORTEST, free_size
from compiler.checker.graph import Array, DoesNotRun, Graph, Part, Record, Rejected
from compiler.checker.same_run import digest_of_run
from compiler.checker.slots import Layout, Lengths, size_of
from compiler.checker.values import count_positions, worst_values

SUMS_OF_PRODUCTS = ("MatMul", "Gemm", "Einsum")

PASSING_ON = ("Where", "Identity", "Dropout", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast")
"""Operators behind which weights are still weights."""

TRIED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 30)
"""How much longer than the shortest the axes are, each by another step, when a value is the same for all lengths."""

FURTHEST = 2**16
"""Numbers beyond are not tried as lengths: running so long an input takes too long."""

MOST_KEPT = 2**18
"""Elements of the largest value that is kept for later steps."""

LOOKUPS = ("Gather", "GatherElements", "GatherND")

FINITE = 1e6
"""Valid entries that are assumed to be finite are drawn within this bound."""


class Replay:
    """Runs steps.

    Args:
        before: the graph before padding.
        after: the padded graph.
        certificate: its header lists the axes, lengths and masks.
        seeds: draws per distinct step.
        survived: digests of runs, of other certificates too, that need not be run again; more is added.
    """

    def __init__(
        self, before: Graph, after: Graph, certificate: Record, seeds: int, survived: set[bytes] | None = None
    ) -> None:
        self.before, self.after, self.seeds = before, after, seeds
        self.survived = set() if survived is None else survived
        self.batch: str | None = certificate["batch"]
        self.sides: Mapping[str, str] = certificate["sides"]
        self.lengths_of: Mapping[str, str] = certificate["length_inputs"]
        self.masks: Mapping[str, Sequence[str]] = certificate["mask_inputs"]
        self.becomes: Mapping[str, str] = certificate["becomes"]
        self.minimum: Mapping[str, int] = certificate["minimum"]
        self.maximum: Mapping[str, int] = certificate.get("maximum", {})
        self.ranges: Mapping[str, Sequence[int]] = certificate.get("ranges", {})  # of older ones none is told
        self.made_by: dict[str, Record] = {
            name: record for record in certificate["records"] for name in record["outputs"] if name
        }
        names = {
            dim for name in before.inputs for dim in before.dims(name) if isinstance(dim, str) and dim.isidentifier()
        }
        self.free = names - set(self.sides) - {self.batch}
        """Axes that are as long in both programs, and for all rows."""
        self.free_size = SHORTEST
        self.read = {name for node in after.nodes.values() for name in node.input} | set(after.outputs)
        self.was = dict(self._replaced(certificate["records"]))
        """What a node read before, by what it reads now: values that are cleaned, or computed in another form."""
        self.parts: dict[tuple[int, str], Part] = {}
        self.numbers: dict[tuple[int, str, tuple[tuple[str, int], ...]], Array] = {}
        self.replayed: set[bytes] = set()
        self.sizes: dict[str, bool] = {}
        self.same: dict[str, Mapping[str, int] | None] = {}
        """Lengths at which a value is what it is at all that are tried; None of one that changes."""

    def replay(self, record: Record) -> None:
        """Run a step unpadded and padded, and compare the results."""
        assumed = {record["inputs"][operand]: what for operand, what in record.get("assumes", ())}
        record = self.opened(self._with_live_outputs(record))
        wanted = [self.becomes.get(name, name) for name in record["outputs"]]
        kinds: dict[str, int] = {}
        for name, fact in zip(record["inputs"], record["in"], strict=True):
            if name is None or fact is None or self._is_computed(name, record):
                continue
            if fact["axes"] or fact.get("number") or not self.is_fixed(name):
                kinds[name] = self.element_type(name)
        padded_kinds = {self.becomes.get(name, name): kind for name, kind in kinds.items()}
        try:
            padded = self.after.part(wanted, padded_kinds)
            unpadded_kinds = {self.was.get(name, name): kind for name, kind in kinds.items()}
            alone = None if record.get("inserted") else self.before.part(record["outputs"], unpadded_kinds)
        except Rejected as error:
            raise Rejected(f"record of {record['node']!r}: {error}") from None
        key = padded.digest(record)
        if key in self.replayed:
            return
        self.replayed.add(key)
        run = self._run_of(record, alone, padded, kinds, assumed)
        if run in self.survived:
            return
        for seed in range(self.seeds):
            rng = np.random.default_rng(seed)
            lengths = self._lengths(rng, seed)
            self._compare(record, alone, padded, kinds, lengths, rng, assumed, edges=seed % 2 == 1)
        self.survived.add(run)

    def _run_of(
        self, record: Record, alone: Part | None, padded: Part, kinds: Mapping[str, int], assumed: Mapping[str, str]
    ) -> bytes:
        """Return a digest of everything that running a step depends on, including names and weights."""
        axes = {axis: (side, self.minimum.get(axis), self._fixed_slots(axis)) for axis, side in self.sides.items()}
        names = [*record["inputs"], *record["outputs"]]
        told = [
            self.seeds, self.batch, axes, self.lengths_of, self.masks, sorted(self.free), self.free_size, record, kinds,
            assumed, [(self.becomes.get(name), self.was.get(name)) for name in names],
        ]  # fmt: skip
        parts = {"padded": (self.after, padded)} | ({} if alone is None else {"alone": (self.before, alone)})
        for name in filter(self.is_size, kinds):  # computed of sizes, not drawn
            now = self.becomes.get(name, name)
            parts[f"{name} alone"] = (self.before, self._part(self.before, name))
            if now in self.after.producers:
                parts[f"{name} padded"] = (self.after, self._part(self.after, now))
        return digest_of_run(told, parts)

    def _replaced(self, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
        """Yield the inputs of records that had another name before padding, with that name."""
        for record in records:
            node = self.before.nodes.get(record.get("chain", [record["node"]])[0])
            for name, old in zip(record["inputs"], () if node is None else node.input, strict=False):
                if name and name != old:
                    yield name, old

    def is_size(self, name: str) -> bool:
        """Whether a value before padding depends on shapes of inputs alone."""
        if name not in self.sizes:
            node = self.before.producers.get(name)
            if node is None:
                self.sizes[name] = name in self.before.initializers
            else:
                reads_shapes = node.op_type in ("Shape", "Size")
                self.sizes[name] = reads_shapes or all(self.is_size(each) for each in node.input if each)
        return self.sizes[name]

    def is_fixed(self, name: str) -> bool:
        """Whether a value is a constant of either graph, or computed from constants."""
        if self.before.constant(name) is not None or self.after.constant(name) is not None:
            return True
        return name in self.after.producers and self.computed(name) is not None

    def _with_live_outputs(self, record: Record) -> Record:
        """Return the record without outputs that have no name, or that a rewrite dropped as unread."""
        names = [self.becomes.get(name, name) for name in record["outputs"]]
        live = [at for at, name in enumerate(names) if name and (name in self.after.producers or name in self.read)]
        keys = ("outputs", "out", "out_shapes")
        return record if len(live) == len(names) else {**record, **{k: [record[k][at] for at in live] for k in keys}}

    def opened(self, record: Record) -> Record:
        """Return a sum of products merged with the Softmax of its weights, as drawn weights would not add up to one."""
        if record["op"] not in SUMS_OF_PRODUCTS:
            return record
        operands = {
            name: (fact, shape)
            for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True)
        }
        while weights := next((name for name in operands if name and self._is_weights(name)), None):
            del operands[weights]
            maker = self.made_by[weights]
            for name, fact, shape in zip(maker["inputs"], maker["in"], maker["in_shapes"], strict=True):
                if not self._is_computed(name, maker):
                    operands.setdefault(name, (fact, shape))
        facts, shapes = zip(*operands.values(), strict=True)
        return {**record, "inputs": list(operands), "in": facts, "in_shapes": shapes}

    def _is_weights(self, name: str) -> bool:
        """Whether a value comes from a Softmax, possibly with replaced entries."""
        made = self.made_by.get(name)
        if made is None or made.get("chain"):
            return False
        passes_on = made["op"] in PASSING_ON
        return made["op"] == "Softmax" or (passes_on and any(self._is_weights(each) for each in made["inputs"] if each))

    def _of_sizes(self, name: str, fact: Record) -> bool:
        """Whether a value depends on axis lengths alone, so that it cannot be drawn."""
        if fact.get("number"):
            return True
        return not self.is_fixed(name) and self.is_size(name) and (bool(fact["axes"]) or not self.moves(name))

    def _is_computed(self, name: str, record: Record) -> bool:
        """Whether an input is the IsNaN of another input of the same step, so that it is computed, not drawn."""
        node = self.before.producers.get(name)
        return node is not None and node.op_type == "IsNaN" and node.input[0] in record["inputs"]

    def computed(self, name: str) -> Array | None:
        """Return a value before padding that depends on neither data nor lengths; None for other values."""
        if not self.is_size(name) or name not in self.before.producers:
            return None
        part = self._part(self.before, name)
        return None if part.sources else part.run({})[0]

    def alike(self, name: str) -> Array | None:
        """Return a value that depends on no data and is the same at all tried lengths, such as a width; else None."""
        if name not in self.same:
            found = self._tried(name, self.free) if self.is_size(name) else []
            is_same = len(found) > 1 and all(np.array_equal(found[0][1], each) for _, each in found)
            self.same[name] = found[0][0] if is_same else None
        sizes = self.same[name]
        return None if sizes is None else self._number(self.before, name, sizes)

    def moves(self, name: str) -> bool:
        """Whether a value that depends on no data changes with padded axes or the batch at some tried length."""
        if not self.is_size(name) or self.alike(name) is not None:
            return False
        found = self._tried(name, set())
        return not all(np.array_equal(found[0][1], each) for _, each in found)

    def _tried(self, name: str, free: Set[str]) -> list[tuple[Mapping[str, int], Array]]:
        """Return a value that depends on sizes at every length of `TRIED`, and near the numbers it is compared with.

        Args:
            name: the value.
            free: those of the changing axes that have the same size in both programs.
        """
        least = {axis: self.minimum.get(axis, 1) for axis in {*self.sides, *free}}
        least |= {} if self.batch is None else {self.batch: 1}
        part = self._part(self.before, name)
        numbers = {number + more for number in part.integers() for more in (-1, 0, 1)}
        steps = sorted({*TRIED, *(number - 1 for number in numbers if 0 < number <= FURTHEST)})
        if not part.sources:
            steps = steps[:2]  # no length reaches it; twice, as what is drawn at random is another one each time
        by_sizes: list[tuple[Mapping[str, int], Array]] = []
        for draw in range(len(steps)):
            sizes = {
                axis: least[axis] + steps[(draw + number) % len(steps)] for number, axis in enumerate(sorted(least))
            }
            with contextlib.suppress(Exception):  # longer than a table, or so: nothing is claimed of such a length
                sizes = dict.fromkeys(self.free, self.free_size) | sizes
                by_sizes.append((sizes, self._number(self.before, name, sizes)))
        return by_sizes

    def element_type(self, name: str) -> int:
        """Return the element type of a value, as in `onnx.TensorProto`.

        Raises:
            Rejected: neither graph states the type.
        """
        for graph in (self.before, self.after):
            if name in graph.types:
                return int(graph.types[name].tensor_type.elem_type)
        raise Rejected(f"the type of {name!r} is unknown")

    def settle_free_axes(self) -> None:
        """Choose a size of the axes that are equal in both programs at which the original runs."""
        self.free_size = free_size(self.before, self.free, self.alone, self.ranges)

    def alone(self, more: int, free: int | None = None) -> dict[str, int]:
        """Return the lengths of a single row: the shortest allowed ones plus `more`."""
        rows = {} if self.batch is None else {self.batch: 1}
        own = dict.fromkeys(self.free, free or self.free_size)
        return own | {axis: self.minimum.get(axis, 1) + more for axis in self.sides} | rows

    def _lengths(self, rng: np.random.Generator, seed: int) -> Lengths:
        """Draw lengths of two rows and a number of slots that is larger, except for windows of a fixed size.

        The first draw is as short as allowed.
        """
        slots, rows = {}, [{}, {}]  # type: ignore[var-annotated]
        for axis in sorted(self.sides):
            least = self.minimum.get(axis, 1)
            short = least + (int(rng.integers(0, 3)) if seed else 0)
            long = short + int(rng.integers(1, 4))
            fixed = self._fixed_slots(axis)
            if fixed is not None:  # no row has more entries than there are slots
                short, long = min(short, fixed), min(long, fixed)
            slots[axis] = fixed or long + int(rng.integers(1, 4))
            most = max(self.maximum.get(axis, slots[axis]), least)  # of more slots nothing is claimed
            slots[axis], short, long = min(slots[axis], most), min(short, most), min(long, most)
            rows[0][axis], rows[1][axis] = (short, long) if seed % 2 == 0 else (long, short)
        true = rows if self.batch is not None else rows[:1]
        if self.batch is not None:
            true = [row | {self.batch: 1} for row in true]
            slots[self.batch] = 2
        for axis in sorted(self.free):
            slots[axis] = self.free_size + int(rng.integers(0, 3))
            true = [row | {axis: slots[axis]} for row in true]
        return Lengths(slots, true)

    def _fixed_slots(self, axis: str) -> int | None:
        """Return the number of slots of an axis that padding has made static; None for other axes."""
        for name in self.before.inputs:
            for was, now in zip(
                self.before.dims(name), self.after.dims(name) if name in self.after.inputs else [], strict=False
            ):
                if was == axis and isinstance(now, int):
                    return now
        return None

    def _compare(
        self,
        record: Record,
        alone: Part | None,
        padded: Part,
        kinds: Mapping[str, int],
        lengths: Lengths,
        rng: np.random.Generator,
        assumed: Mapping[str, str],
        *,
        edges: bool,
    ) -> None:
        where = f"record of {record['node']!r} ({record['op']})"
        layouts = {
            name: Layout(fact, shape, lengths, self.batch)
            for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True)
            if name in kinds
        }
        for most in (3, 1, 0):
            drawn = {
                name: np.asarray(self._draw(name, layout, kinds[name], lengths, rng, most, edges, assumed.get(name)))
                for name, layout in layouts.items()
            }
            references, rows = [], []
            try:
                for row in range(len(lengths.true)):
                    feeds = {
                        name: self._alone(name, drawn[name], layout, lengths, row) for name, layout in layouts.items()
                    }
                    rows.append({self.was.get(name, name): array for name, array in feeds.items()})
                    sizes = () if alone is None else alone.sources.keys() - rows[row].keys()
                    rows[row] |= {name: self._zeros(self.before, name, lengths.true[row]) for name in sizes}
                    references.append([feeds[record["inputs"][0]]] if alone is None else alone.run(rows[row]))
            except DoesNotRun:  # the draw is not legal for the operator: draw smaller indices
                continue
            break
        else:
            index = record["inputs"][1] if record["op"] in LOOKUPS else None
            if index is not None and index in layouts and self._of_sizes(index, layouts[index].record):
                raise Rejected(f"{where}: chooses entries that are not there at lengths {lengths.true}")
            return  # the operator takes no such values at all; nothing is claimed of it
        feeds = {self.becomes.get(name, name): array for name, array in drawn.items()}
        feeds |= {name: self._source(name, lengths) for name in padded.sources if name not in feeds}
        try:
            results = padded.run(feeds)
        except Exception as error:  # noqa: BLE001 - whatever stops the padded program refutes the certificate
            raise Rejected(f"{where}: runs alone, but not padded: {str(error)[:200]}") from None
        for position, (fact, shape) in enumerate(zip(record["out"], record["out_shapes"], strict=True)):
            if fact.get("number"):
                continue
            layout = Layout(fact, shape, lengths, self.batch)
            wanted: list[Array | None] = [reference[position] for reference in references]
            try:
                compare_output(f"{where}, output {position}", layout, results[position], wanted)
            except DiffersFromAlone as differs:
                computed = [name for name, layout_of in layouts.items() if self._of_sizes(name, layout_of.record)]
                lost = [
                    any(self._is_rounding(name, true) for name in computed)
                    or (alone is not None and is_rounding(alone, fed, gave, position))
                    for true, fed, gave in zip(lengths.true, rows, references, strict=True)
                ]
                if not lost[differs.row]:
                    raise
                wanted = [None if none else reference for none, reference in zip(lost, wanted, strict=True)]
                compare_output(f"{where}, output {position}", layout, results[position], wanted)

    def _alone(self, name: str, drawn: Array, layout: Layout, lengths: Lengths, row: int) -> Array:
        if self._of_sizes(name, layout.record):
            return self._number(self.before, name, lengths.true[row])
        return drawn[layout.chosen(row)] if drawn.ndim else drawn

    def _number(self, graph: Graph, name: str, values: Mapping[str, int]) -> Array:
        """Return a value that depends on sizes alone, computed once, as many steps read it.

        One as large as weights is computed every time: it is moved weights, and keeping it would keep a copy.
        """
        key = (id(graph), name, tuple(sorted(values.items())))
        if key in self.numbers:
            return self.numbers[key]
        part = self._part(graph, name)
        array = part.run({source: self._zeros(graph, source, values) for source in part.sources})[0]
        if array.size <= MOST_KEPT:
            self.numbers[key] = array
        return array

    def _is_rounding(self, name: str, values: Mapping[str, int]) -> bool:
        """Whether a value that depends on sizes alone differs in double precision."""
        part = self._part(self.before, name)
        feeds = {each: self._zeros(self.before, each, values) for each in part.sources}
        return is_rounding(part, feeds, [self._number(self.before, name, values)])

    def _part(self, graph: Graph, name: str) -> Part:
        """Return the nodes that compute a value from graph inputs."""
        key = (id(graph), name)
        if key not in self.parts:
            self.parts[key] = graph.part([name], {})
        return self.parts[key]

    def _zeros(self, graph: Graph, name: str, values: Mapping[str, int]) -> Array:
        info = graph.inputs[name].type.tensor_type
        shape = [size_of(dim, values) for dim in graph.dims(name)]
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(info.elem_type))

    def _source(self, name: str, lengths: Lengths) -> Array:
        """Return a graph input that masks read: a length input, a mask input, or any other, for its shape."""
        for axis, length_input in self.lengths_of.items():
            if name == length_input:
                return np.array([row[axis] for row in lengths.true], np.int64)
        if name in self.masks:
            size, side = self.masks[name]
            slots = size_of(size, lengths.slots)
            counts = np.array([[size_of(size, row)] for row in lengths.true])
            places = np.arange(slots)[None]
            return (places < counts if side == "left" else places >= slots - counts).astype(np.float32)
        return self._zeros(self.after, name, lengths.slots)

    def _draw(
        self,
        name: str,
        layout: Layout,
        kind: int,
        lengths: Lengths,
        rng: np.random.Generator,
        most: int,
        edges: bool,
        assumed: str | None,
    ) -> Array:
        """Draw a padded value as extreme as its fact allows; valid entries satisfy the assumption on them."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        alike = None if layout.axes or layout.record.get("number") else self.alike(name)
        if alike is not None:
            return alike
        if self._of_sizes(name, layout.record):
            now = self.becomes.get(name, name)
            if now not in self.after.producers:  # made again for every row where it was read
                return self._number(self.before, name, lengths.slots)
            part = self._part(self.after, now)
            return part.run({source: self._source(source, lengths) for source in part.sources})[0]
        low, high = np.full(layout.shape, -math.inf), np.full(layout.shape, math.inf)
        nan, padding = np.ones(layout.shape, bool), np.ones(layout.shape, bool)
        for row in range(len(lengths.true)):  # what all rows share must suit every one of them
            for region, places in layout.regions(row):
                allowed = layout.content(region)
                here = places if layout.shape else ()
                if allowed[0] > -math.inf:
                    low[here] = np.maximum(low[here], allowed[0])
                if allowed[1] < math.inf:
                    high[here] = np.minimum(high[here], allowed[1])
                nan[here] &= allowed[2]
                padding[here] &= bool(region)
        if assumed is not None:
            nan &= padding
        if assumed == "finite":
            low, high = (np.where(padding, bound, np.clip(bound, -FINITE, FINITE)) for bound in (low, high))
        array = worst_values(low, np.maximum(low, high), nan, padding, rng, dtype, most, edges=edges)
        index = layout.record.get("index")
        if index is not None:
            count_positions(array, layout, int(index["axis"]), size_of(index["offset"], lengths.slots), lengths)
        with np.errstate(all="ignore"):
            return array.astype(dtype)
