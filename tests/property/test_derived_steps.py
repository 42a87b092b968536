"""Steps of random graphs are those of the whole graph; planted weaknesses of what derives them are noticed."""

import contextlib
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.derivation import emission, judging, masks
from compiler.derivation.dependence import Reach
from compiler.ir import Dim
from tests.kit.whole_sequences import SPOILERS, Drawing, drawn
from tests.property.derived_steps import Trial, tried

FEW = range(100, 112)


@pytest.mark.parametrize("seed", FEW)
def test_steps_are_refused_or_right(seed: int) -> None:
    found = tried(drawn(seed, spoiled=seed % 2 == 1))
    assert found.verdict == "accepted" if seed % 2 == 0 else found.verdict in ("accepted", "refused"), found


def test_seeds_draw_every_spoiler() -> None:
    assert {drawn(seed, spoiled=True).spoiler for seed in range(150)} == set(SPOILERS)


def _reach_is_causal(support: np.ndarray) -> Reach:
    return Reach(-float(len(support)), 0)


RIGHT_SIZE = emission.Emission.size


def _places_from_zero(self: emission.Emission, size: Dim, *, scalar: bool = False) -> ir.Value:
    return RIGHT_SIZE(self, 0 if size == house.symbol(self.past) else size, scalar=scalar)


WEAKNESSES: dict[str, tuple[contextlib.AbstractContextManager[Any], Drawing]] = {
    "look-ahead is not seen": (mock.patch.object(judging, "reach_of", _reach_is_causal), Drawing(spoiler="ahead")),
    "any score is low enough": (mock.patch.object(masks, "LOW", -1.0), Drawing(spoiler="soft_mask")),
    "means are no offence": (
        mock.patch.object(judging.Judging, "_over_frames", lambda self, n, li, f, along, m, whole: (along, whole)),
        Drawing(spoiler="mean"),
    ),
    "lengths are no data": (
        mock.patch.object(judging.Judging, "is_length", return_value=False),
        Drawing(positions="looked_up", spoiler="length_bias"),
    ),
    "new places begin at 0": (
        mock.patch.object(emission.Emission, "size", _places_from_zero),
        Drawing(positions="looked_up"),
    ),
}


def outcome(drawing: Drawing) -> Trial:
    """What comes of a graph; an error that is no refusal counts as noticed."""
    try:
        return tried(drawing)
    except Exception as error:  # noqa: BLE001 - a planted weakness may end anywhere
        return Trial("disputed", f"{type(error).__name__}: {error}"[:200])


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_planted_weaknesses_are_noticed(weakness: str) -> None:
    plant, drawing = WEAKNESSES[weakness]
    assert outcome(drawing).verdict in ("accepted", "refused")
    with plant:
        found = outcome(drawing)
    assert found.verdict in ("unsound", "disputed"), found
