"""The name that a recipe writes becomes a target's rules, whichever target brought them."""

import pytest

from compiler.errors import RecipeError
from compiler.numerics.quantization.placement import CPU, Placement, with_placement
from compiler.passes import make_pass
from compiler.passes.quantize_static import QuantizeStatic
from compiler.targets import TARGETS, placements
from compiler.targets.null import Null

ACME = Placement("acme", signed=True, rounds_convolution_outputs=True, splits_bias=False)


def test_a_name_becomes_the_rules_and_other_options_stay() -> None:
    assert with_placement({"placement": "cpu", "pins": []}, placements()) == {"placement": CPU, "pins": []}
    assert with_placement({"pins": []}, placements()) == {"pins": []}
    assert QuantizeStatic().placement == CPU


@pytest.mark.parametrize("name", ["toaster", 3, ["cpu"], True])
def test_rules_that_nobody_has_are_refused_with_those_that_are_there(name: object) -> None:
    with pytest.raises(RecipeError, match=r"expected a placement of cpu, tensorrt, got .*; write one of them"):
        with_placement({"placement": name}, placements())


def test_a_new_target_brings_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "acme", type("Acme", (Null,), {"name": "acme", "placement": ACME}))
    made = make_pass("quantize_static", {"placement": "acme"}, placements())
    assert isinstance(made, QuantizeStatic) and made.placement == ACME
