"""Merges attention heads with equal key and value weights, so that their keys and values are projected only once.

It comes before steps are derived, so that caches hold what is shared. Nothing is lost: the mean of equal keys is each.
"""

import itertools

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.stages import Feed, Lowered
from compiler.passes.merge_kv_heads import in_plain_form
from compiler.passes.simplify import simplify_model
from compiler.proof.facts.lengths import infer_settled
from compiler.recipe.graph import Graph
from compiler.recipe.stage_inputs import EXAMPLE_FRAMES
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.grouping import Group
from compiler.rewriting.attention.rewriting import Rewriter, merged_weights, require_rewritable
from compiler.rewriting.attention.shared_maps import Maps
from compiler.rewriting.attention.site import Site, site_of

STAGE = "share_heads"

EQUAL = 1e-6
"""Largest difference, beside the largest weight, between equal ones: each is found by a product and a sum."""


def merge_equal_heads(model: ir.Model, graph: str, spec: Graph) -> None:
    """Merge heads with equal keys and values, in every attention of a graph over whole sequences.

    Args:
        model: the captured graph; changed.
        graph: the graph's name.
        spec: the graph's record, with `share_heads`.

    Raises:
        Refused: an attention is not found, or its heads are not equal in groups of one size.
    """
    assert spec.share_heads is not None
    try:
        lowered = in_plain_form(Lowered(graph, model, batch_axis=spec.batch))
        feed = _example(spec)
        search = find_attentions(lowered.model)
        if search.refused:
            raise Refused(f"expected every attention to be found: {search.refused[0]}", cure="leave share_heads out")
        for attention in search.attentions:
            require_rewritable(attention)
            site = site_of(model, attention, feed)
            partition = _partition(site, spec.share_heads.groups)
            maps = [_mean(len(group), attention.size) for group in partition]
            Rewriter(model, attention, partition, merged_weights(site, partition, maps, maps), STAGE).write()
            graphs.prune(model)
            infer_settled(model)
        simplify_model(model)
    except SlipwayError as error:
        raise error.at(stage=STAGE, graph=graph) from None


def _partition(site: Site, groups: int) -> tuple[Group, ...]:
    """Return the groups of heads with equal keys and values, by their lowest head.

    Raises:
        Refused: the heads cannot be divided into that number of equal groups.
    """
    heads = site.attention.heads
    of_heads = np.concatenate(
        [
            array.reshape(-1, heads, site.attention.size)
            for part in (site.key, site.value)
            for array in (part.weights, part.bias)
        ]
    )
    close = EQUAL * float(np.abs(of_heads).max())
    lowest = [
        next(other for other in range(head + 1) if np.abs(of_heads[:, head] - of_heads[:, other]).max() <= close)
        for head in range(heads)
    ]
    ordered = sorted(range(heads), key=lambda head: (lowest[head], head))
    partition = tuple(tuple(group) for _, group in itertools.groupby(ordered, key=lambda head: lowest[head]))
    if {len(group) for group in partition} != {heads // groups} or len(partition) != groups:
        got = ", ".join(str(len(group)) for group in partition)
        raise Refused(
            f"expected {groups} groups of equal heads, got groups of {got}",
            place=Location(node=site.attention.name, op="Softmax"),
        )
    return partition


def _mean(heads: int, size: int) -> Maps:
    """Return maps that replace equal heads by their mean."""
    same = np.broadcast_to(np.eye(size), (heads, size, size))
    return Maps(same / heads, np.array(same))


def _example(spec: Graph) -> Feed:
    """Return one row of each input, with a different size for each axis and numbers within the declared ranges."""
    random = np.random.default_rng(0)
    sizes = {axis: 1 if axis == spec.batch else EXAMPLE_FRAMES + number for number, axis in enumerate(spec.axes)}
    feed = {}
    for name, input_spec in spec.inputs.items():
        shape = [dim if isinstance(dim, int) else spec.axes[dim].fixed or sizes[dim] for dim in input_spec.shape]
        number = input_spec.without_padding(sizes)
        if number is not None or input_spec.dtype == "bool":
            feed[name] = np.full(shape, 1 if number is None else number, input_spec.dtype)
        elif input_spec.dtype.startswith("float"):
            feed[name] = random.standard_normal(shape).astype(input_spec.dtype)
        else:
            feed[name] = np.full(shape, 1 if input_spec.example is None else input_spec.example, input_spec.dtype)
    return feed
