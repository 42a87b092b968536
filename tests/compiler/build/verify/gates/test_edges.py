"""The gate on edge feeds: an artefact that answers one otherwise than the original fails it."""

from pathlib import Path

import numpy as np
import pytest

from compiler.build.verify.edge_agreement import EdgeCase
from compiler.build.verify.gates.edges import EDGES
from compiler.errors import GateFailed
from compiler.graph.runners.stream import OriginalCall
from tests.kit.shipped import emitted, feeds, relu, shipped, silent, stream_artefacts


def silence(answer: float) -> EdgeCase:
    zeros = np.zeros((1, 2), np.float32)
    return EdgeCase("silence", (OriginalCall({"x": zeros}, {"y": np.full((1, 2), answer, np.float32)}, {}),))


def test_every_kind_is_a_finding_and_what_the_original_does_not_answer_is_said(tmp_path: Path) -> None:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    cases = [silence(0.0), EdgeCase("impulse", (), unanswered="it raises")]
    checked = EDGES.run(shipped(tmp_path, stream_artefacts(tmp_path, [one], [feeds(3)]), [one], cases), silent)
    found = [(each.subject, each.holds, each.detail) for each in checked.findings]
    assert found == [("silence", True, ""), ("impulse", None, "the original does not answer: it raises")]
    assert checked.receipt == {"edges": {"silence": 1, "impulse": "it raises"}}


def test_another_answer_fails(tmp_path: Path) -> None:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [one], [feeds(3)]), [one], [silence(float("nan"))])
    with pytest.raises(GateFailed, match=r"stage verify, graph net, tensor y: .*edge feed 'silence'") as caught:
        EDGES.run(whole, silent)
    assert [(each.gate, each.subject, each.holds) for each in caught.value.findings] == [("edges", "silence", False)]
