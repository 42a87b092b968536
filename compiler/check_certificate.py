"""Checks a certificate by replaying every step of it, with nothing of the prover: only its records and two graphs.

The graph before and after padding and the certificate go in. The checker takes no rule on trust:

1. Structure: every node is still there, reads what it read, or what a recorded need put in its place.
2. Chain: what a record says of its inputs is what the record of their producer says, and of graph inputs, the worst.
3. Steps: every node is run by itself, unpadded row by row and padded with all rows at once, on values that the facts
   allow, with NaN, infinities and huge numbers wherever they do; valid places must agree, and the padding must hold
   what the record says.
4. Masks and forms: every inserted mask is computed from true lengths and compared with what is valid.

A step that survives is not proved by that, but the checker shares no rule, no table and no line with what proved it.
"""

import ast
import dataclasses
import fractions
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper  # noqa: TID251 - nothing of the prover's vocabulary

Array = npt.NDArray[Any]
Record = Mapping[str, Any]

TOLERANCE = 2e-4
"""Largest difference of a valid entry, relative to the largest of the step: sums may be taken in another order."""

SUMS_OF_PRODUCTS = ("MatMul", "Gemm", "Einsum")

HUGE = (math.nan, math.inf, -math.inf, 1e30, -1e30)
"""What lies where anything may lie."""


class Rejected(Exception):
    """The certificate does not hold; the message names node, step and what differs."""


@dataclasses.dataclass(frozen=True)
class Lengths:
    """One assignment of lengths: per axis the slots and the true length of every row."""

    slots: Mapping[str, int]
    true: Sequence[Mapping[str, int]]


def check(before: onnx.ModelProto, after: onnx.ModelProto, certificate: Record, *, seeds: int = 2) -> int:
    """Replay a certificate.

    Args:
        before: the graph as it was handed to padding, weights included, with axis names in the shapes of its inputs.
        after: the padded graph, with the same axis names.
        certificate: header and records.
        seeds: draws per distinct step.

    Returns:
        The number of steps replayed.

    Raises:
        Rejected: with the node and what differs.
    """
    return _Checker(before, after, certificate, seeds).run()


