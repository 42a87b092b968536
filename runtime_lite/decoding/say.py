"""Starts speaking a text: opens the streams of the step graph and the codec graph, and submits the first call."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.decoding.codec_chunks import CodecChunks
from runtime_lite.decoding.packets import PacketSizes
from runtime_lite.decoding.steps import Steps
from runtime_lite.decoding.voice import Voice
from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import FrameLimit, Graph
from runtime_lite.format.manifest import Voice as VoiceOfBundle
from runtime_lite.format.sampling import Sampling
from runtime_lite.format.voice_check import frames_axis
from runtime_lite.scheduling.task import Key
from runtime_lite.serving.request import StreamOptions, Version
from runtime_lite.serving.server import Server
from runtime_lite.serving.shield import Shield


@dataclasses.dataclass(frozen=True)
class VoiceOptions:
    """The caller's options of a voice.

    Attributes:
        sampling: how tokens are drawn; None as the bundle says.
        seed: replaces that of the sampling; None keeps it.
        stream: the options of its streams.
        hard: time from which the answer is worthless; None for never.
        room: number of packets that may be unread.
        lead_ns: length of the sound that is not played yet at which the voice pauses; None for no limit.
    """

    sampling: Sampling | None
    seed: int | None
    stream: StreamOptions
    hard: int | None
    room: int
    lead_ns: int | None


def say(server: Server, version: Version, feeds: Mapping[str, Array], options: VoiceOptions) -> Voice:
    """Start a voice.

    Args:
        server: the server.
        version: the version that runs it.
        feeds: inputs of the step and of the codec that nothing else feeds, of one row.
        options: the caller's options.

    Raises:
        BadInput: the bundle has no voice, or a feed or a setting is wrong.
        Overloaded: no streams can be opened, or the runtime drains.
    """
    voice = version.bundle.manifest.voice
    where = f"{version.bundle.manifest.name}.say"
    if voice is None:
        _refuse(where, "a bundle with a voice", "one without", "write a section voice into its recipe")
    if not isinstance(feeds, Mapping):
        _refuse(where, "the feeds as a mapping of arrays", show(feeds), "write {'name': array}")
    step, codec = version.runners[voice.step], version.runners[voice.codec]
    limit = None if voice.frames is None else _most_frames(voice.frames, step.graph, feeds)
    sampling = _sampling_of(where, voice, options, limit)
    of_codec = _fed(codec.graph) - {voice.codes, voice.noise}
    fed_to_codec = {name: array for name, array in feeds.items() if name in of_codec}
    of_step = {name: array for name, array in feeds.items() if name not in of_codec - _fed(step.graph)}
    fed_to_step = _with_start(voice, step.graph, of_step)
    with Shield():
        opened = []
        try:
            for runner in (step, codec):
                opened.append(server.open_stream(version, runner, 1, options.stream))
            steps = Steps(where, opened[0], fed_to_step, voice.tokens, voice.scores, sampling, server.clock, limit)
            spoken = Voice(
                server,
                where,
                voice,
                steps,
                CodecChunks(voice, opened[1], fed_to_codec, sampling.seed, server.clock),
                opened,
                packet_sizes(voice, version, server.price),
                lambda: server.streams_of(step),
                server.clock,
                server.close_stream,
                options.room,
                options.lead_ns,
            )
            server.submit(spoken, version, [steps.first(spoken, options.hard)])
        except BaseException:
            for stream in opened:
                server.close_stream(stream)
            raise
        return spoken


def _fed(graph: Graph) -> set[str | None]:
    return {tensor.name for tensor in graph.inputs if tensor.role == "data"}


def _most_frames(frames: FrameLimit, step: Graph, feeds: Mapping[str, Array]) -> int | None:
    """Return the most frames of a text; None for one that the check of the feeds refuses."""
    text = next(tensor for tensor in step.inputs if tensor.name == frames.input)
    axis = next(at for at, size in enumerate(text.shape) if isinstance(size, str) and size != step.batch_axis)
    array = feeds.get(frames.input)
    if not isinstance(array, np.ndarray) or array.ndim != len(text.shape):
        return None
    entries: int = array.shape[axis]
    return math.floor(frames.per_entry * entries) + frames.more


def _sampling_of(where: str, voice: VoiceOfBundle, options: VoiceOptions, limit: int | None) -> Sampling:
    """Return the sampling of a voice: the stop tokens of the bundle, which are no frames, end every voice."""
    sampling = voice.sampling if options.sampling is None else options.sampling
    if not isinstance(sampling, Sampling):
        _refuse(where, "sampling as a Sampling", show(sampling), "pass Sampling(max_tokens=...), or leave it out")
    if options.seed is not None:
        sampling = dataclasses.replace(sampling, seed=options.seed)
    if limit is not None and sampling.min_tokens > limit:
        expected = f"sampling.min_tokens of at most {limit}, the most frames of this text"
        _refuse(where, expected, str(sampling.min_tokens), "lower it, or say a longer text")
    return dataclasses.replace(sampling, stop=sampling.stop | voice.sampling.stop)


def _with_start(voice: VoiceOfBundle, step: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """Return the feeds of the first call, the start behind the prompt; what is no prompt is left to the check."""
    if voice.start is None:
        return feeds
    dtype = next(np.dtype(tensor.dtype) for tensor in step.inputs if tensor.name == voice.tokens)
    start = np.array([[voice.start]], dtype)
    prompt = feeds.get(voice.tokens, start[:, :0])
    if not isinstance(prompt, np.ndarray) or prompt.dtype != dtype or prompt.ndim != 2 or len(prompt) != 1:
        return feeds
    return {**feeds, voice.tokens: np.concatenate([prompt, start], axis=1)}


def packet_sizes(voice: VoiceOfBundle, version: Version, price: Callable[[Key, int], int]) -> PacketSizes:
    """Return the choice of packet sizes by the costs of a version's graphs.

    Args:
        voice: the voice of the bundle.
        version: the version that runs it.
        price: returns the nanoseconds of a run of some rows of a key.
    """
    step, codec = version.runners[voice.step], version.runners[voice.codec]
    tokens = next(tensor for tensor in step.graph.inputs if tensor.name == voice.tokens)
    frames = frames_axis(voice, codec.graph)
    axis = None if frames is None else codec.graph.axes[frames]
    chunks = (1,) if axis is None else axis.buckets
    keys = {size: _key(version, codec, frames, size) for size in chunks}
    key_of_step = _key(version, step, str(tokens.shape[1]), 1)

    def step_ns(voices: int) -> int:
        return _ns(price, key_of_step, step, voices)

    def codec_ns(count: int, voices: int) -> int:
        return _ns(price, keys[next(size for size in chunks if size >= count)], codec, voices)

    return PacketSizes(
        voice.samples_per_frame * 1_000_000_000 // voice.sample_rate_hz,
        chunks,
        axis is not None and axis.length_input is not None,
        step.most_rows,
        step_ns,
        codec_ns,
    )


def _key(version: Version, runner: GraphRunner, along: str | None, count: int) -> Key:
    """Return the key of runs of `count` entries along an axis, and of the largest bucket of any other."""
    sizes = {
        name: next(size for size in axis.buckets if size >= count) if name == along else axis.buckets[-1]
        for name, axis in runner.graph.axes.items()
    }
    return version.key_of(runner, sizes)


def _ns(price: Callable[[Key, int], int], key: Key, runner: GraphRunner, rows: int) -> int:
    """Return the nanoseconds of the runs that some rows take."""
    runs = -(-rows // runner.most_rows)
    return runs * price(key, min(rows, runner.most_rows))


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
