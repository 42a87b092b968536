"""The gate on buckets: rows that see their partners fail it."""

from pathlib import Path

import pytest

from compiler.errors import GateFailed
from compiler.verify.gates.buckets import BUCKETS
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
