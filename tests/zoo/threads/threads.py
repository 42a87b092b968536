"""What becomes of patterns of public bug reports: built, as their authors' module answers, or refused with a cure."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.zoo.threads.models import CHUNK, FEATURES, LABELS, SLOTS, WIDTH

ROWS = {"batch": {"buckets": [1, 4]}}
TIME = {**ROWS, "time": {"buckets": [32], "length_input": "time_length"}}
MASKED = {**ROWS, "time": {"buckets": [32]}}
CACHED = {**ROWS, "cached": {"window": SLOTS}}
CHUNKS = {**ROWS, "chunk": {"buckets": [CHUNK], "length_input": "chunk_length"}}


def tensor(*sizes: int | str, **keys: Any) -> dict[str, Any]:
    return {"shape": ["batch", *sizes], "dtype": "float32", **keys}


UTTERANCE = tensor("time", FEATURES)
LENGTHS = tensor(dtype="int64", length_of="time")
WHOLE_CHUNK = tensor(CHUNK, FEATURES)
CACHE = tensor("cached", WIDTH, state="next")


@dataclasses.dataclass(frozen=True)
class Thread:
    """A pattern, and how a build of it ends.

    Attributes:
        module: of `models`.
        reports: public threads that tell of it.
        inputs: as a recipe has them.
        outputs: likewise.
        axes: likewise.
        data: what is fed, a function of `feeds`.
        steps: chained calls.
        code: exit code.
        said: part of the message; of a build that ends well, none.
        more: further keys of the graph.
    """

    module: str
    reports: tuple[str, ...]
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...]
    axes: Mapping[str, Any]
    data: str
    steps: int
    code: int = 0
    said: str = ""
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


HALF = {"passes": ["standard", "lower_precision"]}

THREADS = (
    Thread(
        "MaskIgnored", ("speechbrain 2986", "pytorch/audio 3094"),
        {"features": UTTERANCE, "lengths": LENGTHS}, ("answer",), MASKED, "utterances", 4,
    ),
    Thread(
        "MaskOfLongest", ("k2-fsa/icefall 670",),
        {"features": UTTERANCE, "lengths": LENGTHS}, ("answer",), MASKED, "utterances", 4,
    ),
    Thread(
        "MaskOfHalves", ("sherpa-onnx 3318",),
        {"features": UTTERANCE, "lengths": LENGTHS}, ("answer",), MASKED, "utterances", 4,
    ),
    Thread(
        "TableEnds", ("sherpa-onnx 1422", "wenet 1301", "PaddleSpeech 2949"),
        {"features": UTTERANCE}, ("answer",), {**TIME, "time": {"buckets": [32, 64], "length_input": "time_length"}},
        "utterances", 4, 3, "expected a table of at least 64 entries for the buckets of time, got one of 50",
    ),
    Thread(
        "Pairs", ("icefall 1108",), {"features": UTTERANCE}, ("answer",), TIME, "even_utterances", 3,
        3, "takes multiples of 2, as it joins neighbouring frames to groups of 2; fill the last group inside forward",
    ),
    Thread("PairsOfPadded", ("icefall 1108",), {"features": UTTERANCE}, ("answer",), TIME, "utterances", 4),
    Thread(
        "Linear", ("onnxruntime 8625",), {"features": UTTERANCE}, ("answer",), TIME, "utterances", 4,
        more={"passes": ["standard", "quantize_dynamic"]},
    ),
    Thread(
        "CutToItself", ("FluidAudio 607", "FluidAudio 609"),
        {"features": WHOLE_CHUNK, "cache": CACHE}, ("answer", "next"), CACHED, "chunks", 30,
        3, "expected the whole cache from 'next' at call 2 of a stream, 8 cached frames and 8 new ones, got 8",
    ),
    Thread(
        "CausalFlag", ("onnxruntime 29020", "onnxruntime 28904", "onnx 8054"),
        {"features": WHOLE_CHUNK, "cache": CACHE}, ("answer", "next"), CACHED, "chunks", 30,
        3, "count the diagonal from where rows and columns are aligned",
    ),
    Thread(
        "CountedBefore", ("mobius 365",),
        {
            "features": tensor(1, FEATURES),
            "keys": tensor(SLOTS, WIDTH, state="next_keys"),
            "values": tensor(SLOTS, WIDTH, state="next_values"),
            "position": tensor(dtype="int64", state="next_position"),
        },
        ("answer", "next_keys", "next_values", "next_position"), ROWS, "frames", 12,
    ),
    Thread(
        "ContextOfChunk", ("NeMo 7034", "NeMo 3888"),
        {"features": tensor("chunk", FEATURES), "context": tensor(FEATURES, 4, state="next")}, ("answer", "next"),
        CHUNKS, "short_chunks", 20, 3, "state 'context' goes in as [1, 40, 4] and comes back from 'next' as [1, 40, ",
    ),
    Thread(
        "Lagging", ("wyoming-faster-whisper 125", "sherpa 411", "icefall 2033"),
        {"features": tensor("chunk", FEATURES), "context": tensor(FEATURES, 4, state="next")}, ("answer", "next"),
        CHUNKS, "short_chunks", 20, more={"flush": {"features": 2}},
    ),
    Thread(
        "BlankKeepsState", ("litert-samples 278", "NeMo 3673"),
        {
            "token": tensor(dtype="int64", range=[0, LABELS - 1]),
            "hidden": tensor(WIDTH, state="next_hidden"),
            "cell": tensor(WIDTH, state="next_cell"),
        },
        ("answer", "next_hidden", "next_cell"), ROWS, "tokens", 20,
    ),
    Thread(
        "LowMask", ("cactus 734", "TensorRT 2466"),
        {"features": WHOLE_CHUNK, "cache": CACHE}, ("answer", "next"), CACHED, "chunks", 30, more=HALF,
    ),
    Thread(
        "LoudNorm", ("NVIDIA-NeMo/Speech 14531", "TensorRT 1954", "TensorRT 2564"),
        {"features": WHOLE_CHUNK, "state": tensor(1, WIDTH, state="next")}, ("answer", "next"), ROWS, "chunks", 30,
        more=HALF,
    ),
    Thread(
        "OverlapAdd", ("sglang-omni 1354", "vllm-omni 4706"),
        {"features": WHOLE_CHUNK, "tail": tensor(16, 4, state="next")}, ("answer", "next"), ROWS, "chunks", 30,
    ),
    Thread(
        "NotFedBack", ("livekit/agents-js 944", "livekit/agents 4437"),
        {"features": tensor(FEATURES), "hidden": tensor(WIDTH)}, ("answer", "next"), ROWS, "single_frames", 12,
        2, "yield hidden in every feed; or write state: OUTPUT at what the model hands to its next call",
    ),
    Thread(
        "Durations", ("optimum 1383", "pytorch 28306"), {"features": UTTERANCE}, ("answer",), TIME, "utterances", 4,
        3, "expected sizes that follow from time, batch, got an axis of",
    ),
)  # fmt: skip
