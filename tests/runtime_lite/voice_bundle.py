"""A voice by hand: a step that scores the next token of text and tokens so far, and a codec of 4 samples a frame.

The codec is a transposed convolution of 8 samples with a stride of 4: a frame sounds on into the next one. It carries
the frame before; in the lagging form it looks one frame ahead, and its sound is a frame late.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from runtime_lite import Sampling
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, FrameLimit, Graph, State, Tensor, Voice
from tests.runtime_lite.bundles import write_bundle
from tests.runtime_lite.in_place_graph import in_place_graph
from tests.runtime_lite.token_bundle import EMBEDDING, LAST, SLOTS, TOKENS, WIDTH

STOP, START, HOP, RATE = 8, 7, 4, 1000
ROWS, TIMES, LETTERS, CHUNKS = (1, 2, 4), (1, 4), 6, (1, 5)
ENTRIES = 3

LETTER = np.random.default_rng(3).normal(size=(5, WIDTH)).astype(np.float32)
FRAMES = np.random.default_rng(4).normal(size=(STOP, ENTRIES)).astype(np.float32)
FIRST = np.random.default_rng(5).normal(size=(ENTRIES, HOP)).astype(np.float32)
SECOND = np.random.default_rng(6).normal(size=(ENTRIES, HOP)).astype(np.float32)

VOICE = Voice(
    step="step",
    tokens="tokens",
    scores="scores",
    start=START,
    codec="codec",
    codes="codes",
    noise="noise",
    sound="sound",
    samples_per_frame=HOP,
    sample_rate_hz=RATE,
    frames=FrameLimit("text", 4.0, 6),
    sampling=Sampling(max_tokens=30, stop=frozenset({STOP}), temperature=1.5),
)

STEP_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
step (int64[{n},6] text, int64[{n},{t}] tokens, int64[{n}] letters_length, int64[{n}] time_length,
      int64[{n}] past_length, float[{n},40,4] keys) => (float[{n},{t},9] scores, float[{n},{t},4] new_keys)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[{t}] slots = {{{slots}}}, int64[6] places = {{0, 1, 2, 3, 4, 5}},
 float zero = {{0}}, float[9,4] embedding = {{{embedding}}}, float[4,9] last = {{{last}}},
 float[5,4] letter = {{{letter}}}>
{{
    entries = Gather(embedding, tokens)
    length = Unsqueeze(time_length, one)
    valid = Less(slots, length)
    column = Unsqueeze(valid, two)
    new_keys = Where(column, entries, zero)
    letters = Gather(letter, text)
    written = Unsqueeze(letters_length, one)
    is_written = Less(places, written)
    written_column = Unsqueeze(is_written, two)
    clean = Where(written_column, letters, zero)
    read = ReduceSum<keepdims = 1>(clean, one)
    past = ReduceSum<keepdims = 1>(keys, one)
    before = Add(past, read)
    along = Squeeze(one)
    running = CumSum(new_keys, along)
    heard = Add(running, before)
    bounded = Sin(heard)
    scores = MatMul(bounded, last)
}}
"""

CODEC_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
codec (int64[{n},{t},1] codes, float[{n},{t},4] noise, int64[{n}] chunk_length, float[{n},3] before)
   => (float[{n},{s}] sound, float[{n},3] after)
