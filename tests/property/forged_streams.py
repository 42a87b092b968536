"""Forged certificates of random step graphs: one claim is another one, or one node of the padded graph.

`python -m tests.property.forged_streams --graphs 20` has the checker read them. What it refuses of them, a weakened
checker may let pass, which is how the mutation test of streams tries the checker (`tests/property/mutate_streams.py`).
"""

import argparse
import copy
import dataclasses
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from compiler.build.bundle.proof_files import proof_of
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from tests.property.mutations import TEXTS
from tests.property.streams import drawn, followed

Record = dict[str, Any]
T = TypeVar("T")


@dataclasses.dataclass
class Claim:
    """A certificate and what it speaks of.

    Attributes:
        before: the graph.
        after: the padded graph.
        certificate: how one follows from the other.
    """

    before: onnx.ModelProto
    after: onnx.ModelProto
    certificate: Record

    def rejected_at(self) -> str:
        """Where the checker refuses it; nothing where it does not."""
        try:
            check(self.before, self.after, self.certificate)
        except Rejected as rejected:
            place = traceback.extract_tb(rejected.__traceback__)[-1]
            return f"{place.name}:{place.lineno}"
        return ""


class NothingToForge(Exception):
    """There is nothing of the sort in the certificate."""


class Forger:
    """Draws what is changed.

    Args:
        claim: changed.
        rng: draws all of it.
    """

    def __init__(self, claim: Claim, rng: np.random.Generator) -> None:
        self.claim, self.rng, self.certificate = claim, rng, claim.certificate
        self.records: list[Record] = self.certificate["records"]

    def one(self, choices: Sequence[T]) -> T:
        """One of several.

        Raises:
            NothingToForge: there are none.
        """
        if not choices:
            raise NothingToForge
        return choices[int(self.rng.integers(0, len(choices)))]

    def by_one(self) -> int:
        """One more or one less."""
        return int(self.rng.choice([-1, 1]))

    def facts(self) -> list[Record]:
        """What is said of one value, at one place or wherever it is spoken of."""
        said: dict[str, list[Record]] = {}
        for record in self.records:
            for names, facts in (("inputs", "in"), ("outputs", "out")):
                for name, fact in zip(record[names], record[facts], strict=True):
                    if name and fact and fact["axes"]:
                        said.setdefault(name, []).append(fact)
        found = said[self.one(sorted(said))]
        return found if self.rng.random() < 0.7 else [self.one(found)]

    def node(self, *ops: str) -> onnx.NodeProto:
        """A node of the padded graph."""
        nodes: list[onnx.NodeProto] = [each for each in self.claim.after.graph.node if not ops or each.op_type in ops]
        return self.one(nodes)


def state(f: Forger) -> None:
    """A state has another axis, other slots, other new frames, or another cache."""
    each, kind = f.one(f.certificate["states"]), f.one(("axis", "slots", "adds", "cache"))
    if kind == "adds":
        for other in f.certificate["states"]:
            other["adds"] = f"{other['adds']} + {f.by_one()}"
    elif kind == "cache":
        each[kind] = f.one(["batch", *sorted(f.certificate["sides"])])
    else:
        each[kind] += f.by_one()


def carried(f: Forger) -> None:
    """A state is forgotten, doubled, said to be of one size, or fed by the output of another."""
    kind, states = f.one(("states", "replaced")), f.certificate
    each, drawn_ = f.one(states[kind]), f.rng.random()
    if drawn_ < 0.3:
        states[kind].remove(each)
    elif drawn_ < 0.5:
        states[kind].append(dict(each))
    elif drawn_ < 0.7 and kind == "states":
        states[kind].remove(each)
        states["replaced"].append({end: each[end] for end in ("input", "output")})
    else:
        other = f.one([*states["states"], *states["replaced"]])
        each["output"], other["output"] = other["output"], each["output"]


def side(f: Forger) -> None:
    """The frames of a value lie at the other end of their slots."""
    for fact in f.facts():
        for factors in fact["axes"].values():
            for factor in factors:
                for segment in factor.get("frames", ()):
                    segment[1] = "left" if segment[1] == "right" else "right"


def size(f: Forger) -> None:
    """A value has a frame more or less."""
    more = f.by_one()
    for fact in f.facts():
        for factors in fact["axes"].values():
            for factor in factors:
                for segment in factor.get("frames", ())[:1]:
                    segment[0] = f"{segment[0]} + {more}"


def axis(f: Forger) -> None:
    """What is said of an axis of a value is said of the next one, or of none."""
    facts = f.facts()
    at, is_gone = f.one(sorted(facts[0]["axes"])), f.rng.random() < 0.5
    for fact in facts:
        factors = fact["axes"].pop(at, None)
        if factors is not None and not is_gone:
            fact["axes"][str(int(at) + 1)] = factors


def content(f: Forger) -> None:
    """Padding, or what is valid, is said to hold zeros alone."""
    for fact in f.facts():
        f.one(fact["contents"])[1:] = [0.0, 0.0, False]


def record(f: Forger) -> None:
    """A step is forgotten, doubled, or said to be of another node."""
    each, kind = f.one(f.records), f.rng.random()
    if kind < 0.4:
        f.records.remove(each)
    elif kind < 0.6:
        f.records.append(copy.deepcopy(each))
    else:
        each["node"] = f.one(f.records)["node"]


