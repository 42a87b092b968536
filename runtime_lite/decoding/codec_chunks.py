"""Queues the tokens and noise of a voice as chunks of its codec graph, and returns the samples of each chunk."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime_lite.calls.flush import flush_feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Tensor, Voice, static_shape
from runtime_lite.format.voice_check import frames_axis
from runtime_lite.scheduling.clock import Clock
from runtime_lite.serving.request import LiveRequest, LiveStream, Outputs, Part, make_part

Samples = NDArray[np.floating]

SOUND = 1
"""Index of the parts of a voice that run its codec."""


class CodecChunks:
    """The codec of one voice, in a stream of its own.

    Noise is drawn frame by frame from the seed, so that it does not depend on how frames are cut into chunks. Where the
    codec lags, the samples in front of the first frame are cut off, and the chunk of `flush` gives the last ones.

    Args:
        voice: the voice of the bundle.
        live: the stream, which belongs to this voice alone.
        feeds: arrays that the codec takes beside tokens and noise, which are fed in every call.
        seed: seed of the noise.
        clock: the server's.

    Attributes:
        lag: number of frames whose sound the codec still owes behind any chunk but that of `flush`.
    """

    def __init__(self, voice: Voice, live: LiveStream, feeds: Mapping[str, Array], seed: int, clock: Clock) -> None:
        """Start without frames.

        Raises:
            BadInput: the feeds are not those of the codec.
        """
        assert isinstance(live.runner, GraphRunner)
        self._voice, self._live, self._runner, self._clock = voice, live, live.runner, clock
        graph = live.runner.graph
        self._axis = frames_axis(voice, graph)
        inputs = {tensor.name: tensor for tensor in graph.inputs}
        self._codes = inputs[voice.codes]
        self._noise = None if voice.noise is None else inputs[voice.noise]
        self._random = np.random.default_rng(seed)
        self._frames: deque[tuple[int, Array | None]] = deque()
        self.lag = graph.flush.get(voice.codes, 0)
        self._cut = self.lag * voice.samples_per_frame
        self._is_fed = self._is_flushed = False
        self._where = f"{live.runner.name}.say"
        self._feeds = dict(feeds)
        checked = live.runner.check(self._where, self._feed([(0, None)]), 1, copy=True)
        if checked.rows != 1:
            raise BadInput(f"{self._where}: expected 1 row for the codec, got {checked.rows}; say each text by itself")
        self._feeds = {name: checked.arrays[name] for name in feeds}  # the caller's arrays are the caller's again

    @property
    def waiting(self) -> int:
        """Number of frames that no chunk has yet."""
        return len(self._frames)

    @property
    def owes(self) -> bool:
        """Whether a chunk of `flush` must follow the frames, as the sound lags."""
        return bool(self.lag) and self._is_fed and not self._is_flushed

    def noise(self) -> Array | None:
        """Draw the noise of the next frame; frames are drawn in their order, without the server's lock."""
        return None if self._noise is None else self._random.standard_normal(self._shape(self._noise, 1), np.float32)

    def add(self, token: int, noise: Array | None) -> None:
        """Append a frame."""
        self._frames.append((token, noise))

    def chunk(self, request: LiveRequest[Any], frames: int, soft: int) -> Part:
        """Return the part of the next frames.

        Args:
            request: the request that it belongs to.
            frames: number of frames, at most those that wait.
            soft: time by which the sound should be there.

        Raises:
            BadInput: the codec does not take a token.
        """
        self._is_fed = True
        return self._part(request, self._feed([self._frames.popleft() for _ in range(frames)]), soft)

    def flush(self, request: LiveRequest[Any], soft: int) -> Part:
        """Return the part that gives the sound that lags; `soft` as for `chunk`."""
        self._is_flushed = True
        return self._part(request, flush_feed(self._where, self._runner.graph, 1), soft)

    def samples(self, outputs: Outputs) -> Samples:
        """Return the sound of a chunk that has run, without what lies in front of the first frame."""
        sound = outputs[self._voice.sound].reshape(-1)
        cut = min(self._cut, sound.size)
        self._cut -= cut
        return sound[cut:]

    def _feed(self, frames: list[tuple[int, Array | None]]) -> dict[str, Array]:
        codes = np.array([token for token, _ in frames], self._codes.dtype)
        feed = {**self._feeds, self._codes.name: codes.reshape(self._shape(self._codes, len(frames)))}
        if self._noise is not None:
            along = self._noise.shape.index(self._axis) if self._axis is not None else 0
            drawn = [np.zeros(self._shape(self._noise, 1), np.float32) if one is None else one for _, one in frames]
            feed[self._noise.name] = np.concatenate(drawn, along)
        return feed

    def _shape(self, tensor: Tensor, frames: int) -> tuple[int, ...]:
        graph = self._runner.graph
        sizes = {} if graph.batch_axis is None else {graph.batch_axis: 1}
        return static_shape(tensor.shape, sizes if self._axis is None else {**sizes, self._axis: frames})

    def _part(self, request: LiveRequest[Any], feeds: Mapping[str, Array], soft: int) -> Part:
        live = self._live
        feed = self._runner.check(self._where, feeds, 1)
        part = make_part(
            request, SOUND, live.version, self._runner, [feed], live.options.service, self._clock(), request.hard, live
        )
        part.soft = soft
        return part
