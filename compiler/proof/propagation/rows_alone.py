"""Proves that no row of a rewritten graph's outputs depends on another row of the batch.

Padding is proved before, and is a matter of the graph as it was then; the batch must be proved of what ships, since one
operator that looks at all rows, such as DynamicQuantizeLinear, is enough to mix them.
"""

from typing import Any

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.proof.propagation.certificate import certificate, records
from compiler.proof.propagation.propagate import Axes, input_facts, propagate

AFTER = "after"
"""Key of a certificate that speaks of the graph after the pass alone, not of what the pass made from the one before."""


def prove_rows(lowered: Lowered) -> dict[str, Any]:
    """Return the certificate that each row of every output depends on the same rows of the inputs alone.

    Raises:
        Refused: a node mixes rows, or an output's first axis is not the batch; the message names it.
    """
    axes = Axes(lowered.batch_axis, {})
    graphs.infer_shapes(lowered.model)
    derivation = propagate(lowered.model, axes, input_facts(lowered.model, axes))
    for judged in derivation.judged:
        if judged.verdict.needs:
            raise Refused(
                "expected independent rows without any rewriting, got a node that must be rewritten for it",
                cure="put pad_axes before the pass that wrote it",
            ).at(node=str(judged.node.name), op=judged.node.op_type, source=graphs.source_of(judged.node))
    for name, value in graphs.outputs_named(lowered.model).items():
        if derivation.fact(value).rows_axis not in (0, None):
            raise Refused("expected the batch in front of every output", cure="transpose the output").at(tensor=name)
    return {**certificate(axes, records(derivation), {}, {}, {}, {}), AFTER: True}
