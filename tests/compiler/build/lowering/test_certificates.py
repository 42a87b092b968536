"""What a pass claims is replayed by the checker before it counts."""

import dataclasses

import pytest

from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import GateFailed
from compiler.graph import model as graphs
from compiler.passes.pad_axes import PadAxes
from compiler.passes.simplify import Simplify
from tests.kit.graphs import copy_of, streaming


def test_a_pass_that_claims_nothing_has_no_steps() -> None:
    lowered = streaming()
    assert replay_certificates(copy_of(lowered), Simplify().apply(lowered)) == 0


def test_every_step_of_a_proof_is_replayed() -> None:
    lowered = streaming()
    outcome = PadAxes().apply(copy_of(lowered))
    assert replay_certificates(lowered, outcome) >= len(list(lowered.model.graph)) // 2


def test_a_graph_that_is_not_what_the_certificate_says_is_stopped() -> None:
    lowered = streaming()
    outcome = PadAxes().apply(copy_of(lowered))
    spoilt = graphs.clone(outcome.lowered.model)
    (softmax,) = [node for node in spoilt.graph if node.op_type == "Softmax"]
    softmax.attributes.pop("axis", None)
    softmax.op_type = "Sigmoid"
    with pytest.raises(GateFailed, match="expected a certificate that holds"):
        replay_certificates(
            lowered, dataclasses.replace(outcome, lowered=dataclasses.replace(outcome.lowered, model=spoilt))
        )
