"""Checks a certificate by replaying every step on the graphs before and after padding, with no code of the prover.

The graph before and after padding and the certificate go in. The checker takes no rule on trust:

1. Structure: every node is still there, reads what it read, or what a recorded need put in its place.
2. Chain: what a record says of its inputs is what the record of their producer says, and of graph inputs, the worst.
3. Steps: every node is run by itself, unpadded row by row and padded with all rows at once, on values that the facts
   allow, with NaN, infinities and huge numbers wherever they do; valid places must agree, and the padding must hold
   what the record says.
4. Masks and forms: every inserted mask is computed from true lengths and compared with what is valid.
5. States: the frames that leave for the next call are counted, in what records say and in what the original gives.

A step that survives is not proved by that, but the checker shares no rule, no table and no line with what proved it.
"""

import ast
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from compiler.checker.compare import require_no_better
from compiler.checker.graph import Array, DoesNotRun, Graph, Record, Rejected, Weights
from compiler.checker.meaning import READ_SHAPES, require_meaning
from compiler.checker.once import KIND, check_once
from compiler.checker.replay import Replay
from compiler.checker.states import require_counted
from compiler.checker.values import content_of, paddings_of, within, worst_of

ASSUMABLE = {
    "no NaN": (
        "ArgMax",
        "ArgMin",
        "DynamicQuantizeLinear",
        "GlobalMaxPool",
        "Hardmax",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
    ),
    "finite": ("Einsum", "Gemm", "MatMul", "Resize"),
}
"""What a record may take for granted of valid entries, and of which operators; of all others nothing."""


def check(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    certificate: Record,
    *,
    seeds: int = 2,
    survived: set[bytes] | None = None,
    weights: Weights = MappingProxyType({}),
) -> int:
    """Replay a certificate.

    Args:
        before: the graph before padding, with its weights or references to them, and axis names in the
            shapes of its inputs.
        after: the padded graph, with the same axis names.
        certificate: header and records; or a record of values computed once (`compiler.checker.once`).
        seeds: draws per distinct step.
        survived: runs of steps of other certificates that were checked with it; those that are the same to the last
            weight are not run again, and more is added.
        weights: content of the weights that the graphs refer to.

    Returns:
        The number of steps replayed.

    Raises:
        Rejected: with the node and what differs.
    """
    if certificate.get("kind") == KIND:
        return check_once(before, after, certificate, seeds=seeds, weights=weights)
    try:
        return _Checker(Graph(before, weights), Graph(after, weights), certificate, seeds, survived).run()
    except DoesNotRun as error:
        raise Rejected(
            f"what follows from lengths does not run at all that are certified: {str(error)[:200]}"
        ) from None


