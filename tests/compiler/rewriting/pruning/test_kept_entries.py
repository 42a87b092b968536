"""kept_entries: states of which entries were taken out."""

import numpy as np

from compiler.rewriting.pruning.kept_entries import KeptEntries

STATES = {"keys": np.arange(24.0).reshape(1, 2, 3, 4), "other": np.ones((1, 2))}


def test_entries_go_along_every_axis_in_order_and_other_states_stay() -> None:
    kept = KeptEntries({"keys": [(1, np.array([1])), (3, np.array([0, 3])), (3, np.array([1]))], "absent": []})
    found = kept.apply(STATES)
    np.testing.assert_array_equal(found["keys"], STATES["keys"][:, 1:, :, 3:])
    assert found["other"] is STATES["other"]


def test_they_come_back_from_arrays_as_they_were() -> None:
    cuts = [(at % 4, np.arange(2)) for at in range(12)]
    kept = KeptEntries({"a/b": cuts, "keys": [(1, np.array([1]))]})
    again = KeptEntries.of_arrays(kept.arrays())
    assert sorted(again.states) == ["a/b", "keys"]
    for name, along in kept.states.items():
        assert [axis for axis, _ in again.states[name]] == [axis for axis, _ in along]
        for (_, got), (_, right) in zip(again.states[name], along, strict=True):
            np.testing.assert_array_equal(got, right)
