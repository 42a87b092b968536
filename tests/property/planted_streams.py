"""Weaknesses planted into what carries streams: each must be noticed by some of the random step graphs.

`python -m tests.property.planted_streams` tries all. A weakness lives in this process, while it is tried. That it is
noticed counts whoever notices it: the checker, the comparison with the author's loop, the poison, or an error.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes import merge_first_call, window_states
from compiler.proof.facts import layout
from compiler.proof.padding import outputs as padded_outputs
from compiler.proof.padding import padded_graph, valid_slots
from compiler.proof.padding.lowerings import NODE_LOWERINGS, newest
from compiler.proof.padding.lowerings.site import Site
from runtime_lite.format.cache_axis import CacheAxis
from tests.property.streams import FINE, Outcome, outcomes

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


def _slots_shifted(by: int) -> Plant:
    right = newest.slots_of_newest

    def shifted(site: Site, frames: layout.Frames, kept: Any) -> ir.Value:
        off = site.insert.constant(np.array(by, np.int64), "shift")
        zero = site.insert.constant(np.array(0, np.int64), "zero")
        return site.insert.op(
            "Max", [site.insert.op("Add", [right(site, frames, kept), off], name="off"), zero], name="off"
        )

    return lambda: mock.patch.object(newest, "slots_of_newest", shifted)


def _form_without(name: str) -> Plant:
    return lambda: mock.patch.dict(NODE_LOWERINGS, {name: lambda site: None})


def _unfilled() -> contextlib.AbstractContextManager[Any]:
    def fill(self: Any, insert: Any, node: Any, need: Any, given: Any) -> Any:
        return padded_graph._with_rows(given, self.axes.batch).filled(need.axis, need.value)

    return mock.patch.object(padded_graph.PaddedGraph, "_fill", fill)


def _not_cleaned() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(padded_graph.PaddedGraph, "_clean", return_value=None)


@contextlib.contextmanager
def _one_slot_more() -> Iterator[None]:
    right = valid_slots.ValidSlots.count

    def count(self: Any, size: Any, rank: int = 1, rows_axis: int = 0, dtype: ir.DataType = ir.DataType.INT64) -> Any:
        found = right(self, size, rank, rows_axis, dtype)
        if isinstance(size, int) or dtype != ir.DataType.INT64:
            return found
        one = self.insert.constant(np.array(1, np.int64), "one")
        return self.insert.op("Add", [found, one], name="one_more", dtype=dtype)

    with mock.patch.object(valid_slots.ValidSlots, "count", count):
        yield


def _cut_elsewhere() -> contextlib.AbstractContextManager[Any]:
    """The oldest frames are kept, not the newest."""
    right = window_states._slice_state

    def cut(lowered: Lowered, output: str, axis: int, fed: ir.Value) -> int:
        done = right(lowered, output, axis, fed)
        for node in lowered.model.graph:
            if done and node.outputs[0].name == output and node.op_type == "Slice":
                insert = graphs.Inserter(lowered.model, "planted", before=node)
                node.replace_input_with(1, insert.int64s(0))
                node.replace_input_with(2, insert.int64s(int(str((fed.shape or ())[axis]))))
        return done

    return mock.patch.object(window_states, "_slice_state", cut)


PLANTED: dict[str, Plant] = {
    "the newest frames end one slot later": _slots_shifted(1),
    "the newest frames end one slot earlier": _slots_shifted(-1),
    "what is before the newest frames stays": lambda: mock.patch.object(
        newest, "cleaned", lambda site, found, *_: found
    ),
    "a call always adds one frame": lambda: mock.patch.object(CacheAxis, "frames_of", return_value=1),
    "a call adds none": lambda: mock.patch.object(CacheAxis, "after_call", lambda self, lengths, added: lengths),
    "the last entries are those of the slots": _form_without("entries"),
    "a recurrence runs over its padding": _form_without("sequence_lens"),
    "numbers of slots serve as numbers of frames": _form_without("number"),
    "means are those of the slots": _form_without("mean"),
    "nothing is filled": _unfilled,
    "caches are not cleaned": _not_cleaned,
    "one slot more is valid": _one_slot_more,
    "the oldest frames are kept": _cut_elsewhere,
    "a state may hold any number of frames": lambda: mock.patch.object(
        padded_outputs, "keeps_all_counted", return_value=True
    ),
    "a state may be as long as the chunk": lambda: mock.patch.object(padded_outputs, "_check_fixed"),
    "any first call is the later one": lambda: mock.patch.object(merge_first_call._Keys, "of", return_value=""),
}


def noticed(name: str, seeds: range) -> tuple[int, Outcome] | None:
    """The first graph that notices a planted weakness."""
    with PLANTED[name]():
        return next((each for each in outcomes(seeds) if each[1].kind not in FINE), None)


MOST = 100
"""Graphs that a weakness is tried on."""


def main() -> int:
    """Which weaknesses some graph notices; 1 if one is not noticed."""
    missed = 0
    for name in PLANTED:
        found = noticed(name, range(MOST))
        missed += found is None
        print(f"{name}: {'NOT NOTICED' if found is None else f'{found[1].kind} at seed {found[0]}'}", flush=True)
    print(f"{len(PLANTED) - missed} of {len(PLANTED)} planted weaknesses are noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
