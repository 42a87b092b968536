"""Records an attention whose keys and values can be shared, with its projections as found by running subgraphs."""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph.stages import Feed
from compiler.rewriting.attention import probing
from compiler.rewriting.attention.attention import Attention, Heads
from compiler.rewriting.attention.layout import axes_of_cache
from compiler.rewriting.attention.probing import Affine
from compiler.rewriting.attention.shared_maps import Array, Channels


@dataclasses.dataclass(frozen=True)
class Site:
    """One attention and its weights.

    Attributes:
        attention: its nodes.
        query: the projection of queries, [width, heads * d].
        key: the projection of keys.
        value: the projection of values.
        output: the projection of the context, [heads * d, width].
        keys: how channels of keys may be mixed.
        key_cache: the effect on channels of the nodes between a projected key and a cached one, [frames, d, d]; or
            None.
        value_cache: the same of values.
    """

    attention: Attention
    query: Affine
    key: Affine
    value: Affine
    output: Affine
    keys: Channels
    key_cache: Array | None = None
    value_cache: Array | None = None

    @property
    def values(self) -> Channels:
        """Return that all channels of values may be mixed, as the output projection is linear in them."""
        return Channels(tuple(range(self.attention.size)))

    @property
    def value_metrics(self) -> Array:
        """Return O_h O_h^T of the output projection, float64 [heads, d, d]."""
        heads = self.output.weights.reshape(self.attention.heads, self.attention.size, -1)
        found: Array = np.einsum("hid,hjd->hij", heads, heads)
        return found


def site_of(model: ir.Model, attention: Attention, feed: Feed) -> Site:
    """Return the projections and maps that an attention computes, found by running it.

    Args:
        model: the graph.
        attention: the attention.
        feed: all inputs of one call of one row.

    Raises:
        Refused: a part has a form that sharing does not support.
    """
    queries = probing.turning(model, attention.query, feed)
    keys = probing.turning(model, attention.key, feed, probing.TURNED)
    values = probing.turning(model, attention.value, feed)
    if not np.allclose(values, np.eye(attention.size), rtol=0, atol=probing.CLOSE):
        name = attention.value.operand.name
        raise Refused(f"expected {name} to hold the projected values as they are, got other numbers")
    return Site(
        attention,
        probing.projection(model, attention.query, feed),
        probing.projection(model, attention.key, feed),
        probing.projection(model, attention.value, feed),
        probing.output_projection(model, attention, feed),
        probing.channels_of(queries, keys),
        _cached(model, attention.key, feed),
        _cached(model, attention.value, feed),
    )


def _cached(model: ir.Model, heads: Heads, feed: Feed) -> Array | None:
    if heads.cache is None:
        return None
    up_to = dataclasses.replace(heads, operand=heads.cache.new)
    return probing.turning(model, up_to, feed, axes_of_cache(heads))
