"""The gate on parity: both limits of every tensor, and the tensor that uses most of them."""

import pytest

from compiler.build.verify.differences import Difference
from compiler.build.verify.gates.parity import parity_findings, require_parity
from compiler.calib.classes import Agreement
from compiler.errors import GateFailed
from compiler.recipe.gates import LossyTolerance, ParityGate, Tolerance

GATE = ParityGate(max_abs=1e-5, chained_steps=4)


def test_parity_names_the_tensor_that_uses_most_of_its_limit() -> None:
    fine, wide = Difference("a", 4, 9e-6, 1.0, 0, 0, 0), Difference("b", 4, 2e-5, 1.0, 3, 0, 0)
    require_parity("net", "verify", [fine], GATE, "report it")
    with pytest.raises(GateFailed) as caught:
        require_parity("net", "verify", [fine, wide], GATE, "report it")
    assert "tensor b" in str(caught.value)
    assert "difference of 2e-05 at chained step 3; report it" in str(caught.value)


def test_every_tensor_has_a_finding_per_limit() -> None:
    quiet, loud = Difference("a", 4, 0.0, 1.0, 0, 0, 0), Difference("b", 4, 1e-3, 2.0, 3, 0, 0, 12.5)
    found = list(parity_findings("net", [quiet, loud], Tolerance(max_abs=1e-2, sqnr_db=20.0)))
    assert [(each.gate, each.subject, each.holds) for each in found] == [
        ("parity.max_abs", "a", True),
        ("parity.sqnr_db", "a", True),
        ("parity.max_abs", "b", True),
        ("parity.sqnr_db", "b", False),
    ]
    assert found[2].detail == "4 steps, reference up to 2, SQNR 12.5 dB"
    assert found[2].figures == {"steps": 4, "reference_max": 2.0, "sqnr_db": 12.5}
    assert (found[3].limit_words, found[3].used) == ("at least 20", None)


def test_states_that_a_pass_has_packed_are_named_as_the_model_does() -> None:
    packed = Difference("packed_0", 4, 2e-5, 1.0, 3, 0, 0)
    parts = {"packed_0": ("k0", "v0", "k1", "v1", "k2", "v2")}
    (found,) = parity_findings("net", [packed], GATE, parts)
    assert (found.subject, found.detail) == ("packed_0", "states k0, v0, k1, v1 and 2 more; 4 steps, reference up to 1")
    with pytest.raises(GateFailed, match=r"expected packed_0 \(states k0, v0, k1, v1 and 2 more\) within 1e-05"):
        require_parity("net", "verify", [packed], GATE, "report it", parts)
    (other,) = parity_findings("net", [Difference("logits", 4, 0.0, 1.0, 3, 0, 0)], GATE, parts)
    assert other.detail == "4 steps, reference up to 1"


LABELS = Difference("labels", 4, 315.0, 412.0, 2, 0, 315.0, None, Agreement(200, 3, "97 at [0, 17], not 412", 2))


def test_classes_have_one_finding_the_share_that_is_equal() -> None:
    (found,) = parity_findings("net", [LABELS], LossyTolerance(max_abs=0.5, sqnr_db=25.0))
    assert (found.gate, found.subject, found.measured, found.limit_words, found.holds) == (
        "parity.min_equal", "labels", 0.985, "at least 0.99", False,
    )  # fmt: skip
    assert found.detail == "4 steps, 197 of 200 equal, the first other one at chained step 2: 97 at [0, 17], not 412"
    assert found.figures == {"steps": 4, "compared": 200, "differing": 3}


@pytest.mark.parametrize(
    ("limits", "expected", "cure"),
    [
        (LossyTolerance(max_abs=0.5), "at least 99 %", "keep what computes them in float"),
        (GATE, "all", "sums in another order"),
    ],
)
def test_classes_that_differ_are_told_what_decides_them(limits: Tolerance, expected: str, cure: str) -> None:
    require_parity("net", "verify", [LABELS], LossyTolerance(max_abs=0.5, min_equal=0.98), "report it")
    with pytest.raises(GateFailed) as caught:
        require_parity("net", "verify", [LABELS], limits, "report it")
    assert f"expected labels equal to the original's in {expected} of its entries, as classes, got 197 of 200" in str(
        caught.value
    )
    assert cure in caught.value.cure and "min_equal" in caught.value.cure and "report" not in caught.value.cure
