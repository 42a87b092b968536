"""Recordings survive the way to `.npz` and back; attacks on the reader are in tests/attacks."""

import dataclasses

import pytest

from runtime_lite.format.golden import golden_from_npz, npz_from_golden
from tests.runtime_lite.bundles import (
    plain_golden,
    plain_graph,
    ragged_golden,
    ragged_graph,
    streaming_golden,
    streaming_graph,
)


def test_recordings_survive_the_way_to_npz_and_back() -> None:
    recordings = ((streaming_golden(), streaming_graph()), (plain_golden(), plain_graph()))
    lossy = dataclasses.replace(plain_golden(), min_equal=0.99)
    for golden, graph in (*recordings, (ragged_golden(), ragged_graph()), (lossy, plain_graph())):
        content = npz_from_golden(golden)
        found = golden_from_npz(content, "golden", graph)
        assert npz_from_golden(found) == content
        assert len(found.steps) == len(golden.steps)
        assert (found.tolerance, found.min_equal) == pytest.approx((golden.tolerance, golden.min_equal))
