"""Maps callers' stream names to streams: a chunk has the name of its stream, and may start or end it.

A host passes on chunks in the order of arrival; callers may number chunks, so that a wrong order is refused. A refused
chunk changes nothing: a start of a name in use is refused, and so is a chunk of an unknown name. A stream without
chunks ends after a while.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.model import Model
from runtime_lite.serving.request import Outputs
from runtime_lite.serving.ticket import Ticket
from runtime_lite.stream import Stream

Name = int | str


class Place(NamedTuple):
    """The position of a chunk: its stream, and whether it starts or ends it.

    Attributes:
        stream: name of its stream.
        start: whether it is the first one.
        end: whether it is the last one.
        number: its number in the stream, counted from 0; None if the caller does not count.
    """

    stream: Name
    start: bool = False
    end: bool = False
    number: int | None = None


class NamedStreams:
    """The streams of one graph by their callers' names.

    Args:
        model: a loaded bundle.
        graph: name of a graph with states.
        idle_s: seconds without a chunk after which a stream ends.
    """

    def __init__(self, model: Model, graph: str, idle_s: float) -> None:
        """Start without streams."""
        self._model, self._graph, self._idle_s = model, graph, idle_s
        self._streams: OrderedDict[Name, Stream] = OrderedDict()
        self._lock = threading.Lock()

    def submit(
        self, place: Place, feeds: Mapping[str, Array], deadline_ms: float | None = None, priority: int = 0
    ) -> Ticket[Outputs]:
        """Queue a chunk.

        Args:
            place: the position of the chunk.
            feeds: every input of role data; all chunks of a stream have the rows of its first.
            deadline_ms: from now on; an answer after it is not delivered.
            priority: priority of the stream, if the chunk starts it.

        Raises:
            BadInput: the feed is wrong, the name is in use or unknown, or the number is not the next one.
            Overloaded: no slot is free, the stream's credits are used up, or the runtime drains.
        """
        with self._lock:
            stream = self._started(place, feeds, priority) if place.start else self._known(place)
        try:
            ticket = stream.submit(feeds, deadline_ms, place.number)
        except BaseException:
            if place.start:
                self._end(place.stream, stream)
            raise
        if place.end:
            ticket.when_done(lambda: self._end(place.stream, stream))
        return ticket

    def _started(self, place: Place, feeds: Mapping[str, Array], priority: int) -> Stream:
        known = self._streams.get(place.stream)
        if known is not None and not known.ended:
            raise BadInput(
                f"{self._graph}: expected the start of a new stream, got a start of {show(place.stream)}, which is "
                "open; end it first, or take another name"
            )
        while self._streams and (oldest := next(iter(self._streams.items())))[1].ended:
            del self._streams[oldest[0]]  # all idle alike, so that whoever was forgotten first is in front
        rows = self._rows_of(feeds)
        stream = self._model.open_stream(self._graph, rows, priority=priority, idle_s=self._idle_s)
        self._streams[place.stream] = stream
        self._streams.move_to_end(place.stream)
        return stream

    def _known(self, place: Place) -> Stream:
        stream = self._streams.get(place.stream)
        if stream is None or stream.ended:
            got = "nobody has started" if stream is None else f"has ended: {stream.ended}"
            raise BadInput(
                f"{self._graph}: expected a chunk of an open stream, got one of {show(place.stream)}, which {got}; "
                "mark the first chunk of a stream as its start"
            )
        self._streams.move_to_end(place.stream)
        return stream

    def _rows_of(self, feeds: Mapping[str, Array]) -> int:
        """Return the number of rows of a feed; 1 if it is wrong, which its check finds later."""
        graph = self._model.runner(self._graph).graph
        for tensor in graph.inputs:
            at, array = graph.rows_at(tensor), feeds.get(tensor.name)
            if tensor.role == "data" and at is not None and array is not None and array.ndim > at:
                rows: int = array.shape[at]
                return max(1, min(rows, graph.row_buckets[-1]))
        return 1

    def _end(self, name: Name, stream: Stream) -> None:
        stream.close()
        with self._lock:
            if self._streams.get(name) is stream:
                del self._streams[name]
