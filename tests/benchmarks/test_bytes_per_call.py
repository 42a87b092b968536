"""bytes_per_call: counted by hand for a graph of a few lines."""

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from benchmarks.bytes_per_call import Moved, bytes_per_call
from runtime_lite import read_bundle
from tests.kit.graphs import parse
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


def test_of_two_branches_the_one_that_moves_less_counts(tmp_path: Path) -> None:
    text = """(float[2,8] x, bool c) => (float[2,8] y) {
      y = If (c) <then_branch = less () => (float[2,8] a) { a = Neg(x) },
                  else_branch = more () => (float[2,8] e) { d = Neg(x)  e = Neg(d) }> }"""
    folder = write_open_bundle(tmp_path / "bundle")
    with read_bundle(folder) as bundle:
        (graph,) = bundle.manifest.graphs.values()
    ir.save(parse(text), folder / graph.artifacts[0].file)
    assert next(iter(bytes_per_call(folder, graph))).values == 2 * 4 * 2 * 8