class _Graph:
    """A graph by names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = {node.name: node for node in model.graph.node}
        self.position = {node.name: at for at, node in enumerate(model.graph.node)}
        self.producers = {output: node for node in model.graph.node for output in node.output if output}
        self.initializers = {each.name: each for each in model.graph.initializer}
        self.inputs = {each.name: each for each in model.graph.input if each.name not in self.initializers}
        self.outputs = [each.name for each in model.graph.output]
        self.types = {
            each.name: each.type
            for each in itertools.chain(model.graph.value_info, model.graph.input, model.graph.output)
        }
        self.opsets = list(model.opset_import)

    def constant(self, name: str) -> Array | None:
        """The content of an initializer or Constant node."""
        if name in self.initializers:
            return numpy_helper.to_array(self.initializers[name])
        node = self.producers.get(name)
        if node is not None and node.op_type == "Constant" and node.attribute[0].HasField("t"):
            return numpy_helper.to_array(node.attribute[0].t)
        return None

    def dims(self, name: str) -> list[str | int]:
        """The shape of a graph input."""
        return [dim.dim_param or dim.dim_value for dim in self.inputs[name].type.tensor_type.shape.dim]

    def part(self, wanted: Sequence[str], given: Mapping[str, int]) -> tuple[onnx.ModelProto, list[str]]:
        """The nodes that compute `wanted` from graph inputs and `given` values (name to element type); its inputs."""
        seen: set[str] = set()
        nodes: dict[str, onnx.NodeProto] = {}
        sources: list[str] = []
        constants: list[onnx.TensorProto] = []
        stack = list(wanted)
        while stack:
            name = stack.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in given or name in self.inputs:
                sources.append(name)
            elif name in self.initializers:
                constants.append(self.initializers[name])
            elif name in self.producers:
                node = self.producers[name]
                nodes[node.name] = node
                stack += node.input
            else:
                raise Rejected(f"value {name!r} does not exist in the graph")
        order = sorted(nodes.values(), key=lambda node: self.position[node.name])
        inputs = [
            helper.make_tensor_value_info(
                name, given[name] if name in given else self.inputs[name].type.tensor_type.elem_type, None
            )
            for name in sorted(sources)
        ]
        graph = helper.make_graph(order, "part", inputs, [onnx.ValueInfoProto(name=name) for name in wanted], constants)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=10), sorted(sources)


def _run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, dict(feeds))]


class _Layout:
    """The axes of one fact, with slots and validity for an assignment of lengths."""

    def __init__(self, record: Record, shape: Sequence[str | int], lengths: Lengths, batch: str | None) -> None:
        self.record, self.lengths = record, lengths
        self.axes = {int(at): factors for at, factors in record["axes"].items()}
        rows = len(lengths.true)
        slots = dict(lengths.slots) | ({batch: rows} if batch else {})
        self.shape = [
            math.prod(self._slots(factor, slots, rows) for factor in self.axes[at])
            if at in self.axes
            else _size(dim, slots)
            for at, dim in enumerate(shape)
        ]

        self.padded = [at for at, factors in self.axes.items() if any("frames" in factor for factor in factors)]

    def _slots(self, factor: Record, slots: Mapping[str, int], rows: int) -> int:
        if "rows" in factor:
            return rows
        if "frames" in factor:
            return sum(_size(size, slots) for size, _ in factor["frames"])
        return _size(factor["plain"], slots)

    def along(self, at: int, row: int) -> tuple[Array, Array]:
        """Which slots of an axis belong to a row, and which of them are valid; bool [slots] each."""
        if at not in self.axes:
            every = np.ones(self.shape[at], bool)
            return every, every
        rows = len(self.lengths.true)
        mine, valid = np.ones(1, bool), np.ones(1, bool)
        for factor in self.axes[at]:
            own = slots_valid = np.ones(1, bool)
            if "rows" in factor:
                own = slots_valid = np.arange(rows) == row
            elif "frames" in factor:
                slots_valid = np.concatenate([self._segment(size, side, row) for size, side in factor["frames"]])
                own = np.ones(slots_valid.size, bool)
            else:
                own = slots_valid = np.ones(_size(factor["plain"], self.lengths.slots), bool)
            mine = np.logical_and.outer(mine, own).reshape(-1)
            valid = np.logical_and.outer(valid, slots_valid).reshape(-1)
        return mine, valid

    def _segment(self, size: str, side: str, row: int) -> Array:
        slots, true = _size(size, self.lengths.slots), max(_size(size, self.lengths.true[row]), 0)
        if true > slots:
            raise Rejected(f"a segment of {size} has {slots} slots for {true} entries")
        places = np.arange(slots)
        return places < true if side == "left" else places >= slots - true

    def chosen(self, row: int) -> tuple[Array, ...]:
        """Index of the valid entries of a row."""
        return np.ix_(*(np.flatnonzero(self.along(at, row)[1]) for at in range(len(self.shape))))

    def regions(self, row: int) -> Iterator[tuple[frozenset[int], tuple[Array, ...]]]:
        """Every region of a row with the index of its entries."""
        for count in range(len(self.padded) + 1):
            for region in itertools.combinations(self.padded, count):
                index = []
                for at in range(len(self.shape)):
                    mine, valid = self.along(at, row)
                    index.append(np.flatnonzero(mine & ~valid if at in region else valid))
                yield frozenset(region), np.ix_(*index)

    def content(self, region: frozenset[int]) -> tuple[float, float, bool]:
        """What the record allows in a region."""
        for axes, low, high, nan in self.record["contents"]:
            if frozenset(axes) == region:
                return float(low), float(high), bool(nan)
        return -math.inf, math.inf, True


def _size(size: str | int, values: Mapping[str, int]) -> int:
    """An integer expression over axis names."""
    if isinstance(size, int):
        return size
    exact = fractions.Fraction(_arithmetic(ast.parse(size, mode="eval").body, values))
    return math.floor(exact)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: fractions.Fraction(a) / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: fractions.Fraction(a) ** b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "floor": math.floor, "ceiling": math.ceil, "Min": min, "Max": max, "Abs": abs, "Mod": lambda a, b: a % b,
}  # fmt: skip


def _arithmetic(tree: ast.expr, values: Mapping[str, int]) -> Any:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_arithmetic(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_arithmetic(left, values), _arithmetic(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _CALLS:
            return _CALLS[name](*(_arithmetic(each, values) for each in arguments))
    raise Rejected(f"a size is {ast.unparse(tree)!r}, which is no arithmetic on axis names")


class _Checker:
    def __init__(self, before: onnx.ModelProto, after: onnx.ModelProto, certificate: Record, seeds: int) -> None:
        self.before, self.after, self.seeds = _Graph(before), _Graph(after), seeds
        self.batch: str | None = certificate["batch"]
        self.sides: Mapping[str, str] = certificate["sides"]
        self.lengths_of: Mapping[str, str] = certificate["length_inputs"]
        self.masks: Mapping[str, Sequence[str]] = certificate["mask_inputs"]
        self.becomes: Mapping[str, str] = certificate["becomes"]
        self.minimum: Mapping[str, int] = certificate["minimum"]
        self.records: Sequence[Record] = certificate["records"]
        self.claims: dict[str, Record] = {}
        self.shapes: dict[str, Sequence[str | int]] = {}
        self.replayed: set[bytes] = set()
        self.sizes: dict[str, bool] = {}
        self.made_by: dict[str, Record] = {name: each for each in self.records for name in each["outputs"] if name}

    def run(self) -> int:
        self._inputs()
        told = [name for record in self.records for name in record.get("chain") or [record["node"]]]
        by_node = set(told)
        if len(by_node) != len(told):
            raise Rejected("two records speak of one node")
        for record in self.records:
            self._chain(record)
        for node in self.before.nodes.values():
            is_left = node.name in self.after.nodes
            if is_left and node.name not in by_node and any(self._is_tracked(name) for name in node.input):
                raise Rejected(f"node {node.name!r} reads a padded value and has no record")
        self._closed_chains()
        for name in self.before.outputs:
            self._output(name)
        for record in self.records:
            if self._is_dead(record):
                continue
            self._structure(record)
            self._replay(record)
        return len(self.records)

    def _closed_chains(self) -> None:
        """Of several nodes that are one step, each reads the one before, and nothing else but Shape reads between."""
        for record in self.records:
            chain = record.get("chain", [])
            for name, follower in itertools.pairwise(chain):
                made = list(self.before.nodes[name].output) if name in self.before.nodes else []
                readers = [node for node in self.before.nodes.values() if set(made) & set(node.input)]
                if [node.name for node in readers if node.op_type != "Shape"] != [follower]:
                    raise Rejected(f"{name!r} and {follower!r} are no chain: others read what lies between")
            if chain and chain[-1] != record["node"]:
                raise Rejected(f"a chain ends with {chain[-1]!r}, its record is of {record['node']!r}")

    def _is_dead(self, record: Record) -> bool:
        """Whether nothing of a step is left, because nothing reads it any more."""
        wanted = [self.becomes.get(name, name) for name in record["outputs"]]
        return record["node"] not in self.after.nodes and not any(name in self.after.producers for name in wanted)

    def _is_tracked(self, name: str) -> bool:
        claim = self.claims.get(name)
        return claim is not None and bool(claim["axes"] or claim.get("number"))

    def _inputs(self) -> None:
        """What may be said of graph inputs: layout from the shape, anything in the padding."""
        for name in self.before.inputs:
            dims = self.before.dims(name)
            axes: dict[str, Any] = {}
            for at, dim in enumerate(dims):
                if isinstance(dim, int):
                    continue
                names = {each.id for each in ast.walk(ast.parse(dim, mode="eval")) if isinstance(each, ast.Name)}
                sides = {self.sides[each] for each in names & set(self.sides)}
                if dim == self.batch:
                    axes[str(at)] = [{"rows": dim}]
                elif sides:
                    axes[str(at)] = [{"frames": [[dim, sides.pop()]]}]
            self.claims[name] = {"axes": axes, "contents": [], "is_input": True}
            self.shapes[name] = dims

    def _chain(self, record: Record) -> None:
        """The facts of the inputs are those of their producers, no better."""
        for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True):
            if name is None or fact is None:
                continue
            known = self.claims.get(name)
            if known is None:
                if fact.get("number") and self._is_size(name):
                    known = fact
                elif fact["axes"] or fact.get("number"):
                    known = self._inserted(name, fact, shape, record)
                else:
                    known = self._plain(name, fact, record)
            _require_no_better(fact, known, f"record of {record['node']!r}, input {name!r}", self._kind(name))
        for name, fact, shape in zip(record["outputs"], record["out"], record["out_shapes"], strict=True):
            for known in (name, self.becomes.get(name, name)):
                self.claims[known] = fact
                self.shapes[known] = shape

    def _kind(self, name: str) -> int:
        known = self.before.inputs.get(name)
        return 0 if known is None else int(known.type.tensor_type.elem_type)

    def _is_size(self, name: str) -> bool:
        """Whether a value of the graph before padding reads nothing of its inputs but their shapes."""
        if name not in self.sizes:
            node = self.before.producers.get(name)
            if node is None:
                self.sizes[name] = name in self.before.initializers
            else:
                reads_shapes = node.op_type in ("Shape", "Size")
                self.sizes[name] = reads_shapes or all(self._is_size(each) for each in node.input if each)
        return self.sizes[name]

    def _plain(self, name: str, fact: Record, record: Record) -> Record:
        """A constant, or a value that nothing tracked reaches: not better than its content."""
        array = self.before.constant(name)
        if array is None:
            array = self.after.constant(name)
        if array is None:
            return fact
        claimed = _content(fact, frozenset())
        numbers = array.astype(np.float64)
        if array.size and not _within(numbers, claimed):
            raise Rejected(f"record of {record['node']!r}: constant {name!r} does not lie within {claimed}")
        return fact

    def _inserted(self, name: str, fact: Record, shape: Sequence[str | int], record: Record) -> Record:
        """A value that padding put in the place of another: replayed as a step of its own."""
        node = self.after.producers.get(name)
        if node is None or node.op_type not in ("Where", "Mod"):
            raise Rejected(f"record of {record['node']!r}: input {name!r} has no record and no selection makes it")
        source = node.input[1] if node.op_type == "Where" else node.input[0]
        if source not in self.claims:
            raise Rejected(f"record of {record['node']!r}: {name!r} is selected from {source!r}, which has no record")
        given = self.claims[source]
        if node.op_type == "Mod":  # of indices: those beyond are illegal, and negative ones choose the same entry
            given = {**given, "contents": [[[], 0, int(self._constant(node.input[1])) - 1, False], *_paddings(given)]}
        step = {
            "node": node.name, "op": "Identity", "inputs": [source], "in": [given], "in_shapes": [shape],
            "outputs": [name], "out": [fact], "out_shapes": [shape], "needs": [], "inserted": True,
        }  # fmt: skip
        self.claims[name] = fact
        self.shapes[name] = shape
        self._replay(step)
        return fact

    def _output(self, name: str) -> None:
        """Callers cut suffix padding away; states keep the window's end."""
        claim = self.claims.get(name)
        if claim is None:
            return
        for factors in claim["axes"].values():
            if len(factors) != 1 or (set(factors[0]) == {"frames"} and len(factors[0]["frames"]) != 1):
                raise Rejected(f"output {name!r} has an axis that callers cannot cut")
        if claim.get("number"):
            raise Rejected(f"output {name!r} is an axis length")

    def _structure(self, record: Record) -> None:
        """The node is what it was, and reads what it read unless a need says otherwise."""
        if record.get("chain"):
            for name in record["chain"]:
                self._unchanged(name)
            return
        now = self._same_operator(record["node"])
        if now is None:
            if not any("rewrite" in need for need in record["needs"]):
                raise Rejected(f"node {record['node']!r} is gone, and no record says why")
            return
        told = {need.get("fill", need.get("clamp")) for need in record["needs"]}
        rewritten = any("rewrite" in need for need in record["needs"])
        for at, (old, new) in enumerate(zip(record["inputs"], now.input, strict=False)):
            fact = record["in"][at]
            if fact is not None and fact.get("number") and new in self.after.initializers:
                continue  # a size that is fixed now; the replay runs with it
            if (old or "") != new and self.becomes.get(old, old) != new and at not in told and not rewritten:
                raise Rejected(f"node {record['node']!r} reads {new!r} instead of {old!r}, and no need says so")

    def _same_operator(self, name: str) -> onnx.NodeProto | None:
        """The node after padding, the same operator with the same attributes; None when it is gone."""
        node, now = self.before.nodes.get(name), self.after.nodes.get(name)
        if node is None:
            raise Rejected(f"record of {name!r}, which the graph before padding does not have")
        if now is not None and (
            (node.op_type, node.domain) != (now.op_type, now.domain)
            or sorted(a.SerializeToString() for a in node.attribute)
            != sorted(a.SerializeToString() for a in now.attribute)
        ):
            raise Rejected(f"node {name!r} is another operator after padding, or has other attributes")
        return now

    def _unchanged(self, name: str) -> None:
        """One of several nodes that are one step: what it was, and reading what it read."""
        now = self._same_operator(name)
        if now is None:
            raise Rejected(f"node {name!r} is gone, and no record says why")
        for old, new in zip(self.before.nodes[name].input, now.input, strict=False):
            fixed = new in self.after.initializers and self._is_size(old)
            if old != new and self.becomes.get(old, old) != new and not fixed:
                raise Rejected(f"node {name!r} reads {new!r} instead of {old!r}, and no need says so")

    def _replay(self, record: Record) -> None:
        """Run the step unpadded and padded and compare."""
        record = self._opened(self._with_live_outputs(record))
        wanted = [self.becomes.get(name, name) for name in record["outputs"]]
        kinds: dict[str, int] = {}
        for name, fact in zip(record["inputs"], record["in"], strict=True):
            if name is None or fact is None or self._is_computed(name, record):
                continue
            if fact["axes"] or fact.get("number") or not self._fixed(name):
                kinds[name] = self._element_type(name)
        given = {self.becomes.get(name, name): kind for name, kind in kinds.items()}
        try:
            padded, sources = self.after.part(wanted, given)
            alone, _ = (None, None) if record.get("inserted") else self.before.part(record["outputs"], kinds)
        except Rejected as error:
            raise Rejected(f"record of {record['node']!r}: {error}") from None
        key = _digest(padded, record)
        if key in self.replayed:
            return
        self.replayed.add(key)
        for seed in range(self.seeds):
            rng = np.random.default_rng(seed)
            lengths = self._lengths(rng, seed)
            self._compare(record, alone, padded, sources, kinds, lengths, rng)

    def _with_live_outputs(self, record: Record) -> Record:
        """The record without outputs that another form left out because nothing reads them."""
        read = {name for node in self.after.nodes.values() for name in node.input} | set(self.after.outputs)
        names = [self.becomes.get(name, name) for name in record["outputs"]]
        live = [at for at, name in enumerate(names) if name in self.after.producers or name in read]
        keys = ("outputs", "out", "out_shapes")
        return record if len(live) == len(names) else {**record, **{k: [record[k][at] for at in live] for k in keys}}

    def _opened(self, record: Record) -> Record:
        """A sum of products together with the Softmax that made its weights: no draw of those would add up to one."""
        if record["op"] not in SUMS_OF_PRODUCTS:
            return record
        operands = {
            name: (fact, shape)
            for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True)
        }
        while weights := next((name for name in operands if name and self._is_weights(name)), None):
            del operands[weights]
            made = self.made_by[weights]
            for name, fact, shape in zip(made["inputs"], made["in"], made["in_shapes"], strict=True):
                if not self._is_computed(name, made):
                    operands.setdefault(name, (fact, shape))
        facts, shapes = zip(*operands.values(), strict=True)
        return {**record, "inputs": list(operands), "in": facts, "in_shapes": shapes}

    def _is_weights(self, name: str) -> bool:
        """Whether a value is what a Softmax gave, some of it replaced."""
        made = self.made_by.get(name)
        if made is None or made.get("chain"):
            return False
        passes_on = made["op"] in ("Where", "Identity", "Dropout")
        return made["op"] == "Softmax" or (passes_on and any(self._is_weights(each) for each in made["inputs"] if each))

    def _follows_from_sizes(self, name: str, fact: Record) -> bool:
        """Whether a value with tracked axes is computed of axis lengths in both graphs, so that none can be drawn."""
        now = self.becomes.get(name, name)
        return bool(fact["axes"]) and not self._fixed(name) and self._is_size(name) and now in self.after.producers

    def _is_computed(self, name: str, record: Record) -> bool:
        """Whether an input says of another input of the same step where it is NaN: computed, not drawn."""
        node = self.before.producers.get(name)
        return node is not None and node.op_type == "IsNaN" and node.input[0] in record["inputs"]

    def _constant(self, name: str) -> Array:
        found = self.after.constant(name)
        if found is None or found.size != 1:
            raise Rejected(f"{name!r} bounds indices and is no constant")
        return found.reshape(())

    def _fixed(self, name: str) -> bool:
        return self.before.constant(name) is not None or self.after.constant(name) is not None

    def _element_type(self, name: str) -> int:
        for graph in (self.before, self.after):
            if name in graph.types:
                return int(graph.types[name].tensor_type.elem_type)
        raise Rejected(f"the type of {name!r} is unknown")

    def _lengths(self, rng: np.random.Generator, seed: int) -> Lengths:
        """Two rows of different lengths in more slots than they need; the first draw is as short as allowed."""
        slots, rows = {}, [{}, {}]  # type: ignore[var-annotated]
        for axis in sorted(self.sides):
            least = self.minimum.get(axis, 1)
            short = least + (int(rng.integers(0, 3)) if seed else 0)
            long = short + int(rng.integers(1, 4))
            rows[0][axis], rows[1][axis] = (short, long) if seed % 2 == 0 else (long, short)
            slots[axis] = self.fixed_slots(axis) or long + int(rng.integers(1, 4))
        true = rows if self.batch is not None else rows[:1]
        if self.batch is not None:
            true = [row | {self.batch: 1} for row in true]
            slots[self.batch] = 2
        return Lengths(slots, true)

    def fixed_slots(self, axis: str) -> int | None:
        """The number of slots of an axis that padding has made static."""
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
        alone: onnx.ModelProto | None,
        padded: onnx.ModelProto,
        sources: Sequence[str],
        kinds: Mapping[str, int],
        lengths: Lengths,
        rng: np.random.Generator,
    ) -> None:
        where = f"record of {record['node']!r} ({record['op']})"
        layouts = {
            name: _Layout(fact, shape, lengths, self.batch)
            for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True)
            if name in kinds
        }
        for most in (3, 1, 0):
            drawn = {
                name: self._draw(name, layout, kinds[name], lengths, rng, most) for name, layout in layouts.items()
            }
            references = []
            try:
                for row in range(len(lengths.true)):
                    feeds = {
                        name: self._alone(name, drawn[name], layout, lengths, row) for name, layout in layouts.items()
                    }
                    references.append([feeds[record["inputs"][0]]] if alone is None else _run(alone, feeds))
            except Exception:  # noqa: BLE001 - the draw is not legal for the operator: draw smaller indices
                continue
            break
        else:
            return  # the operator takes no such values at all; nothing is claimed of it
        feeds = {self.becomes.get(name, name): array for name, array in drawn.items()}
        feeds |= {name: self._source(name, lengths) for name in sources if name not in feeds}
        try:
            results = _run(padded, {name: feeds[name] for name in sources})
        except Exception as error:  # noqa: BLE001 - whatever stops the padded program refutes the certificate
            raise Rejected(f"{where}: runs alone, but not padded: {str(error)[:200]}") from None
        for at, (fact, shape) in enumerate(zip(record["out"], record["out_shapes"], strict=True)):
            if fact.get("number") or record["outputs"][at] == "":
                continue
            layout = _Layout(fact, shape, lengths, self.batch)
            _compare_output(f"{where}, output {at}", layout, results[at], [each[at] for each in references])

    def _alone(self, name: str, drawn: Array, layout: _Layout, lengths: Lengths, row: int) -> Array:
        if layout.record.get("number") or self._follows_from_sizes(name, layout.record):
            return self._number(self.before, name, lengths.true[row])
        return drawn[layout.chosen(row)] if drawn.ndim else drawn

    def _number(self, graph: _Graph, name: str, values: Mapping[str, int]) -> Array:
        """A value that follows from sizes alone: computed from inputs of those sizes."""
        part, sources = graph.part([name], {})
        return _run(part, {each: self._zeros(graph, each, values) for each in sources})[0]

    def _zeros(self, graph: _Graph, name: str, values: Mapping[str, int]) -> Array:
        info = graph.inputs[name].type.tensor_type
        shape = [_size(dim, values) for dim in graph.dims(name)]
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(info.elem_type))

    def _source(self, name: str, lengths: Lengths) -> Array:
        """A graph input that masks read: a length input, a mask input, or any other for its shape."""
        for axis, length_input in self.lengths_of.items():
            if name == length_input:
                return np.array([row[axis] for row in lengths.true], np.int64)
        if name in self.masks:
            size, side = self.masks[name]
            slots = _size(size, lengths.slots)
            counts = np.array([[_size(size, row)] for row in lengths.true])
            places = np.arange(slots)[None]
            return (places < counts if side == "left" else places >= slots - counts).astype(np.float32)
        return self._zeros(self.after, name, lengths.slots)

    def _draw(
        self, name: str, layout: _Layout, kind: int, lengths: Lengths, rng: np.random.Generator, most: int
    ) -> Array:
        """A padded value that the fact allows, as bad as it allows."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        if layout.record.get("number"):
            return self._number(self.after if name in self.after.producers else self.before, name, lengths.slots)
        if self._follows_from_sizes(name, layout.record):
            part, sources = self.after.part([self.becomes.get(name, name)], {})
            return _run(part, {each: self._source(each, lengths) for each in sources})[0]
        low, high = np.full(layout.shape, -math.inf), np.full(layout.shape, math.inf)
        nan, padding = np.ones(layout.shape, bool), np.ones(layout.shape, bool)
        for row in range(len(lengths.true)):  # what all rows share must suit every one of them
            for region, places in layout.regions(row):
                allowed = layout.content(region)
                here = places if layout.shape else ()
                low[here] = np.maximum(low[here], allowed[0])
                high[here] = np.minimum(high[here], allowed[1])
                nan[here] &= allowed[2]
                padding[here] &= bool(region)
        array = _values(low, np.maximum(low, high), nan, padding, rng, dtype, most)
        index = layout.record.get("index")
        if index is not None:
            _count_positions(array, layout, int(index["axis"]), _size(index["offset"], lengths.slots), lengths)
        with np.errstate(all="ignore"):
            return array.astype(dtype)


def _count_positions(array: Array, layout: _Layout, axis: int, offset: int, lengths: Lengths) -> None:
    """Write positions along an axis, counted from the first valid slot of each row."""
    view = np.moveaxis(array, axis, -1)
    for row in range(len(lengths.true)):
        mine, valid = layout.along(axis, row)
        slots, entries = np.flatnonzero(mine), np.flatnonzero(valid)
        first = int(entries[0]) if entries.size else int(slots[0]) if slots.size else 0
        view[..., slots] = slots - first + offset


def _values(
    low: Array, high: Array, nan: Array, padding: Array, rng: np.random.Generator, dtype: np.dtype[Any], most: int
) -> Array:
    """Entries within bounds: small ones where valid, the worst allowed in the padding."""
    if dtype.kind in "iub":
        limits = (0.0, 1.0) if dtype.kind == "b" else (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))
        low, high = np.clip(low, *limits), np.clip(high, *limits)
        bottom, top = np.clip(0.0, low, high), np.clip(float(most), low, high)
        small = np.floor(rng.uniform(bottom, top + 0.999))
        ends = np.where(rng.random(low.shape) < 0.5, low, high)
        return np.clip(np.where(padding & (rng.random(low.shape) < 0.7), ends, small), -(2.0**62), 2.0**62)
    drawn = np.clip(rng.standard_normal(low.shape), low, high)
    drawn = np.where(~padding & np.isinf(low) & (rng.random(low.shape) < 0.3), low, drawn)
    worst = rng.choice(np.array([*HUGE, 0.0]), low.shape)
    inside = np.where(np.isnan(worst), nan, (worst >= low) & (worst <= high))
    bound = np.where(rng.random(low.shape) < 0.5, low, high)
    bad = np.where(inside, worst, np.where(np.isfinite(bound) & (np.abs(bound) < 1e30), bound, drawn))
    return np.where(padding & (rng.random(low.shape) < 0.7), bad, drawn)


def _content(fact: Record, region: frozenset[int]) -> tuple[float, float, bool]:
    for axes, low, high, nan in fact["contents"]:
        if frozenset(axes) == region:
            return float(low), float(high), bool(nan)
    return -math.inf, math.inf, True


def _paddings(fact: Record) -> list[Any]:
    return [content for content in fact["contents"] if content[0]]


def _within(numbers: Array, content: tuple[float, float, bool]) -> bool:
    low, high, nan = content
    bad = np.isnan(numbers)
    slack = 1e-5 * np.maximum(1.0, np.abs(numbers))
    with np.errstate(invalid="ignore"):  # infinities of both signs; those are compared as they are
        near = (numbers >= low - slack) & (numbers <= high + slack)
    inside = bad | near | (numbers == low) | (numbers == high)
    return bool(inside.all()) and (nan or not bad.any())


def _require_no_better(fact: Record, known: Record, where: str, kind: int) -> None:
    if fact["axes"] != known["axes"]:
        raise Rejected(f"{where}: axes {fact['axes']} are not those of its producer, {known['axes']}")
    if bool(fact.get("number")) != bool(known.get("number")):
        raise Rejected(f"{where}: is a number for one record and data for another")
    if known.get("is_input"):
        limits = _worst(kind)
        for region, low, high, nan in fact["contents"]:
            if region and (float(low) > limits[0] or float(high) < limits[1] or (limits[2] and not nan)):
                raise Rejected(f"{where}: a graph input may hold anything in its padding, not [{low}, {high}]")
        return
    if fact is known:
        return
    for region, low, high, nan in fact["contents"]:
        was = _content(known, frozenset(region))
        if float(low) > was[0] or float(high) < was[1] or (was[2] and not nan):
            raise Rejected(f"{where}: region {region} holds [{low}, {high}] here and {was} at its producer")
    if fact.get("index") != known.get("index"):
        raise Rejected(f"{where}: counts positions for one record and not for another")


def _worst(kind: int) -> tuple[float, float, bool]:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    if dtype.kind == "b":
        return 0.0, 1.0, False
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max), False
    return -math.inf, math.inf, True


def _compare_output(where: str, layout: _Layout, got: Array, references: Sequence[Array]) -> None:
    if list(got.shape) != list(layout.shape):
        raise Rejected(f"{where}: has shape {list(got.shape)}, the record says {list(layout.shape)}")
    for row, reference in enumerate(references):
        numbers = got.astype(np.float64)
        valid = numbers[layout.chosen(row)] if got.ndim else numbers
        wanted = reference.astype(np.float64)
        if valid.shape != wanted.shape:
            raise Rejected(f"{where}: row {row} has {list(valid.shape)} valid entries, alone {list(wanted.shape)}")
        if np.isnan(wanted).any():
            continue
        with np.errstate(all="ignore"):
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
            same = (valid == wanted) | (np.abs(valid - wanted) <= TOLERANCE * scale)
        if not same.all():
            raise Rejected(
                f"{where}: row {row} differs from the row alone: {valid[~same][0]} instead of {wanted[~same][0]}"
            )
        _require_positions(f"{where}: row {row}", layout, numbers, row)
        for region, places in layout.regions(row):
            content = layout.content(region)
            entries = numbers[places] if got.ndim else numbers
            if region and entries.size and not _within(entries, content):
                raise Rejected(f"{where}: padding {sorted(region)} of row {row} does not lie within {content}")


def _require_positions(where: str, layout: _Layout, numbers: Array, row: int) -> None:
    """Where a record says that entries count positions, valid ones do, and the padding of one segment goes on."""
    index = layout.record.get("index")
    if index is None or not str(index["offset"]).lstrip("-").isdigit():
        return
    axis, offset = int(index["axis"]), int(index["offset"])
    lines = [layout.along(at, row) for at in range(len(layout.shape))]
    mine, valid = (np.flatnonzero(each) for each in lines[axis])
    if not valid.size:
        return
    is_one = len(layout.axes.get(axis, [{}])) == 1 and len(layout.axes.get(axis, [{}])[0].get("frames", [0])) == 1
    slots = mine if is_one else valid
    counted = slots - valid[0] if is_one else np.arange(valid.size)
    places = [np.flatnonzero(line[1]) for line in lines]
    places[axis] = slots
    found = np.moveaxis(numbers[np.ix_(*places)], axis, -1)
    if not (found == counted + offset).all():
        raise Rejected(f"{where}: does not count positions from {offset} along axis {axis}")


def _digest(model: onnx.ModelProto, record: Record) -> bytes:
    """What makes a step distinct: operators, attributes, wiring, small constants, facts; no names and no weights."""
    names: dict[str, str] = {}
    hasher = hashlib.sha256()
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        hasher.update(f"{node.domain}:{node.op_type}".encode())
        for attribute in sorted(node.attribute, key=lambda each: each.name):
            hasher.update(attribute.SerializeToString())
        for name in [*node.input, "|", *node.output]:
            if name in constants:
                tensor = constants[name]
                content = numpy_helper.to_array(tensor)
                hasher.update(repr(content.shape).encode() + (content.tobytes() if content.size < 64 else b""))
            else:
                hasher.update(names.setdefault(name, str(len(names))).encode())
    facts = [record["in"], record["out"], record["needs"], record["in_shapes"], record["out_shapes"]]
    hasher.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return hasher.digest()
