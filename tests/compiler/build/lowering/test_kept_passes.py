"""Results of passes are found again; a pass that calibrates is applied once."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from compiler.base.cache.results import StageResults
from compiler.base.cache.store import StageCache
from compiler.base.records.build_report import StageReport
from compiler.build.lowering.kept_passes import KeptPasses
from compiler.errors import InternalError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.rewriting.attention.shared_states import SharedState, SharedStates
from compiler.rewriting.pruning.kept_entries import KeptEntries
from tests.kit.graphs import copy_of, streaming


@dataclasses.dataclass(frozen=True)
class Measure:
    """Marks the graph, and counts how often it is asked to."""

    name: ClassVar[str] = "measure"
    lossy: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = True
    calls: list[int] = dataclasses.field(default_factory=list)
    forgets: bool = False
    shares: SharedStates | KeptEntries | None = None

    def apply(self, lowered: Lowered) -> Outcome:
        self.calls.append(1)
        node = next(iter(lowered.model.graph))
        node.metadata_props["measured"] = "yes"
        after = dataclasses.replace(lowered, states=()) if self.forgets else lowered
        after = dataclasses.replace(after, state_maps=(self.shares,)) if self.shares else after
        return Outcome(after, matched=3, rewritten=1, records=({"rule": "M1", "axes": (0, 1)},))


@dataclasses.dataclass(frozen=True)
class Quick(Measure):
    """The same, quick."""

    expensive: ClassVar[bool] = False


def kept(folder: Path | None) -> KeptPasses:
    cache = None if folder is None else StageCache(folder)
    original: Any = SimpleNamespace(
        results=StageResults(cache, Path.cwd()),
        code=dict,
        data=SimpleNamespace(is_data=lambda path: False),
        lowering_inputs=lambda: SimpleNamespace(task=None),
    )
    return KeptPasses(original)


def is_measured(model: ir.Model) -> bool:
    return any("measured" in node.metadata_props for node in model.graph)


@pytest.mark.parametrize("is_cached", [True, False])
def test_an_expensive_pass_is_applied_once_in_a_build(is_cached: bool, tmp_path: Path) -> None:
    passes, measure, origin = kept(tmp_path if is_cached else None), Measure(), streaming()
    first = passes.apply(measure, "key", copy_of(origin))
    again = passes.apply(measure, "key", copy_of(origin))
    assert len(measure.calls) == 1
    assert graphs.serialized(again.lowered.model) == graphs.serialized(first.lowered.model)
    assert is_measured(again.lowered.model) and not is_measured(origin.model)
    assert again.records == ({"rule": "M1", "axes": [0, 1]},)
    assert dataclasses.replace(again.lowered, model=origin.model) == origin


def test_an_expensive_pass_is_not_applied_by_a_later_build(tmp_path: Path) -> None:
    measure, origin = Measure(), streaming()
    first = kept(tmp_path)
    made = first.apply(measure, "key", copy_of(origin))
    first.keep_report("key", StageReport("net", "measure", 0.5), [])
    later = kept(tmp_path)
    found = later.apply(measure, "key", copy_of(origin))
    assert len(measure.calls) == 1 and later.report("key") is not None
    assert graphs.serialized(found.lowered.model) == graphs.serialized(made.lowered.model)
    later.keep_report("key", StageReport("net", "measure", 0.5), [])  # what is kept anew holds the graph, too
    kept(tmp_path).apply(measure, "key", copy_of(origin))
    assert len(measure.calls) == 1
    kept(tmp_path).apply(measure, "other key", copy_of(origin))
    assert len(measure.calls) == 2


def test_a_quick_pass_is_applied_whenever_its_graph_is_asked_for(tmp_path: Path) -> None:
    passes, quick = kept(tmp_path), Quick()
    for _ in range(2):
        passes.apply(quick, "key", streaming())
    assert len(quick.calls) == 2


def test_an_expensive_pass_that_changes_more_than_the_graph_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="expected the expensive pass measure to change the graph and"):
        kept(tmp_path).apply(Measure(forgets=True), "key", streaming())


@pytest.mark.parametrize("again", ["the same build", "a later build"])
def test_states_that_have_fewer_heads_are_kept_with_the_graph(again: str, tmp_path: Path) -> None:
    shared = SharedStates({"cache": SharedState(1, 3, np.arange(2), np.ones((1, 2, 3, 3), np.float32))})
    passes = kept(tmp_path)
    passes.apply(Measure(shares=shared), "key", streaming())
    passes.keep_report("key", StageReport("net", "measure", 0.5), [])
    later = passes if again == "the same build" else kept(tmp_path)
    (found,) = later.apply(Measure(shares=shared), "key", streaming()).lowered.state_maps
    heads = np.ones((1, 2, 4, 3), np.float32)
    np.testing.assert_array_equal(found.apply({"cache": heads})["cache"], np.full((1, 1, 4, 3), 6, np.float32))


@pytest.mark.parametrize("again", ["the same build", "a later build"])
def test_states_of_which_entries_are_gone_are_kept_with_the_graph(again: str, tmp_path: Path) -> None:
    fewer = KeptEntries({"cache": [(1, np.array([1])), (3, np.array([0, 2]))]})
    passes = kept(tmp_path)
    passes.apply(Measure(shares=fewer), "key", streaming())
    passes.keep_report("key", StageReport("net", "measure", 0.5), [])
    later = passes if again == "the same build" else kept(tmp_path)
    (found,) = later.apply(Measure(shares=fewer), "key", streaming()).lowered.state_maps
    heads = np.arange(24.0).reshape(1, 2, 4, 3)
    np.testing.assert_array_equal(found.apply({"cache": heads})["cache"], heads[:, 1:][..., [0, 2]])


def test_a_report_is_found_as_it_was_said(tmp_path: Path) -> None:
    report = StageReport("net", "measure", 0.5, matched=3, detail="so many")
    passes = kept(tmp_path)
    assert not passes.knows("key") and passes.report("key") is None
    passes.keep_report("key", report, [{"pass": "measure"}])
    assert passes.knows("key")
    assert passes.report("key") == (dataclasses.replace(report, cached=True), [{"pass": "measure"}])
