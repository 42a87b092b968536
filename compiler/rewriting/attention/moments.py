"""Measures second moments of queries, keys and values over calibration streams.

Sums over all frames of all calls, in double precision; nothing else of the frames is kept.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler.calib.watched_streams import run_streams
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Array as Numbers
from compiler.graph.stages import Feed, Lowered
from compiler.rewriting.attention.attention import Attention, Heads
from compiler.rewriting.attention.shared_maps import Array


@dataclasses.dataclass
class HeadMoments:
    """Moments of one attention's projections.

    Attributes:
        queries: q_h^T q_h, float64 [heads, d, d].
        keys: of all heads beside each other, float64 [heads, d, heads, d].
        values: likewise.
    """

    queries: Array
    keys: Array
    values: Array


def head_moments(
    lowered: Lowered, attentions: Sequence[Attention], streams: Sequence[Sequence[Feed]]
) -> list[HeadMoments]:
    """Return the moments of every attention.

    Args:
        lowered: the graph.
        attentions: the attentions to measure.
        streams: feeds of one row.
    """
    moments_of = []
    for attention in attentions:
        shape = (attention.heads, attention.size, attention.heads, attention.size)
        moments_of.append(
            HeadMoments(np.zeros((attention.heads, attention.size, attention.size)), np.zeros(shape), np.zeros(shape))
        )
    names = [
        str(heads.value.name) for attention in attentions for heads in (attention.query, attention.key, attention.value)
    ]
    for call in run_streams(exposed(lowered, names), streams):
        for moments, attention in zip(moments_of, attentions, strict=True):
            queries, keys, values = (
                _frames(each_heads, call.outputs[str(each_heads.value.name)])
                for each_heads in (attention.query, attention.key, attention.value)
            )
            moments.queries += np.einsum("thi,thj->hij", queries, queries)
            moments.keys += np.einsum("thi,tgj->higj", keys, keys, optimize=True)
            moments.values += np.einsum("thi,tgj->higj", values, values, optimize=True)
    return moments_of


def _frames(heads: Heads, array: Numbers) -> Array:
    """Return [frames, heads, d] of a call's array."""
    ordered = array.transpose(heads.batch_axis, heads.time_axis, heads.heads_axis, 3)
    found: Array = ordered.reshape(-1, *ordered.shape[2:]).astype(np.float64)
    return found
