"""What the states are that have come in the place of others: computed by a graph of their own."""

import numpy as np
import pytest

from compiler.graph.runners.session import open_structure
from compiler.graph.runners.structure import Structure
from compiler.passes.select_states import SelectStates
from compiler.states.state_rewriting import projected
from tests.kit.graphs import copy_of, ops_of, streaming

DEAR = SelectStates(multiply_adds_per_s=1e9)
"""Of a machine whose arithmetic is slow beside its memory."""


def test_carried_values_of_empty_caches_are_empty() -> None:
    lowered = DEAR.apply(copy_of(streaming())).lowered
    (state_map,) = lowered.state_maps
    mapped = state_map.apply({"past": np.zeros((3, 0, 4), np.float32), "context": np.ones((3, 4, 2), np.float32)})
    assert {name: array.shape for name, array in mapped.items()} == {
        "context": (3, 4, 2), "past_carried_0": (3, 0, 4), "past_carried_1": (3, 0, 4)
    }  # fmt: skip
    assert ops_of(lowered.model).count("Concat") == 3


def test_the_map_of_states_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def opening(model: Structure) -> object:
        opened.append(open_structure(model))
        return opened[-1]

    monkeypatch.setattr(projected, "open_structure", opening)
    (state_map,) = DEAR.apply(copy_of(streaming())).lowered.state_maps
    for frames in (1, 3, 2):
        state_map.apply({"past": np.ones((3, frames, 4), np.float32), "context": np.ones((3, 4, 2), np.float32)})
    assert len(opened) == 1
