"""conditions: every one is told, with what discharges it."""

import pytest

from compiler.proof.derivation.derive import derive
from tests.kit.whole_sequences import LETTERS, Drawing, whole_graph

TOLD = {"bounded look-ahead", "cached values stay", "places are counted", "along time", "end of stream"}


@pytest.mark.parametrize(
    ("drawing", "acts"),
    [
        pytest.param(Drawing(positions="rotary"), {"masked"}, id="attention"),
        pytest.param(Drawing(local="gru"), {"masked", "a recurrence"}, id="recurrence"),
        pytest.param(Drawing(positions="summed"), {"masked", "a running sum"}, id="sum"),
        pytest.param(Drawing(text="named"), {"masked", "joins a prefix, or cuts it off"}, id="prefix"),
    ],
)
def test_all_are_told(drawing: Drawing, acts: set[str]) -> None:
    made = derive(whole_graph(drawing), "time", "past", drawing.longest, {"letters": LETTERS})
    told = made.certificate["conditions"]
    assert set(told) == TOLD
    assert set(told["along time"].values()) == acts
    assert told["bounded look-ahead"]["scores"]["1"].endswith(", 0]")
    assert set(told["cached values stay"]) == {str(each.value.name) for each in made.cached}


def test_a_convolution_is_a_window() -> None:
    made = derive(whole_graph(Drawing(local="conv")), "time", "past", 24)
    assert any(act.startswith("a window of ") for act in made.certificate["conditions"]["along time"].values())


def test_what_is_evaluated_is_named() -> None:
    made = derive(whole_graph(Drawing(mask="packed")), "time", "past", 24)
    assert made.certificate["conditions"]["places are counted"]
