"""Models that are no streams, as the zoo has them: refused with the first node that reads later frames, and how far."""

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.simplify import simplify_model
from compiler.proof.derivation.derive import derive
from tests.zoo.family import BATCH, Family
from tests.zoo.store import load

TIME = "time"
LONGEST = 40

NO_STREAMS = (
    "bert_maskless",
    "distilbert",
    "roformer",
    "modernbert",
    "esm",
    "fnet",
    "convbert",
    "t5_encoder",
    "whisper_encoder",
    "torch_transformer_encoder_maskless",
    "blstm_ctc",
)
"""Families of the zoo that look ahead."""


def refusal_of(family: Family) -> Refused:
    """Why no steps are derived of a model over whole sequences, all of whose frames are valid, in batches of four.

    Raises:
        AssertionError: steps are derived.
    """
    model = load(family.name)
    _without_masks(model, family)
    simplify_model(model)
    CanonicalizeAttention().apply(Lowered(family.name, model))
    simplify_model(model)
    try:
        derive(model, TIME, "past", LONGEST, {BATCH: 4})
    except Refused as refused:
        return refused
    raise AssertionError(f"steps were derived of {family.name}")


def _without_masks(model: ir.Model, family: Family) -> None:
    """Masks of frames are ones."""
    given = graphs.inputs_named(model)
    whole = next(value for name, value in given.items() if family.inputs[name].mask_of is None)
    for name, value in given.items():
        if family.inputs[name].mask_of != TIME:
            continue
        insert = graphs.Inserter(model, "zoo", before=next(iter(model.graph)))
        at = {axis: family.inputs[str(whole.name)].shape.index(axis) for axis in (BATCH, TIME)}
        sizes = [
            insert.op("Shape", [whole], {"start": each, "end": each + 1}, name="size", dtype=ir.DataType.INT64)
            for each in at.values()
        ]
        shape = insert.op("Concat", sizes, {"axis": 0}, name="mask_shape")
        ones = insert.op("Expand", [insert.constant(np.array(1, np.int64), "one"), shape], name="all_valid")
        graphs.take_over(model, value, ones)
        model.graph.inputs.remove(value)
