"""Runs one request through a pipeline: chooses the next graph, feeds it, and collects the outputs.

An item is a feed of at most as many rows as all graphs can run at once, or a chunk of a stream. It has one part per
graph. A part is queued when all graphs whose outputs it takes have run, and may share a run with parts of other
requests. In a stream the parts run one after the other, and the new states of all graphs are stored after the last
part, or not at all.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from runtime_lite.calls.pipeline import Pipeline
from runtime_lite.calls.state import StreamState, copy_of_state, join_states, state_of_graph
from runtime_lite.scheduling.task import Key
from runtime_lite.serving.request import Answered, Outputs, Part


class PipelineRun:
    """The run of one item; its methods are called under the server's lock.

    Args:
        pipeline: the graphs and their wires.
        parts: one part per graph, by name; inputs filled by wires have no array yet.
        in_order: whether a part waits for all parts before it, as in a stream.
        cost: returns the expected nanoseconds of a run of some rows of a key.
    """

    def __init__(
        self, pipeline: Pipeline, parts: Mapping[str, Part], in_order: bool, cost: Callable[[Key, int], int]
    ) -> None:
        """Start with no part done; `ready` returns the parts that can be queued at once."""
        self._pipeline = pipeline
        self._later = dict(parts)
        self._left = len(parts)
        self._rows = 1 if not parts else next(iter(parts.values())).feeds[0].rows
        self._waits: dict[str, set[str]] = {name: set() for name in parts}
        for wire in pipeline.wiring:
            self._waits[wire.to_graph].add(wire.from_graph)
        if in_order:
            for before, after in zip(pipeline.order, pipeline.order[1:], strict=False):
                self._waits[after].add(before)
        self._outputs: Outputs = {}
        self._states: dict[str, StreamState] = {}
        self._pace(cost)

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self._pipeline.name

    def _pace(self, cost: Callable[[Key, int], int]) -> None:
        """Set the times of each part: those of the request, less the expected time of the parts after it."""
        behind: dict[str, int] = {}
        for name in reversed(self._pipeline.order):
            takers = [taker for taker, givers in self._waits.items() if name in givers]
            tail = max((behind[taker] for taker in takers), default=0)
            part = self._later[name]
            behind[name] = tail + cost(part.key, part.rows)
            part.soft -= tail
            if part.hard is not None:
                part.hard -= tail

    def ready(self) -> list[Part]:
        """Remove and return the parts that wait for no other part."""
        found = [part for name, part in self._later.items() if not self._waits[name]]
        for part in found:
            part.pipeline_run = self  # not before: a part and its run know each other
            del self._later[part.runner.name]
        return found

    def state_for(self, part: Part, carried: StreamState) -> StreamState:
        """Return the state that a stream's part starts from: a copy unless the part is the last of its item."""
        name = part.runner.name
        state = state_of_graph(carried, name, part.runner.graph)
        return copy_of_state(state) if self._left > 1 else state

    def done(self, part: Part, outputs: Outputs, state: StreamState) -> Answered | None:
        """Pass on the outputs of a part; return the answer of the whole item after the last part, else None."""
        name = part.runner.name
        self._left -= 1
        for waits in self._waits.values():
            waits.discard(name)
        for wire in self._pipeline.wiring:
            if wire.from_graph == name:
                taker = self._later[wire.to_graph]
                feed = taker.feeds[0]
                taker.feeds = [replace(feed, arrays={**feed.arrays, wire.input: outputs[wire.output]})]
        for public, (graph, output) in self._pipeline.outputs.items():
            if graph == name:
                self._outputs[public] = outputs[output]
        self._states[name] = state
        if self._left:
            return None
        ordered = {public: self._outputs[public] for public in self._pipeline.outputs}
        return [ordered], [join_states(self._rows, self._states)]
