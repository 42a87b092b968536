"""Runs the independent checker on the certificates of a pass."""

from compiler.build.bundle.proof_files import Proof, proof_of
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import GateFailed
from compiler.graph.stages import Lowered, Outcome
from compiler.proof.propagation.rows_alone import AFTER


def replay_certificates(before: Lowered, outcome: Outcome) -> int:
    """Replay a pass's certificates with the independent checker; return the number of steps.

    Raises:
        GateFailed: a step does not hold.
    """
    return replay_proof(proof_of("", before, outcome))


def replay_proof(proof: Proof | None, survived: set[bytes] | None = None) -> int:
    """Replay a proof with serialized graphs; return the number of steps, 0 for None. `survived` as in the checker."""
    if proof is None:
        return 0
    try:
        weights = {**proof.before.weights, **proof.after.weights}
        before, after = proof.before.proto, proof.after.proto
        return sum(
            check(after if record.get(AFTER) else before, after, record, survived=survived, weights=weights)
            for record in proof.records
        )
    except Rejected as rejected:
        raise GateFailed(
            f"expected a certificate that holds, got: {rejected}",
            cure=rejected.cure,
        ) from None
