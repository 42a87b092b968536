"""The finding on how long streams may be: it is said, and fails nothing."""

import dataclasses
from pathlib import Path

from compiler.build.verify.gates.stream_length import STREAM_LENGTH
from tests.compiler.build.verify.test_stream_length import counting
from tests.kit.shipped import emitted, feeds, relu, shipped, silent, stream_artefacts


def test_the_calls_of_a_table_are_a_finding_of_its_lookup(tmp_path: Path) -> None:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [one], [feeds(3)]), [one], [])
    assert not STREAM_LENGTH.is_wanted(whole.loaded.recipe, whole), "nothing is counted"
    counted = dataclasses.replace(whole.graph, lowered=counting("places = Identity(late)", 100))
    whole = dataclasses.replace(whole, graphs={whole.name: counted})
    assert STREAM_LENGTH.is_wanted(whole.loaded.recipe, whole)
    checked = STREAM_LENGTH.run(whole, silent)
    ((found),) = checked.findings
    assert (found.measured, found.holds, found.limit) == (25, True, None)
    assert checked.detail == "streams of 25 calls, then a table ends"
    assert STREAM_LENGTH.promises(whole.loaded.recipe, "net") == []
