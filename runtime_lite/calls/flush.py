"""Makes the last chunk of a stream whose outputs lag behind its inputs, from the bundle's length and fill value."""

import numpy as np

from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, static_shape


def flush_feed(where: str, graph: Graph, rows: int) -> dict[str, Array]:
    """Return the chunk that completes the outputs of a stream.

    Args:
        where: name of the call in messages.
        graph: the graph of the stream.
        rows: number of rows of the stream.

    Raises:
        BadInput: the bundle states no such chunk.
    """
    if not graph.flush:
        raise BadInput(
            f"{where}: expected a graph whose recipe says what completes a stream, got one without; "
            "nothing of its outputs lags, or write flush: {input: entries} into the recipe"
        )
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        if tensor.role == "data":
            sizes = dict.fromkeys(graph.axes, graph.flush[tensor.name])
            sizes |= {} if graph.batch_axis is None else {graph.batch_axis: rows}
            value = graph.flush_values.get(tensor.name, 0.0)
            feeds[tensor.name] = np.full(static_shape(tensor.shape, sizes), value, tensor.dtype)
    return feeds