class _Checker:
    def __init__(
        self,
        before: Graph,
        after: Graph,
        certificate: Record,
        seeds: int,
        survived: set[bytes] | None,
    ) -> None:
        self.before, self.after = before, after
        self.certificate = certificate
        self.sides: Mapping[str, str] = certificate["sides"]
        self.becomes: Mapping[str, str] = certificate["becomes"]
        self.records: Sequence[Record] = certificate["records"]
        self.told: Sequence[str] = certificate["assumes"]
        self.claims: dict[str, Record] = {}
        self.shapes: dict[str, Sequence[str | int]] = {}
        self.of_only_row: dict[str, bool] = {}
        self.steps = Replay(self.before, self.after, certificate, seeds, survived)

    def run(self) -> int:
        self._inputs()
        self.steps.settle_free_axes()
        twice = max(self.certificate["minimum"].values(), default=1)
        require_meaning(self.before, self.steps.alone(0), self.steps.alone(1), self.steps.alone(twice))
        told = [name for record in self.records for name in record.get("chain") or [record["node"]]]
        by_node = set(told)
        if len(by_node) != len(told):
            raise Rejected("two records speak of one node")
        for record in self.records:
            self._assumptions(record)
            self._chain(record)
        for node in self.before.nodes.values():
            is_told = node.name not in self.after.nodes or node.name in by_node
            if not is_told and any(self._is_tracked(name) for name in node.input) and not self._is_alike(node):
                raise Rejected(f"node {node.name!r} reads a padded value and has no record")
        self._closed_chains()
        said = {name: (fact, self.shapes[name]) for name, fact in self.claims.items()}
        require_counted(self.before, self.after, self.certificate, said, self.steps.alone(0))
        for name in self.before.outputs:
            self._output(name)
        for record in self.records:
            if self._is_dead(record):
                continue
            self._structure(record)
            self.steps.replay(record)
        return len(self.records)

    def _assumptions(self, record: Record) -> None:
        """Require that a record's assumptions are unavoidable for its kernel, and are listed in the certificate."""
        for operand, what in record["assumes"]:
            if record["op"] not in ASSUMABLE.get(what, ()) or self._is_constant(record["inputs"][operand]):
                raise Rejected(f"record of {record['node']!r} assumes {what!r} of its input {operand}")
            if not any(repr(record["node"]) in each for each in self.told):
                raise Rejected(f"record of {record['node']!r} assumes {what!r}, and the certificate does not say so")

    def _is_constant(self, name: str) -> bool:
        return self.before.constant(name) is not None

    def _is_alike(self, node: onnx.NodeProto) -> bool:
        """Whether a node computes, from axis lengths, values that are the same at all lengths."""
        return all(self.steps.alike(name) is not None for name in node.output if name)

    def _closed_chains(self) -> None:
        """Require that each node of a chain is read by the next one alone, besides Shape."""
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
        """Whether a step was removed because nothing reads its outputs."""
        wanted = [self.becomes.get(name, name) for name in record["outputs"]]
        return record["node"] not in self.after.nodes and not any(name in self.after.producers for name in wanted)

    def _is_tracked(self, name: str) -> bool:
        claim = self.claims.get(name)
        return claim is not None and bool(claim["axes"] or claim.get("number"))

    def _inputs(self) -> None:
        """Record facts of graph inputs: the layout from their shape, any padding, lengths that are legal."""
        for axis, least in self.certificate["minimum"].items():
            shortest = 0 if self.sides.get(axis) == "right" else 1  # a cache begins empty; kernels may end the
            if least < shortest:  # process at a call of no entry
                raise Rejected(f"axis {axis!r} is said to be as short as {least}, and lengths begin at {shortest}")
        for name in self.before.inputs:
            dims = self.before.dims(name)
            axes: dict[str, Any] = {}
            for position, dim in enumerate(dims):
                if isinstance(dim, int):
                    continue
                names = {
                    name_node.id
                    for name_node in ast.walk(ast.parse(dim, mode="eval"))
                    if isinstance(name_node, ast.Name)
                }
                sides = {self.sides[name] for name in names & set(self.sides)}
                if dim == self.certificate["batch"]:
                    axes[str(position)] = [{"rows": dim}]
                elif sides:
                    axes[str(position)] = [{"frames": [[dim, sides.pop()]]}]
            self.claims[name] = {"axes": axes, "contents": [], "is_input": True}
            self.shapes[name] = dims

    def _chain(self, record: Record) -> None:
        """Require that the facts of a record's inputs are no stronger than those of their producers."""
        for name, fact, shape in zip(record["inputs"], record["in"], record["in_shapes"], strict=True):
            if name is not None and fact is None and self._is_tracked(name):
                raise Rejected(f"record of {record['node']!r} says nothing of {name!r}, which is padded or batched")
            if name is None or fact is None:
                continue
            known = self.claims.get(name)
            if known is None:
                if fact.get("number") and self.steps.is_size(name):
                    known = fact
                elif fact["axes"] or fact.get("number"):
                    known = self._inserted(name, fact, shape, record)
                else:
                    known = self._plain(name, fact, record)
            require_no_better(fact, known, f"record of {record['node']!r}, input {name!r}", self._kind(name))
        for name, fact, shape in zip(record["outputs"], record["out"], record["out_shapes"], strict=True):
            is_bare = name and not fact["axes"] and not fact.get("number")
            if is_bare and self.steps.moves(name) and not self._is_of_only_row(name):
                raise Rejected(
                    f"record of {record['node']!r}: {name!r} changes with the lengths, and it says otherwise"
                )
            for known in (name, self.becomes.get(name, name)):
                self.claims[known] = fact
                self.shapes[known] = shape

    def _is_of_only_row(self, name: str) -> bool:
        """Whether a value of a model without a batch is computed from entries along padded axes."""
        if self.certificate["batch"] is not None:
            return False
        if name not in self.of_only_row:
            claim, node = self.claims.get(name), self.before.producers.get(name)
            if claim is not None and (claim["axes"] or claim.get("number")):
                return not claim.get("number")
            reads = [] if node is None or node.op_type in READ_SHAPES else node.input
            self.of_only_row[name] = any(self._is_of_only_row(each) for each in reads if each)
        return self.of_only_row[name]

    def _kind(self, name: str) -> int:
        known = self.before.inputs.get(name)
        return 0 if known is None else int(known.type.tensor_type.elem_type)

    def _plain(self, name: str, fact: Record, record: Record) -> Record:
        """Require that the fact of a constant or untracked value is no stronger than its content."""
        array = self.before.constant(name)
        if array is None:
            array = self.after.constant(name)
        if array is None:
            array = self.steps.alike(name)
        if array is None:  # of data that no padded axis reaches
            low, high, nan = content_of(fact, frozenset())
            least, most, may_be_nan = worst_of(self.steps.element_type(name))
            if low > least or high < most or (may_be_nan and not nan):
                raise Rejected(f"record of {record['node']!r}: {name!r} may be anything, not within {(low, high)}")
            return fact
        claimed = content_of(fact, frozenset())
        numbers = array.astype(np.float64)
        if array.size and not within(numbers, claimed):
            raise Rejected(f"record of {record['node']!r}: {name!r} does not lie within {claimed}")
        return fact

    def _inserted(self, name: str, fact: Record, shape: Sequence[str | int], record: Record) -> Record:
        """Replay a value that padding inserted in place of another, as a step of its own."""
        node = self.after.producers.get(name)
        if node is None or node.op_type not in ("Where", "Mod"):
            raise Rejected(f"record of {record['node']!r}: input {name!r} has no record and no selection makes it")
        source = node.input[1] if node.op_type == "Where" else node.input[0]
        if source not in self.claims:
            raise Rejected(f"record of {record['node']!r}: {name!r} is selected from {source!r}, which has no record")
        source_fact = self.claims[source]
        if node.op_type == "Mod":  # of indices: those beyond are illegal, and negative ones choose the same entry
            source_fact = {
                **source_fact,
                "contents": [[[], 0, int(self._constant(node.input[1])) - 1, False], *paddings_of(source_fact)],
            }
        step = {
            "node": node.name, "op": "Identity", "inputs": [source], "in": [source_fact],
            "in_shapes": [self.shapes[source]],
            "outputs": [name], "out": [fact], "out_shapes": [shape], "needs": [], "inserted": True,
        }  # fmt: skip
        self.claims[name] = fact
        self.shapes[name] = shape
        self.steps.replay(step)
        return fact

    def _output(self, name: str) -> None:
        """Require that outputs have rows first and padding that callers can cut off, or keep the end of a cache."""
        claim = self.claims.get(name)
        if claim is None:
            return
        carried = {state["output"] for state in self.certificate["states"]}
        for position, (factor, *others) in claim["axes"].items():
            frames = factor.get("frames", [])
            sides = [side for _, side in frames]
            if (
                others
                or ("rows" in factor and position != "0")
                or (frames and name not in carried and sides != ["left"])
            ):
                raise Rejected(f"output {name!r} has an axis that callers cannot cut")
        if claim.get("number"):
            raise Rejected(f"output {name!r} is an axis length")

    def _structure(self, record: Record) -> None:
        """Require that the node is unchanged and reads the same inputs, except those that a recorded need replaces."""
        if record.get("chain"):
            for name in record["chain"]:
                self._unchanged(name)
            return
        self._same_arity(record)
        now = self._same_operator(record["node"])
        if now is None:
            if not any("rewrite" in need for need in record["needs"]):
                raise Rejected(f"node {record['node']!r} is gone, and no record says why")
            return
        told = {need.get("fill", need.get("clamp")) for need in record["needs"]}
        rewritten = any("rewrite" in need for need in record["needs"])
        for position, (old, new) in enumerate(zip(record["inputs"], now.input, strict=False)):
            fact = record["in"][position]
            follows = fact is not None and (fact.get("number") or self.steps.is_size(old))
            if follows and new in self.after.initializers:
                continue  # of sizes that are fixed now; the replay runs with it
            if (old or "") != new and self.becomes.get(old, old) != new and position not in told and not rewritten:
                raise Rejected(f"node {record['node']!r} reads {new!r} instead of {old!r}, and no need says so")

    def _same_arity(self, record: Record) -> None:
        """Require that a record lists every input and output of its node."""
        node = self.before.nodes.get(record["node"])
        if node is None:
            return
        told = [[name or "" for name in record[side]] for side in ("inputs", "outputs")]
        if len(told[0]) != len(node.input) or told[1] != list(node.output):
            raise Rejected(f"record of {record['node']!r} does not speak of all its inputs and outputs")

    def _same_operator(self, name: str) -> onnx.NodeProto | None:
        """Return the node after padding, with the same operator and attributes; None where it is gone."""
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
        """Require that a node of a chain is unchanged and reads the same inputs."""
        now = self._same_operator(name)
        if now is None:
            raise Rejected(f"node {name!r} is gone, and no record says why")
        for old, new in zip(self.before.nodes[name].input, now.input, strict=False):
            fixed = new in self.after.initializers and self.steps.is_size(old)
            if old != new and self.becomes.get(old, old) != new and not fixed:
                raise Rejected(f"node {name!r} reads {new!r} instead of {old!r}, and no need says so")

    def _constant(self, name: str) -> Array:
        found = self.after.constant(name)
        if found is None or found.size != 1:
            raise Rejected(f"{name!r} bounds indices and is no constant")
        return found.reshape(())
