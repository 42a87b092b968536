"""The chunk that completes a stream is as long as the bundle says, and of zeros; without one there is a sentence."""

from unittest import mock

import numpy as np
import pytest

from runtime_lite import BadInput
from runtime_lite.calls.flush import flush_feed
from runtime_lite.format.manifest import Axis, Tensor

GRAPH = mock.Mock(
    inputs=(
        Tensor("features", ("rows", "chunk", 4), "float32", "data"),
        Tensor("marks", ("rows", "chunk"), "int64", "data"),
        Tensor("chunk_length", ("rows",), "int64", "length"),
    ),
    axes={"rows": Axis((1, 4)), "chunk": Axis((8,), "chunk_length")},
    batch_axis="rows",
    flush={"features": 3, "marks": 3},
    flush_values={},
)


def test_zeros_of_every_input_for_every_row() -> None:
    found = flush_feed("net.flush", GRAPH, 2)
    assert {name: (array.shape, str(array.dtype)) for name, array in found.items()} == {
        "features": ((2, 3, 4), "float32"),
        "marks": ((2, 3), "int64"),
    }
    assert not any(np.any(array) for array in found.values())


def test_numbers_that_the_bundle_names() -> None:
    graph = mock.Mock(inputs=GRAPH.inputs, axes=GRAPH.axes, batch_axis="rows", flush=GRAPH.flush)
    graph.configure_mock(flush_values={"features": -11.5, "marks": 7.0})
    found = flush_feed("net.flush", graph, 1)
    np.testing.assert_array_equal(found["features"], np.full((1, 3, 4), -11.5, np.float32), strict=True)
    np.testing.assert_array_equal(found["marks"], np.full((1, 3), 7, np.int64), strict=True)


def test_a_graph_whose_outputs_do_not_lag() -> None:
    with pytest.raises(BadInput, match=r"net\.flush: expected a graph whose recipe says what completes a stream, got"):
        flush_feed("net.flush", mock.Mock(flush={}), 1)


def test_rows_that_there_are_none() -> None:
    alone = mock.Mock(inputs=(Tensor("x", ("chunk",), "float32", "data"),), axes={"chunk": Axis((8,), "n")})
    alone.configure_mock(batch_axis=None, flush={"x": 5}, flush_values={})
    assert flush_feed("net.flush", alone, 1)["x"].shape == (5,)
