"""A voice of one screen as ONNX files: a step that sums its tokens, and a codec of 4 samples a frame."""

from pathlib import Path

import numpy as np
import onnx_ir as ir

STEP_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
step (int64[batch,1] tokens, float[batch,4] heard) => (float[batch,1,6] scores, float[batch,4] next_heard)
<int64[1] one = {{1}}, float[6,4] embedding = {{{embedding}}}, float[4,6] last = {{{last}}}>
{{
    column = Squeeze(tokens, one)
    entry = Gather(embedding, column)
    next_heard = Add(heard, entry)
    bounded = Sin(next_heard)
    flat = MatMul(bounded, last)
    scores = Unsqueeze(flat, one)
}}
"""

CODEC_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
codec (int64[batch,1,1] codes, float[batch,4] before) => (float[batch,4] sound, float[batch,4] after)
<int64[2] inner = {{1, 2}}, float[5,4] frames = {{{frames}}}, float[4,4] own = {{{own}}}, float[4,4] late = {{{late}}}>
{{
    column = Squeeze(codes, inner)
    after = Gather(frames, column)
    now = MatMul(after, own)
    past = MatMul(before, late)
    sound = Add(now, past)
}}
"""

RECIPE = """\
name: tiny_voice
graphs:
  step:
    source: {onnx: step.onnx}
    inputs:
      tokens: {shape: [batch, 1], dtype: int64, range: [0, 5]}
      heard:  {shape: [batch, 4], dtype: float32, state: next_heard}
    outputs: [scores, next_heard]
    axes: {batch: {buckets: [1, 2]}}
    passes: [pad_axes]
  codec:
    source: {onnx: codec.onnx}
    inputs:
      codes:  {shape: [batch, 1, 1], dtype: int64, range: [0, 4]}
      before: {shape: [batch, 4], dtype: float32, state: after}
    outputs: [sound, after]
    axes: {batch: {buckets: [1, 2]}}
    passes: [pad_axes]
voice:
  step: step
  tokens: tokens
  scores: scores
  start: 0
  codec: codec
  codes: codes
  sound: sound
  samples_per_frame: 4
  sample_rate_hz: 8000
  sampling: {max_tokens: 12, stop: [5], temperature: 1.0}
data:
  verification: {feeds: {step: "voice_data:tokens", codec: "voice_data:codes"}, count: 2}
targets: [{kind: onnx_static}]
gates:
  parity:
    step:  {max_abs: 1.0e-5, chained_steps: 6}
    codec: {max_abs: 1.0e-5, chained_steps: 6}
"""

DATA = """\
import numpy as np


def streams(name, shape, most):
    for seed in range(2):
        random = np.random.default_rng(seed)
        yield [{name: random.integers(0, most, shape)} for _ in range(8)]


def tokens():
    return streams("tokens", (1, 1), 6)


def codes():
    return streams("codes", (1, 1, 1), 5)
"""


def write_tiny_voice(folder: Path) -> None:
    """Write the two ONNX files, the data and `voice.yaml`."""
    random = np.random.default_rng(0)
    constants = {"embedding": (6, 4), "last": (4, 6), "frames": (5, 4), "own": (4, 4), "late": (4, 4)}
    written = {
        name: ", ".join(f"{number:.9g}" for number in random.normal(size=shape).reshape(-1))
        for name, shape in constants.items()
    }
    for name, text in (("step", STEP_TEXT), ("codec", CODEC_TEXT)):
        ir.save(ir.from_onnx_text(text.format(**written)), folder / f"{name}.onnx")
    (folder / "voice_data.py").write_text(DATA)
    (folder / "voice.yaml").write_text(RECIPE)
