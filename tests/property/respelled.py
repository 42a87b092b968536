"""One random graph in two spellings: what is proved of it, and what it computes, hangs on neither."""

import collections
import dataclasses
import sys
from typing import Any

import numpy as np

from compiler import ir as house
from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from compiler.runners.session import open_session
from compiler.stages import Lowered
from tests.kit.offline import Differs
from tests.property.fuzz import SOILS, as_padded, grow
from tests.property.garden import Soil
from tests.property.spelling import Respelling

SOIL = dataclasses.replace(SOILS[-1], name="respelled", opsets=(20,))


def compare(seed: int, nodes: int = 7, soil: Soil = SOIL) -> str:
    """Prove a random graph, and the same in another spelling.

    Returns:
        `accepted`, `refused`, or `as before` where there is no other spelling.

    Raises:
        Differs: the proofs say different things of the two, or these compute something else.
    """
    origin = as_padded(grow(seed, nodes, soil))
    other = dataclasses.replace(origin, model=house.clone(origin.model))
    if not Respelling(other.model, np.random.default_rng(seed)).apply():
        return "as before"
    house.recount_names(other.model.graph)
    house.infer_shapes(other.model)
    _require_same_results(origin, other)
    first, second = (_proved(each) for each in (origin, other))
    if first != second:
        raise Differs(f"of another spelling another proof: {_difference(first, second)}")
    return "refused" if isinstance(first, str) else "accepted"


def _require_same_results(origin: Lowered, other: Lowered) -> None:
    """Whether ONNX Runtime takes the two for the same: what is drawn is legal, and means the same."""
    sizes = {"batch": 2, "time": 9, "later": 7}
    rng = np.random.default_rng(0)
    feeds = {
        str(value.name): rng.standard_normal(
            [dim if isinstance(dim, int) else sizes.get(str(dim), 3) for dim in value.shape or ()]
        ).astype(np.float32)
        for value in origin.model.graph.inputs
    }
    results: list[Any] = []
    for each in (origin, other):
        try:
            results.append(open_session(house.serialized(each.model)).run(None, feeds))
        except Exception as error:  # noqa: BLE001 - a graph that does not run at these sizes runs in neither spelling
            results.append(type(error).__name__)
    if isinstance(results[0], str) or isinstance(results[1], str):
        if results[0] != results[1]:
            raise Differs(f"only one spelling runs: {results}")
    elif not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*results, strict=True)):
        raise Differs("the other spelling computes something else")


def _proved(lowered: Lowered) -> object:
    """Why a graph is refused, or what is proved of every node."""
    try:
        outcome = PadAxes().apply(dataclasses.replace(lowered, model=house.clone(lowered.model)))
    except Refused as refused:
        return f"{refused.place.op}: {refused.message}"
    axes = outcome.lowered.padded_axes
    steps = [
        {name: step[name] for name in ("op", "rule", "needs", "out", "out_shapes", "at_least_one", "assumes")}
        for step in outcome.records[0]["records"]
    ]
    return [(each.minimum, each.maximum) for each in axes], steps


def _difference(first: object, second: object) -> str:
    if isinstance(first, tuple) and isinstance(second, tuple) and first[0] == second[0]:
        pairs = zip(first[1], second[1], strict=False)
        return str(next((pair for pair in pairs if pair[0] != pair[1]), "one more step"))[:600]
    return f"{str(first)[:200]} / {str(second)[:200]}"


def main() -> int:
    """Compare many; 1 when a spelling made a difference."""
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(*map(int, sys.argv[1:3])):
        try:
            counts[compare(seed)] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
            counts[type(error).__name__] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(dict(sorted(counts.items())))
    return 0 if set(counts) <= {"accepted", "refused", "as before"} else 1


if __name__ == "__main__":
    sys.exit(main())
