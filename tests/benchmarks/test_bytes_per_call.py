"""bytes_per_call: counted by hand for a graph of a few lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.bytes_per_call import Moved, bytes_per_call
from runtime_lite import read_bundle
from tests.runtime_lite.bundles import WIDTH, WINDOW, write_open_bundle, write_streaming_bundle


@pytest.mark.parametrize("write", [write_open_bundle, write_streaming_bundle])
def test_states_grow_with_rows_and_weights_do_not(write: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle")
    with read_bundle(folder) as bundle:
        (graph,) = bundle.manifest.graphs.values()
    one, four = bytes_per_call(folder, graph)
    keys, weights = 4 * WINDOW * WIDTH, 4 * WIDTH * WIDTH + 4 * 8 + 4  # the product's, four numbers of axes, a zero
    joined, chunk, mask, total, count = 64, 24, 32, 8, 4
    values = sum(
        (
            keys + chunk + joined,
            mask + 8,  # to truth values
            8 + joined + joined,
            joined + total,
            mask + count,
            total + count + total,
            chunk + total + chunk,
            chunk + chunk,
            8 + 4,  # the length to a real number
            chunk + 4 + chunk,
            joined + keys,
        )
    )
    assert one == Moved("batch=1", keys, keys, weights, values)
    assert four == Moved("batch=4", 4 * keys, 4 * keys, weights, 4 * values)