def need(f: Forger) -> None:
    """A step is said to need nothing."""
    f.one([each for each in f.records if each["needs"]])["needs"].clear()


def reading(f: Forger) -> None:
    """A step is said to read another value, or its output to have another shape."""
    each = f.one([each for each in f.records if each["inputs"]])
    at = int(f.rng.integers(0, len(each["inputs"])))
    if f.rng.random() < 0.5:
        each["inputs"][at] = f.one(f.records)["outputs"][0]
    else:
        shape = f.one([shape for shape in each["out_shapes"] if shape])
        shape[int(f.rng.integers(0, len(shape)))] = f.one(["batch", 1, 3, *sorted(f.certificate["sides"])])


def sides(f: Forger) -> None:
    """An axis is said to be padded at its other end, or to be no longer than an entry at least."""
    name = f.one(sorted(f.certificate["sides"]))
    if f.rng.random() < 0.5:
        f.certificate["sides"][name] = "left" if f.certificate["sides"][name] == "right" else "right"
    else:
        f.certificate["minimum"][name] = f.certificate["minimum"].get(name, 1) + f.by_one()


def becomes(f: Forger) -> None:
    """What stands for a value in the padded graph is forgotten."""
    f.certificate["becomes"].pop(f.one(sorted(f.certificate["becomes"])))


def operator(f: Forger) -> None:
    """A node of the padded graph is another one."""
    node = f.node(*TEXTS)
    node.op_type = TEXTS[node.op_type]


def attribute(f: Forger) -> None:
    """A number among the attributes of a node of the padded graph is another one."""
    nodes = [node for node in f.claim.after.graph.node if any(each.type == each.INT for each in node.attribute)]
    f.one([each for each in f.one(nodes).attribute if each.type == each.INT]).i += f.by_one()


def operand(f: Forger) -> None:
    """A node of the padded graph reads its operands in another order, or past what cleans one."""
    if f.rng.random() < 0.5:
        node = f.node("Sub", "Div", "MatMul", "Where", "Less", "LessOrEqual", "GreaterOrEqual", "Concat")
        node.input[-1], node.input[-2] = node.input[-2], node.input[-1]
        return
    where = f.node("Where")
    for node in f.claim.after.graph.node:
        for at, name in enumerate(node.input):
            if name == where.output[0]:
                node.input[at] = where.input[1]


def constant(f: Forger) -> None:
    """A constant of the padded graph is more or less by one."""
    weights = f.one(f.claim.after.graph.initializer)
    array = np.array(numpy_helper.to_array(weights))
    if array.dtype.kind not in "if":
        raise NothingToForge
    weights.CopyFrom(numpy_helper.from_array(array + array.dtype.type(f.by_one()), weights.name))


KINDS: tuple[Callable[[Forger], None], ...] = (
    state,
    carried,
    side,
    size,
    axis,
    content,
    record,
    need,
    reading,
    sides,
    becomes,
    operator,
    attribute,
    operand,
    constant,
)


def claims_of(seed: int) -> list[Claim]:
    """What is proved of the graph of a seed.

    Raises:
        Refused: a pass does not take it.
    """
    found = []
    for _, before, outcome in followed(drawn(seed)):
        proof = proof_of("", before, outcome)
        if proof is not None:
            given, after = (ir.serde.serialize_model(each.model()) for each in (proof.before, proof.after))
            found += [Claim(given, after, each) for each in proof.records]
    return found


def forged(claim: Claim, seed: int, count: int) -> Iterator[tuple[str, Claim]]:
    """So many forgeries of a claim, and of which kind they are; fewer where there is nothing of a kind."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = KINDS[number % len(KINDS)]
        after = onnx.ModelProto()
        after.CopyFrom(claim.after)
        other = Claim(claim.before, after, copy.deepcopy(claim.certificate))
        try:
            kind(Forger(other, rng))
        except NothingToForge:
            continue
        if other.certificate != claim.certificate or other.after != claim.after:
            yield kind.__name__, other


def main(arguments: Sequence[str] | None = None) -> int:
    """Forge and count what is refused, by kind; 1 if anything but a refusal stops the checker."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.forged_streams", description=__doc__)
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(given.seed, given.seed + given.graphs):
        try:
            claims = claims_of(seed)
        except Exception:  # noqa: BLE001 - what is refused has no certificate
            continue
        for claim in claims:
            for number, (kind, other) in enumerate(forged(claim, seed, 3 * len(KINDS))):
                try:
                    told = "rejected" if other.rejected_at() else "accepted"
                except Exception as error:  # noqa: BLE001 - a forgery is no reason for an error
                    told = f"error {type(error).__name__}"
                    print(
                        f"seed {seed}, number {number}: {kind}: {type(error).__name__}: {str(error)[:200]}", flush=True
                    )
                found[kind, told] += 1
    for (kind, told), count in sorted(found.items()):
        print(f"{kind}: {told} {count}")
    return int(any(told.startswith("error") for _, told in found))


if __name__ == "__main__":
    sys.exit(main())
