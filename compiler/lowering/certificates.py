"""The independent checker's word on what a pass claims."""

import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.rows_alone import AFTER
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import GateFailed
from compiler.stages import Lowered, Outcome


def replay_certificates(before: Lowered, outcome: Outcome) -> int:
    """Have the independent checker replay what a pass claims; the number of steps.

    Raises:
        GateFailed: a step does not hold.
    """
    if not outcome.records:
        return 0
    house.infer_shapes(before.model)
    unpadded, padded = (ir.serde.serialize_model(each) for each in (before.model, outcome.lowered.model))
    try:
        return sum(check(padded if record.get(AFTER) else unpadded, padded, record) for record in outcome.records)
    except Rejected as rejected:
        raise GateFailed(
            f"expected a certificate that holds, got: {rejected}",
            cure="report it: the prover and the checker disagree; nothing unproved is shipped",
        ) from None
