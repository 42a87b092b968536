"""overwrite_states: a call gives its new frames alone, which take the slots of the oldest, or it is refused.

Answers are compared in tests/property/test_ring_steps.py.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.build.bundle.replay_proofs import verify_proofs
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Lowered
from compiler.passes.overwrite_states import OverwriteStates
from runtime_lite import read_bundle
from runtime_lite.states import RING
from tests.kit.graphs import copy_of
from tests.kit.models.project import stream_project
from tests.kit.short_chunks import SLOTS, captured, chunk, padded
from tests.property.ring_steps import drawn, windows_of


def spoiled(seed: int) -> Lowered:
    """A step that reads in which slot a frame lies."""
    graph = drawn(seed)
    assert graph.is_spoiled
    return windows_of(graph)


def test_a_call_gives_its_new_frames_and_the_context_whole() -> None:
    outcome = OverwriteStates().apply(padded())
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    lowered = outcome.lowered
    assert [lowered.kind_of(state).update for state in lowered.states] == ["ring", ""]
    assert lowered.caches[0].kind is RING
    outputs = graphs.outputs_named(lowered.model)
    assert [str(size) for size in outputs["next_keys"].shape or ()] == ["batch", "chunk", "4"]
    assert list(outputs["next_context"].shape or ())[1:] == [2, 4]


def test_the_frames_of_a_full_ring_lie_where_they_were_written() -> None:
    runner = runner_of(OverwriteStates().apply(padded()).lowered)
    before = runner_of(padded())
    for number in range(2 * SLOTS):
        feed = chunk(1, number)
        runner.step(feed)
        before.step(feed)
    assert runner.states["keys"] == pytest.approx(before.states["keys"], abs=1e-5)  # the oldest in front
    slots = runner.full_feed(chunk(1, 0))["keys"]
    assert slots == pytest.approx(runner.states["keys"], abs=0)  # as often around as there are slots
    runner.step(chunk(1, 0))
    slots, frames = runner.full_feed(chunk(1, 0))["keys"], runner.states["keys"]
    assert slots[:, 0] == pytest.approx(frames[:, -1], abs=0)
    assert slots[:, 1:] == pytest.approx(frames[:, :-1], abs=0)


REFUSED: dict[str, tuple[Callable[[], Lowered], str]] = {
    "frames that are all kept": (
        lambda: dataclasses.replace(padded(), caches=(dataclasses.replace(padded().caches[0], is_whole=True),)),
        "a cache whose oldest frames make room; append_states is for one that keeps every frame",
    ),
    "a ring": (lambda: OverwriteStates().apply(padded()).lowered, "right-aligned caches that are given whole"),
    "no padding": (captured, "an axis of rows, which are proved"),
    "two caches": (
        lambda: dataclasses.replace(padded(), caches=padded().caches * 2),
        "one cache axis",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shown_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(Refused, match=message) as refused:
        OverwriteStates().apply(make())
    assert "leave this pass out" in refused.value.cure


def test_a_bias_by_the_slot_is_refused_by_its_name() -> None:
    names = ((seed, {node.outputs[0].name for node in drawn(seed).lowered.model.graph}) for seed in range(2, 60, 3))
    seed = next(seed for seed, made in names if "bias_0" in made)
    with pytest.raises(Refused, match=r"'bias_0.*' lies beside cached frames and differs from slot to slot") as refused:
        OverwriteStates().apply(spoiled(seed))
    assert refused.value.place.tensor.startswith("bias_0")


def test_a_graph_without_a_cache_stays() -> None:
    lowered = dataclasses.replace(padded(), caches=())
    assert OverwriteStates().apply(copy_of(lowered)).rewritten == 0


@pytest.mark.slow
def test_a_bundle_with_a_ring_is_built_and_holds_what_it_promises(tmp_path: Path) -> None:
    project = stream_project(tmp_path, tmp_path / "cache")
    project.replace("stream.yaml", "window_states, simplify", "window_states, overwrite_states, simplify")
    ended = project.build(recipe="stream.yaml")
    assert ended.code == 0, ended.err
    with read_bundle(tmp_path / "bundle") as bundle:
        (cache,) = bundle.manifest.graphs["net"].caches
        assert cache.update == "ring"
        (proved,) = verify_proofs(bundle)
        assert "follow from it byte for byte" in proved
