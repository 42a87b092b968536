"""Certificates are plain data, complete and readable."""

import json

import pytest

from compiler.graph.model import symbol
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.facts import NUMBER, Fact, Index, make_fact
from compiler.proof.facts.interval import ANYTHING, ZERO
from compiler.proof.facts.layout import Frames, Plain, Rows, Segment, Side, suffix
from compiler.proof.propagation.certificate import fact_of, fact_record
from tests.kit.graphs import copy_of, streaming


def test_a_fact_is_written_whole() -> None:
    axes = {0: (Rows(symbol("batch")), Plain(2)), 1: suffix(symbol("time") + 1)}
    fact = make_fact(axes, lambda region: ANYTHING if region else ZERO, Index(1, 3))
    assert fact_record(fact) == {
        "axes": {"0": [{"rows": "batch"}, {"plain": "2"}], "1": [{"frames": [["time + 1", "left"]]}]},
        "contents": [[[], 0.0, 0.0, False], [[1], "-inf", "inf", True]],
        "index": {"axis": 1, "offset": "3"},
    }
    assert fact_record(NUMBER)["number"]


def test_the_certificate_of_a_stream_says_what_it_speaks_of() -> None:
    (proof,) = PadAxes().apply(copy_of(streaming())).records
    assert json.loads(json.dumps(proof, allow_nan=False)) == proof
    assert (proof["batch"], proof["sides"], proof["length_inputs"]) == (
        "batch", {"cache": "right"}, {"cache": "real_length"},
    )  # fmt: skip
    assert proof["mask_inputs"] == {"mask": ["cache + 2", "right"]}
    assert proof["assumes"] == ["minimum <= true length <= slots <= 2147483647 for every row and axis"]
    known = {"clamp", "fill", "rewrite"}
    assert all(known & need.keys() for record in proof["records"] for need in record["needs"])


@pytest.mark.parametrize(
    "fact",
    [
        NUMBER,
        make_fact({0: (Rows(symbol("batch")), Plain(2)), 1: suffix(symbol("time") + 1)}, lambda r: ANYTHING, Index(1)),
        make_fact(
            {1: (Frames((Segment(2), Segment(symbol("t"), Side.RIGHT))),)},
            lambda region: ZERO if region else ANYTHING,
            Index(1, symbol("t") - 2),
        ),
    ],
)
def test_a_written_fact_is_read_back(fact: Fact) -> None:
    assert fact_of(json.loads(json.dumps(fact_record(fact)))) == fact
