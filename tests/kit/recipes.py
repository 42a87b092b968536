"""A small recipe that loads, and what becomes of it when it is changed."""

from pathlib import Path

import pytest

from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from compiler.recipe.record import Recipe

GOOD = """\
name: tiny
graphs:
  encoder:
    source:
      factory: model:build
      checkpoint: weights.safetensors
    first_call:
      factory: model:build_first
    inputs:
      features: {shape: [batch, 67, 80], dtype: float32}
      cache_{0..2}: {shape: [batch, cache, 8], dtype: float32, state: "next_{0..2}"}
    outputs: [logits, "next_{0..2}"]
    axes:
      batch: {buckets: [1, 4]}
      cache: {window: 16, mask_input: mask}
    passes:
      - pad_axes: {fill: 0.0}
      - simplify
data:
  verification:
    feeds: data:streams
    count: 2
targets:
  - kind: onnx_static
    opset: 20
gates:
  parity:
    encoder: {max_abs: 1.0e-5, chained_steps: 100}
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(tmp_path: Path, text: str, *overrides: str, checkpoint: str | None = None) -> str:
    """The message of the error, the file's folder cut off."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, text), overrides, checkpoint)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{tmp_path}/", "")


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"the good recipe holds {old!r} {GOOD.count(old)} times"
    return GOOD.replace(old, new)


def load(tmp_path: Path, text: str = GOOD, *overrides: str) -> Recipe:
    return load_recipe(write(tmp_path, text), overrides).recipe


CODEC = """\
  codec:
    source: {factory: "model:codec"}
    inputs:
      logits: {shape: [rows, 30], dtype: float32}
      past: {shape: [rows, cache, 8], dtype: float32, state: next_past}
      wide: {shape: [rows, cache, 9], dtype: float32, state: next_wide}
    outputs: [sound, next_past, next_wide]
    axes:
      rows: {buckets: [1, 4]}
      cache: {window: 16}
"""
WIRE = "from_graph: encoder, output: logits, to_graph: codec, input: logits"


def wired(*wires: str) -> str:
    """The good recipe with a second graph, and wires as YAML has them."""
    text = GOOD.replace("data:\n", f"{CODEC}data:\n", 1)
    text = text.replace("chained_steps: 100}", "chained_steps: 100}\n    codec: {max_abs: 1.0e-5, chained_steps: 100}")
    text += '  pipeline: {feeds: "data:together", count: 2, max_abs: 1.0e-5}\n'
    return text + "wiring:\n" + "".join(f"  - {{{wire}}}\n" for wire in wires)