<int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] nothing = {{0}}, int64[1] count = {{{t}}}, int64[1] end = {{{e}}},
 int64[{e}] slots = {{{slots}}}, float zero = {{0}}, int64[2] flat = {{{n}, {s}}},
 float[8,3] frames = {{{frames}}}, float[3,4] own = {{{own}}}, float[3,4] late = {{{late}}}>
{{
    column = Squeeze(codes, two)
    entries = Gather(frames, column)
    row = Unsqueeze(before, one)
    joined = Concat<axis = 1>(row, entries)
    now = Slice(joined, one, end, one)
    past = Slice(joined, nothing, count, one)
    of_now = MatMul(now, own)
    of_past = MatMul(past, late)
    clear = Add(of_now, of_past)
    noisy = Add(clear, noise)
    sound = Reshape(noisy, flat)
    length = Unsqueeze(chunk_length, one)
    is_last = Equal(slots, length)
    last_column = Unsqueeze(is_last, two)
    last = Where(last_column, joined, zero)
    after = ReduceSum<keepdims = 0>(last, one)
}}
"""


def step_graph() -> Graph:
    """The graph of a step: text, and tokens with a cache of 40."""
    return dataclasses.replace(
        in_place_graph(ROWS, SLOTS),
        inputs=(
            Tensor("text", ("batch", "letters"), "int64", "data", range=(0, 4)),
            Tensor("tokens", ("batch", "time"), "int64", "data", range=(0, STOP)),
            Tensor("letters_length", ("batch",), "int64", "length"),
            Tensor("time_length", ("batch",), "int64", "length"),
            Tensor("past_length", ("batch",), "int64", "length"),
            Tensor("keys", ("batch", SLOTS, WIDTH), "float32", "state"),
        ),
        outputs=(
            Tensor("scores", ("batch", "time", TOKENS), "float32", "data"),
            Tensor("new_keys", ("batch", "time", WIDTH), "float32", "state"),
        ),
        axes={
            "batch": Axis(ROWS),
            "letters": Axis((LETTERS,), "letters_length"),
            "time": Axis(TIMES, "time_length"),
        },
        states=(State("keys", "keys", "new_keys", ("batch", SLOTS, WIDTH), "float32", 0.0, 1, "past", ("keys",)),),
        artifacts=tuple(
            Artifact({"batch": rows, "letters": LETTERS, "time": time}, f"graphs/step{rows}.{time}.onnx", ())
            for rows in ROWS
            for time in TIMES
        ),
        golden="golden/step.npz",
        certificate="certificates/step.json",
    )


def codec_graph(lags: bool = False) -> Graph:
    """The graph of the codec, for chunks of up to 5 frames."""
    return dataclasses.replace(
        in_place_graph(ROWS, SLOTS),
        inputs=(
            Tensor("codes", ("batch", "chunk", 1), "int64", "data", range=(0, STOP - 1)),
            Tensor("noise", ("batch", "chunk", HOP), "float32", "data"),
            Tensor("chunk_length", ("batch",), "int64", "length"),
            Tensor("before", ("batch", ENTRIES), "float32", "state"),
        ),
        outputs=(
            Tensor("sound", ("batch", "4 * chunk"), "float32", "data"),
            Tensor("after", ("batch", ENTRIES), "float32", "state"),
        ),
        axes={"batch": Axis(ROWS), "chunk": Axis(CHUNKS, "chunk_length")},
        states=(State("before", "before", "after", ("batch", ENTRIES), "float32", 0.0, None, None, ("before",)),),
        caches=(),
        artifacts=tuple(
            Artifact({"batch": rows, "chunk": chunk}, f"graphs/codec{rows}.{chunk}.onnx", ())
            for rows in ROWS
            for chunk in CHUNKS
        ),
        golden="golden/codec.npz",
        certificate="certificates/codec.json",
        flush={"codes": 1, "noise": 1} if lags else {},
    )


def write_voice_bundle(directory: Path, lags: bool = False, voice: Voice = VOICE) -> Path:
    """Write a bundle with the voice."""
    own, late = (SECOND, FIRST) if lags else (FIRST, SECOND)
    graphs = {"step": step_graph(), "codec": codec_graph(lags)}
    files = {"certificates/step.json": b"{}\n", "certificates/codec.json": b"{}\n"}
    for artifact in graphs["step"].artifacts:
        rows, time = artifact.sizes["batch"], artifact.sizes["time"]
        constants = {"embedding": EMBEDDING, "last": LAST, "letter": LETTER}
        files[artifact.file] = _onnx(STEP_TEXT, constants, n=rows, t=time, slots=_counted(time))
    for artifact in graphs["codec"].artifacts:
        rows, chunk = artifact.sizes["batch"], artifact.sizes["chunk"]
        sizes = {"n": rows, "t": chunk, "e": chunk + 1, "s": HOP * chunk, "slots": _counted(chunk + 1)}
        files[artifact.file] = _onnx(CODEC_TEXT, {"frames": FRAMES, "own": own, "late": late}, **sizes)
    token: dict[str, Array] = {"text": np.zeros((1, 1), np.int64), "tokens": np.zeros((1, 1), np.int64)}
    code: dict[str, Array] = {"codes": np.zeros((1, 1, 1), np.int64), "noise": np.zeros((1, 1, HOP), np.float32)}
    answers: dict[str, tuple[dict[str, Array], dict[str, Array]]] = {
        "step": (token, {"scores": scores_after([0], [0])[None, None]}),
        "codec": (code, {"sound": (FRAMES[:1] @ own).astype(np.float32)}),
    }
    for name, (feeds, outputs) in answers.items():
        golden = Golden((GoldenStep(feeds, outputs),), 1e-5)
        files[f"golden/{name}.npz"] = npz_from_golden(golden)
    return write_bundle(directory, graphs, files, voice=voice)


def _counted(count: int) -> str:
    return ", ".join(map(str, range(count)))


def _onnx(text: str, constants: Mapping[str, Array], **sizes: Any) -> bytes:
    written = {name: ", ".join(f"{number:.9g}" for number in array.reshape(-1)) for name, array in constants.items()}
    return bytes(ir.to_proto(ir.from_onnx_text(text.format(**sizes, **written))).SerializeToString())


def scores_after(text: Sequence[int], tokens: Sequence[int]) -> Array:
    """The scores of the next token behind a text and the tokens so far, float32 [9]."""
    heard = EMBEDDING[list(tokens)].sum(axis=0) + LETTER[list(text)].sum(axis=0)
    return np.asarray(np.sin(heard) @ LAST, np.float32)


def sound_of(tokens: Sequence[int], seed: int, lags: bool = False) -> Array:
    """The sound of all tokens at once, float32 [4 * tokens]; the lagging codec hears frame 0 behind the last one."""
    frames = FRAMES[list(tokens)]
    others = np.concatenate([frames[1:], FRAMES[:1]]) if lags else np.concatenate([0 * frames[:1], frames[:-1]])
    noise = np.random.default_rng(seed).standard_normal((len(tokens), HOP), dtype=np.float32)
    if lags:  # noise is added to the sound that leaves with it, a frame late
        noise = np.concatenate([noise[1:], 0 * noise[:1]])
    return np.asarray(frames @ FIRST + others @ SECOND + noise, np.float32).reshape(-1)
