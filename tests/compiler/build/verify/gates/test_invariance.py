"""The gate on padding: what is seen of a free row fails it."""

from pathlib import Path

import pytest

from compiler.build.verify.gates.invariance import INVARIANCE
from compiler.errors import GateFailed
from tests.kit.shipped import MIXING, emitted, feeds, relu, shipped, silent, stream_artefacts


def test_every_bucket_is_a_finding(tmp_path: Path) -> None:
    two = emitted(tmp_path, relu(2), {"batch": 2})
    checked = INVARIANCE.run(shipped(tmp_path, stream_artefacts(tmp_path, [two], [feeds(3)]), [two]), silent)
    (finding,) = checked.findings
    assert (finding.gate, finding.graph, finding.subject, finding.holds) == ("invariance", "net", "batch=2", True)
    assert checked.receipt["invariance"]["batch=2"]["batch"] == 2


def test_a_free_row_that_is_seen_fails(tmp_path: Path) -> None:
    four = emitted(tmp_path, MIXING, {"batch": 4})
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [four], [feeds(3)]), [four])
    with pytest.raises(GateFailed, match="expected y unchanged by NaN in padded places, got other values") as caught:
        INVARIANCE.run(whole, silent)
    assert [(each.gate, each.subject, each.holds) for each in caught.value.findings] == [("invariance", "y", False)]
