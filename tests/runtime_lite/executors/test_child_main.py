"""Parent and child see the same arrays in one piece of memory; processes themselves are in test_child.py."""

import dataclasses
import mmap

import numpy as np

from runtime_lite.executors.child_main import ALIGNMENT, arrays_by_bucket, bytes_of_largest_bucket
from runtime_lite.format.manifest import bucket_name, static_shape
from tests.runtime_lite.bundles import ragged_graph, streaming_graph


def test_both_sides_see_the_same_arrays_and_none_lies_over_another() -> None:
    for graph in (streaming_graph(), ragged_graph()):
        memory = mmap.mmap(-1, bytes_of_largest_bucket(graph))
        ours, theirs = arrays_by_bucket(graph, memory), arrays_by_bucket(graph, memory)
        for artifact in graph.artifacts:
            mine, its = ours[bucket_name(artifact.sizes)], theirs[bucket_name(artifact.sizes)]
            written = {**mine.inputs, **mine.outputs}
            assert list(written) == [tensor.name for tensor in (*graph.inputs, *graph.outputs)]
            for number, (tensor, array) in enumerate(
                zip((*graph.inputs, *graph.outputs), written.values(), strict=True)
            ):
                assert array.shape == static_shape(tensor.shape, artifact.sizes)
                assert array.dtype.name == tensor.dtype
                assert array.ctypes.data % ALIGNMENT == 0
                array[...] = number
            for number, array in enumerate({**its.inputs, **its.outputs}.values()):
                np.testing.assert_array_equal(array, np.full_like(array, number))


def test_a_graph_whose_arrays_hold_nothing_has_room_all_the_same() -> None:
    tensors = tuple(dataclasses.replace(tensor, shape=("batch", 0)) for tensor in streaming_graph().inputs)
    graph = dataclasses.replace(streaming_graph(), inputs=tensors, outputs=())
    memory = mmap.mmap(-1, bytes_of_largest_bucket(graph))
    assert all(not array.size for array in arrays_by_bucket(graph, memory)["batch=4"].inputs.values())
