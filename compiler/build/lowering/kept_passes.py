"""Keeps the results of a graph's passes in the cache: reports, certificates, and graphs of passes that measure data.

The other graphs are not kept: when anything after capture is missing, their passes run again, which is quick.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.numpy

from compiler.base.pieces import Content
from compiler.base.records.build_report import StageReport, stage_report_of
from compiler.base.records.searches import Search, search_of
from compiler.build.capture.original import Original
from compiler.errors import InternalError
from compiler.graph.runners.mapped_weights import map_weights
from compiler.graph.runners.stored_graph import read_stored, stored
from compiler.graph.runners.structure import Structure, split
from compiler.graph.stages import Lowered, Outcome, Pass, StateMap
from compiler.rewriting.attention.shared_states import SharedStates
from compiler.rewriting.pruning.kept_entries import KeptEntries
from runtime_lite.format.canonical_json import canonical_json

REPORT, GRAPH, RECORDS, STATES = "report.json", "graph", "records.json", "states.safetensors"
FORMS, SEARCH = "forms.json", "search.json"


class KeptPasses:
    """Results of the passes of one graph, by key; the graph of an expensive pass for this build at least.

    Args:
        original: names the code that may have been run, and the cache.
    """

    def __init__(self, original: Original) -> None:
        self.original, self.results = original, original.results
        self._expensive: dict[str, _Expensive] = {}

    def knows(self, key: str) -> bool:
        """Whether an earlier build has completed this stage."""
        return self.results.find(key) is not None

    def report(self, key: str) -> tuple[StageReport, list[dict[str, Any]]] | None:
        """Return an earlier build's report on a pass, and the records of its certificate; None without one."""
        entry = self.results.find(key)
        if entry is None:
            return None
        content = json.loads((entry / REPORT).read_text())
        return dataclasses.replace(stage_report_of(content["report"]), cached=True), content["records"]

    def keep_report(self, key: str, report: StageReport, records: list[dict[str, Any]]) -> None:
        """Keep the report on a pass, and its graph where the pass is expensive."""
        if self.results.cache is None:
            return  # writing the records of a large graph takes seconds
        content = canonical_json({"report": report.to_json(), "records": records})
        made = self._expensive.get(key)
        self.keep(key, {REPORT: content, **({} if made is None else made.files())})

    def keep_variants(self, key: str, reports: Sequence[StageReport]) -> None:
        """Keep the reports on the variants applied to a graph's artefacts."""
        self.keep(key, {FORMS: canonical_json([each.to_json() for each in reports])})

    def forms(self, key: str) -> list[StageReport]:
        """Return an earlier build's reports on forms."""
        entry = self.results.find(key)
        found = [] if entry is None else json.loads((entry / FORMS).read_text())
        return [dataclasses.replace(stage_report_of(each), cached=True) for each in found]

    def keep_search(self, key: str, search: Search) -> None:
        """Keep the result of a search for forms."""
        self.keep(key, {SEARCH: canonical_json(search.to_json())})

    def search(self, key: str) -> Search | None:
        """Return an earlier search's result on a machine of this kind; None without one."""
        entry = self.results.find(key)
        return None if entry is None else search_of(json.loads((entry / SEARCH).read_text()))

    def keep(self, key: str, files: Mapping[str, Content]) -> None:
        """Keep the result of a stage, with everything that it has read."""
        code = dict(self.original.code())
        task = self.original.lowering_inputs().task
        if task is not None:
            code |= {task.decode: bool(task.files), task.metric: bool(task.files)}
        self.results.keep(key, files, code, self.original.data.is_data)

    def apply(self, made: Pass, key: str, lowered: Lowered) -> Outcome:
        """Apply a pass, or return its kept result if it is expensive.

        Raises:
            SlipwayError: the pass raises it.
        """
        if not made.expensive:
            return made.apply(lowered)
        earlier = self._expensive.get(key) or self._earlier(key)
        if earlier is not None:
            self._expensive[key] = earlier
            records = tuple(json.loads(earlier.records))
            added = _map_in(earlier.states)
            maps = lowered.state_maps if added is None else (*lowered.state_maps, added)
            return Outcome(dataclasses.replace(lowered, model=earlier.graph.model(), state_maps=maps), records=records)
        outcome = made.apply(lowered)
        map_weights(outcome.lowered.model)  # kept as long as the build
        states = _stored(_added_map(made, lowered, outcome.lowered))
        proved = canonical_json(list(outcome.records))
        self._expensive[key] = _Expensive(split(outcome.lowered.model), proved, states)
        return outcome

    def _earlier(self, key: str) -> "_Expensive | None":
        entry = self.results.find(key)
        return None if entry is None else _Expensive.kept_in(entry)


@dataclasses.dataclass(frozen=True)
class _Expensive:
    """The result of an expensive pass.

    Attributes:
        graph: the graph after it, its weights shared with it.
        records: of its certificate, as JSON text.
        states: how its states follow from those before it, as a safetensors file.
    """

    graph: Structure
    records: bytes
    states: bytes

    def files(self) -> dict[str, Content]:
        """Return the files that the cache keeps."""
        return {**stored(self.graph, GRAPH), RECORDS: self.records, STATES: self.states}

    @classmethod
    def kept_in(cls, entry: Path) -> "_Expensive":
        """Return the result that an earlier build has stored for this pass, or None."""
        graph = split(read_stored(entry / f"{GRAPH}.onnx"))
        return cls(graph, (entry / RECORDS).read_bytes(), (entry / STATES).read_bytes())


STATE_MAPS: Mapping[str, type[SharedStates] | type[KeptEntries]] = {"shared": SharedStates, "kept": KeptEntries}
"""The changes of states that an expensive pass may make, by their names in files."""


def _stored(added: StateMap | None) -> bytes:
    """Return an expensive pass's change of states as a safetensors file, without arrays where there is none."""
    for name, kind in STATE_MAPS.items():
        if isinstance(added, kind):
            return safetensors.numpy.save({f"{name}:{key}": array for key, array in added.arrays().items()})
    return safetensors.numpy.save({})


def _map_in(file: bytes) -> StateMap | None:
    """Return the change of states that `_stored` wrote."""
    arrays = {tuple(key.split(":", 1)): array for key, array in safetensors.numpy.load(file).items()}
    name = next((kind for kind, _ in arrays), None)
    return None if name is None else STATE_MAPS[name].of_arrays({key: array for (_, key), array in arrays.items()})


def _added_map(made: Pass, before: Lowered, after: Lowered) -> StateMap | None:
    """Return an expensive pass's change of states; it may change nothing else besides the graph, which is kept."""
    added = after.state_maps[len(before.state_maps) :]
    is_stored = len(added) < 2 and isinstance(added[0] if added else SharedStates({}), tuple(STATE_MAPS.values()))
    if not is_stored or dataclasses.replace(after, model=before.model, state_maps=before.state_maps) != before:
        raise InternalError(
            f"expected the expensive pass {made.name} to change the graph and how many heads or channels states have, "
            "got other states or axes"
        )
    return added[0] if added else None
