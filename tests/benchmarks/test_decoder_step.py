"""decoder_step: what is timed is what the passes give."""

import collections

import numpy as np

from benchmarks.decoder_step import LABELS, Size, whole_decoder
from compiler.graph.stages import Lowered
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.passes.simplify import simplify_model
from tests.kit.calibration import with_streams
from tests.kit.graphs import BATCH, ops_of


def test_the_decoder_with_fewer_heads_has_the_products_of_a_merged_one() -> None:
    whole, shared = whole_decoder(Size(1, 16, 4, 4)), whole_decoder(Size(1, 16, 4, 2))
    for model in (whole, shared):
        simplify_model(model)
    tokens = np.random.default_rng(0).integers(0, LABELS, (3, 1, 12))
    lowered = Lowered("decoder", whole, batch_axis=BATCH, data_outputs=("scores",))
    given = with_streams(lowered, *([{"tokens": each}] for each in tokens))
    merged = MergeKvHeads(2, refit=False).apply(given).lowered.model
    simplify_model(merged)
    assert collections.Counter(ops_of(merged)) == collections.Counter(ops_of(shared))
    shapes = [
        sorted(str(value.shape) for value in model.graph.initializers.values() if len(value.shape or ()) == 2)
        for model in (merged, shared)
    ]
    assert shapes[0] == shapes[1]
