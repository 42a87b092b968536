"""Prover, checker and comparison agree on every small graph, or it is refused with words that help."""

import collections

import pytest

from compiler.graph.stages import State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.agreement import PROVED, REFUSED, judged, lowered
from tests.property.small_graphs import SCORES, Small, corpus, text_of

GRAPHS = list(corpus())
QUICK = GRAPHS[::8]
PARTS = 4

REFUSABLE = (
    "mean by the length, literal", "strided same", "same mean pool", "same max pool", "every second of the last",
    "keeps nothing", "one of as many",
    "turned round", "middle frame", "joined with itself", "split frames", "repeated", "depth to time",
    "positions from the end", "positions about the middle", "positions multiplied", "positions divided",
    "distance of the length", "mean over rows", "sort of frames", "frames interleaved", "cut after interleaving",
    "places of what is not zero", "whole quotient by a remainder", "whole quotient by a count that is rounded",
    "root of shares of a row", "positions from 0 to 1, literal",
    "frames from three before on, literal", "softmax from the batch on", " beside ", "three frames of context",
)  # fmt: skip
"""What may be refused, by parts of names; and lengths as data of a graph without a batch axis."""

AS_DATA = ("length", "quotient taken off", "remainder", "fmod")


def may_be_refused(name: str) -> bool:
    """Whether a graph need not be proved."""
    as_data = "literal batch" in name and any(part in name for part in AS_DATA)
    return as_data or any(part in name for part in REFUSABLE)


def _judge(graphs: list[Small]) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    wrong = []
    for small in graphs:
        try:
            verdict, told = judged(small.make())
        except Exception as error:  # noqa: BLE001 - every graph is told with what went wrong
            wrong.append(f"{small.name}: {type(error).__name__}: {error}")
            continue
        found[verdict] += 1
        if verdict == REFUSED and not may_be_refused(small.name):
            wrong.append(f"{small.name}: refused: {told}")
    assert not wrong, "\n".join(wrong)
    return found


def test_names_are_distinct() -> None:
    assert len({small.name for small in GRAPHS}) == len(GRAPHS) > 500


@pytest.mark.parametrize("part", range(PARTS))
def test_some_of_the_small_graphs(part: int) -> None:
    _judge(QUICK[part::PARTS])


@pytest.mark.slow
def test_all_small_graphs() -> None:
    found = _judge(GRAPHS)
    assert found[PROVED] > 0.8 * len(GRAPHS)


NAMED = {
    "a norm in front of a cache, literal batch": "normed keys of a linear layer of norms, literal batch",
    "rows of a table between a length and a number": "positions summed about the middle",
    "rows of a table from the length of the raw cache on": "positions beyond the cache of frames",
    "the last frames and their mean": "last frames and their mean",
    "fmod of a negative length": "fmod of a negative",
    "a quotient of a negative length": "negative quotient taken off",
    "a sum in opset 11": "sum over time, opset 11",
    "softmax over all axes from time on in opset 12": "softmax from time on, opset 12",
    "bounds as Constant nodes": "slice, pad, clip, dropout and split with attributes, opset 9",
    "a mean pool rounded up": "mean pool rounded up",
    "a strided same pool": "same max pool",
    "another name of the batch": "apart beside another name of the batch",
    "a value that all rows share, filled per row": "attention to another beside a literal batch",
    "a cut of a cut that keeps nothing": "cut of a cut that keeps nothing",
    "a kernel over more frames than there are": "kernel over more frames, which keeps nothing",
    "a range that counts floating point": "positions by floating point of a cut of a cut, which keeps nothing",
    "one-hot vectors of as many classes as frames": "one of as many as there are frames",
    "a width as data": "width as data",
    "a smallest of length and constant": "length or nothing",
    "a remainder that lengths do not change": "remainder that is always none",
    "a bound that lengths do not change": "cut at a remainder",
    "a truth that lengths do not change": "compared with a remainder",
    "a quotient of equal lengths": "length by itself",
    "a quotient of equal lengths, literal batch": "length by itself, literal batch",
    "a quotient of rows": "rows by themselves",
    "an axis without a meaning": "apart beside an axis without a name",
}
"""What prover and checker once disagreed about, or what stopped them."""


@pytest.mark.parametrize("name", NAMED.values(), ids=NAMED)
def test_what_they_disagreed_about(name: str) -> None:
    (small,) = [each for each in GRAPHS if each.name == name]
    verdict, told = judged(small.make(), seeds=4)
    assert verdict == PROVED or may_be_refused(name), told


def test_a_batch_of_one_has_the_bounds_of_its_untracked_nodes_on_record() -> None:
    bounded = "n = IsNaN(x)  h = Cast<to = 1>(n)  new = LayerNormalization<axis = -1>(h, gain, bias)"
    body = f"{bounded}  joined = Concat<axis = 1>(past, new)  {SCORES}"
    body = body.replace("[0, 2, 1]>(x)", "[0, 2, 1]>(joined)")
    text = text_of(
        body + "p = Softmax<axis = -1>(s)  y = MatMul(p, joined)  next = Identity(joined)",
        "float[1,2,4] x, float[1,cache,4] past", "float[p,q,r] y, float[p,q,r] next",
    )  # fmt: skip
    cache = CacheAxis("cache", 6, 2, "real_length", None)
    verdict, outcome = judged(
        lowered(text, batch=None, axes=(), caches=(cache,), states=(State("past", "next", 1, "cache"),))
    )
    assert verdict == PROVED and not isinstance(outcome, Exception)
    assert "LayerNormalization" in [record["op"] for record in outcome.records[0]["records"]]
