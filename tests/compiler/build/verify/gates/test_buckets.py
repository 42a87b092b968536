"""The gate on buckets: rows that see their partners fail it."""

import dataclasses
from pathlib import Path

import pytest

from compiler.build.verify.gates.buckets import BUCKETS
from compiler.errors import GateFailed
from compiler.recipe.gates import LossyTolerance
from tests.kit.shipped import MIXING, emitted, feeds, relu, shipped, silent, stream_artefacts


def test_every_bucket_is_a_finding(tmp_path: Path) -> None:
    one, two = emitted(tmp_path, relu(1), {"batch": 1}), emitted(tmp_path, relu(2), {"batch": 2})
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [one, two], [feeds(3), feeds(2, 1)]), [one, two])
    checked = BUCKETS.run(whole, silent)
    assert [(each.graph, each.subject, each.measured, each.holds) for each in checked.findings] == [
        ("net", "batch=1", 0.0, True),
        ("net", "batch=2", 0.0, True),
    ]
    assert checked.receipt == {"buckets": {"batch=1": 0.0, "batch=2": 0.0}}


def test_rows_that_mix_fail(tmp_path: Path) -> None:
    one, four = emitted(tmp_path, relu(1), {"batch": 1}), emitted(tmp_path, MIXING, {"batch": 4})
    mixed = shipped(tmp_path, stream_artefacts(tmp_path, [one, four], [feeds(3), feeds(2, 1)]), [one, four])
    with pytest.raises(GateFailed, match=r"stage verify batch=4.*expected y of every row as alone") as caught:
        BUCKETS.run(mixed, silent)
    assert [(each.subject, each.holds) for each in caught.value.findings] == [("batch=1", True), ("batch=4", False)]


LABELS = """(float[%d,2] x) => (int64[%d] y) { y = ArgMax<axis = 1, keepdims = 0>(%s) }"""


@pytest.mark.parametrize(("min_equal", "holds"), [(0.99, False), (0.0, True)])
def test_labels_of_rows_are_counted(tmp_path: Path, min_equal: float, holds: bool) -> None:
    one = emitted(tmp_path, LABELS % (1, 1, "x"), {"batch": 1})
    two = emitted(
        tmp_path, "(float[2,2] x) => (int64[2] y) { z = Neg(x) y = ArgMax<axis = 1, keepdims = 0>(z) }", {"batch": 2}
    )
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [one, two], [feeds(3), feeds(2, 1)]), [one, two])
    limits = LossyTolerance(max_abs=1e6, min_equal=min_equal)
    whole = dataclasses.replace(whole, graphs={"net": dataclasses.replace(whole.graphs["net"], limits=limits)})
    if holds:
        assert BUCKETS.run(whole, silent).findings[0].measured == 1.0
        return
    with pytest.raises(
        GateFailed, match=r"expected y of every row as alone in at least 99 % of its entries, got "
    ) as caught:
        BUCKETS.run(whole, silent)
    assert "nearly tied" in caught.value.cure
