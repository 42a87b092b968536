"""Which layers stay in float."""

import itertools

import pytest

from compiler.errors import Refused
from compiler.numerics.quantization.choice import SHARES, choose, pinned_layers
from compiler.numerics.quantization.weighted_layers import PINS, find_layers
from compiler.targets import placements
from tests.kit.quantization import speech

SITES = find_layers(speech().model)
LOSSES = {layer.name: 1e-4 * (number + 1) for number, layer in enumerate(SITES)}


def test_default_pins() -> None:
    pins = pinned_layers(SITES, ("y",), placements()["cpu"], PINS, ())
    assert set(pins) == {"slid_conv", "depth_conv", "logits_matmul"}
    assert pins["depth_conv"].reason == "a depthwise convolution" and pins["depth_conv"].source


def test_patterns_of_names_and_operators() -> None:
    found = pinned_layers(SITES, ("y",), placements()["cpu"], (), ("expand*", "op:Conv"))
    assert set(found) == {"slid_conv", "depth_conv", "expanded_matmul"}
    assert set(pinned_layers(SITES, ("y",), placements()["tensorrt"], (), ())) == {"slid_conv", "depth_conv"}


def not_asked() -> dict[str, float]:
    raise AssertionError("layers are ranked only where the task minds them all together")


def test_everything_where_the_task_agrees_or_is_not_there() -> None:
    for distance in (0.0, None):
        chosen = choose(SITES, not_asked, lambda names, d=distance: d, 0.01)  # type: ignore[misc]
        assert len(chosen.quantised) == len(SITES) and chosen.evaluations == 1
        assert (chosen.pins, dict(chosen.losses)) == ((), {})


def test_the_worst_site_stays_in_float_once_the_task_minds_it() -> None:
    losses = LOSSES | {"reduced_matmul": 1.0}
    asked = []

    def distance(names: frozenset[str]) -> float:
        asked.append(names)
        return 0.5 if "reduced_matmul" in names else 0.0

    chosen = choose(SITES, lambda: losses, distance, 0.01)
    assert "reduced_matmul" not in chosen.quantised and len(chosen.quantised) == len(SITES) - 1
    assert [pin.node for pin in chosen.pins] == ["reduced_matmul"] and chosen.pins[0].cost == pytest.approx(0.0)
    assert len(asked) == chosen.evaluations == 2 and chosen.losses == losses


def test_five_evaluations_at_most_then_it_is_refused() -> None:
    asked = []

    def distance(names: frozenset[str]) -> float:
        asked.append(names)
        return 0.2

    with pytest.raises(Refused, match=r"got 0\.2 at best"):
        choose(SITES, lambda: LOSSES, distance, 0.01)
    assert 2 <= len(asked) <= 1 + len(SHARES) == 5
    assert all(later < earlier for earlier, later in itertools.pairwise(asked))
