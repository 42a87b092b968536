"""Builds a cache-aware Conformer as its authors export it, from a recipe of the README's form, and reports the times.

    python -m benchmarks.streaming_conformer --layers 12 --out bundle
    python -m benchmarks.streaming_conformer --layers 12 --bundle bundle --rows 1 4 16
    python -m benchmarks.streaming_conformer --layers 12 --int8 --steps 60 --out int8
    python -m benchmarks.streaming_conformer --layers 12 --export plain.onnx
    python build.py bench int8/graphs/encoder.batch.onnx --against plain.onnx --set-size batch=1 --set-size cached=64

The second command builds nothing: it runs a bundle in each of its buckets of rows beside the model's own PyTorch loop.
The third builds it on 8-bit integers, the fourth writes the plain export that the last times it against.

The model is written for one row and in no way for deployment: a convolutional subsampling by four, then Conformer
layers with attention caches of all layers stacked in one tensor `[layers, heads, cached, keys and values]`, without
a batch axis, and cut inside the model to the newest frames; convolution caches `[layers, 1, width, kernel - 1]`; and
rows of a table of positions that begin at a scalar `offset`, counted by the caller. The recipe lists inputs, states
and axes. The gates of the build compare 60 chained calls with the model, and the growth of the error over 1000.

Source: Zhang et al., WeNet 2.0 (arXiv 2203.15455), the step of its streaming encoder; Gulati et al., Conformer (arXiv
2005.08100).
"""

import argparse
import collections
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

import build as front_door
import runtime_lite
from benchmarks import command
from compiler.graph.runners.ahead import ahead

WIDTH, HEADS, KERNEL, MELS = 256, 4, 15, 80
CHUNK, FRAMES, WINDOW = 16, 67, 64
"""New frames behind the subsampling, frames in front of it, and frames that an attention cache keeps."""

INT8_PASSES: tuple[str | dict[str, Any], ...] = (
    "standard", "lower_pointwise_convolutions", "sink_transposes", "smooth_channels", "quantize_attention",
    {"quantize_static": {"pins": []}}, "carry_codes",
)  # fmt: skip

CALLS = 60
"""Of one stream of data: 960 frames, 15 windows."""

BUCKETS = (1, 4, 16)
"""Rows."""

LIMIT = 1e-5
"""What an output or state may be off, relative to values above 1."""

POSITIONS = 20_000
"""Rows of the table of positions: 1000 calls of 16 frames and more."""


class RelativeAttention(nn.Module):
    """Self-attention with relative positions, without the shift (as WeNet has it)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.size = WIDTH // HEADS
        self.bias_u = nn.Parameter(torch.randn(HEADS, self.size) * 0.1)
        self.bias_v = nn.Parameter(torch.randn(HEADS, self.size) * 0.1)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x [1, n, width], positions [1, cached + n, width], cache [1, heads, cached, 2 * size]."""
        rows = x.size(0)
        query = self.query(x).view(rows, -1, HEADS, self.size)
        key = self.key(x).view(rows, -1, HEADS, self.size).transpose(1, 2)
        value = self.value(x).view(rows, -1, HEADS, self.size).transpose(1, 2)
        old_key, old_value = torch.split(cache, cache.size(-1) // 2, dim=-1)
        key, value = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
        new_cache = torch.cat((key, value), dim=-1)
        where = self.position(positions).view(positions.size(0), -1, HEADS, self.size).transpose(1, 2)
        with_u = (query + self.bias_u).transpose(1, 2)
        with_v = (query + self.bias_v).transpose(1, 2)
        scores = (with_u @ key.transpose(-2, -1) + with_v @ where.transpose(-2, -1)) / self.size**0.5
        heard = torch.softmax(scores, dim=-1) @ value
        return self.out(heard.transpose(1, 2).contiguous().view(rows, -1, WIDTH)), new_cache


class ConvolutionModule(nn.Module):
    """Gated causal depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, groups=WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.after = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x [1, n, width] and a cache [1, width, kernel - 1]."""
        x = torch.cat((cache, x.transpose(1, 2)), dim=2)
        new_cache = x[:, :, -(KERNEL - 1) :]
        x = self.depthwise(nn.functional.glu(self.before(x), dim=1))
        x = nn.functional.silu(self.norm(x.transpose(1, 2))).transpose(1, 2)
        return self.after(x).transpose(1, 2), new_cache


class Layer(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.halves = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(2)
        )
        self.attention, self.convolution = RelativeAttention(), ConvolutionModule()

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, attention_cache: torch.Tensor, convolution_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Take x [1, n, width] and the caches of this layer."""
        x = x + 0.5 * self.halves[0](self.norms[0](x))
        heard, attention_cache = self.attention(self.norms[1](x), positions, attention_cache)
        x = x + heard
        around, convolution_cache = self.convolution(self.norms[2](x), convolution_cache)
        x = x + around
        x = x + 0.5 * self.halves[1](self.norms[3](x))
        return self.norms[4](x), attention_cache, convolution_cache


class StreamingConformer(nn.Module):
    """One chunk of a stream."""

    table: torch.Tensor

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, WIDTH, 3, 2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, 2), nn.ReLU())
        self.embed = nn.Linear(WIDTH * (((MELS - 1) // 2 - 1) // 2), WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        angle = torch.arange(POSITIONS).unsqueeze(1) * torch.exp(torch.arange(0, WIDTH, 2) * (-np.log(1e4) / WIDTH))
        self.register_buffer("table", torch.stack([angle.sin(), angle.cos()], -1).flatten(1), persistent=False)

    def forward(
        self,
        features: torch.Tensor,
        offset: torch.Tensor,
        attention_cache: torch.Tensor,
        convolution_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features [1, 67, 80], offset [], caches [layers, 4, cached, 128] and [layers, 1, 256, 14]."""
        x = self.subsample(features.unsqueeze(1))
        rows, channels, frames, mels = x.size()
        x = self.embed(x.transpose(1, 2).contiguous().view(rows, frames, channels * mels)) * WIDTH**0.5
        cached = attention_cache.size(2)
        keys = cached + x.size(1)
        index = offset - cached + torch.arange(0, keys)
        index = index * (index > 0)
        positions = nn.functional.embedding(index, self.table).unsqueeze(0)
        first = max(keys - WINDOW, 0)
        attention_caches, convolution_caches = [], []
        for number, layer in enumerate(self.layers):
            x, new_attention, new_convolution = layer(
                x, positions, attention_cache[number : number + 1], convolution_cache[number]
            )
            attention_caches.append(new_attention[:, :, first:, :])
            convolution_caches.append(new_convolution.unsqueeze(0))
        return self.norm(x), torch.cat(attention_caches, dim=0), torch.cat(convolution_caches, dim=0)


def build(layers: int = 12) -> nn.Module:
    """Return the Conformer with random weights."""
    torch.manual_seed(0)
    return StreamingConformer(layers)


def build_of_two() -> nn.Module:
    """Return the same model with two layers."""
    return build(2)


def streams(calls: int = CALLS, *, seed: int = 0) -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield two streams of different features; chunks overlap as the subsampling needs it."""
    random = np.random.default_rng(seed)
    for _ in range(2):
        heard = random.standard_normal((1, 4 * CHUNK * calls + 3, MELS), dtype=np.float32)
        yield [
            {
                "features": heard[:, 4 * CHUNK * call : 4 * CHUNK * call + FRAMES],
                "offset": np.array([CHUNK * call], np.int64),
            }
            for call in range(calls)
        ]


def calibration() -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield other streams for calibration."""
    return streams(CALLS, seed=1)


def recipe(layers: int, steps: int, *, int8: bool = False) -> dict[str, Any]:
    """Return the recipe: inputs, states, axes, and the model's axis of rows.

    Args:
        layers: number of layers, 2 or 12.
        steps: number of chained calls that are compared; those beyond one stream measure drift.
        int8: whether it computes in 8-bit integers.
    """
    parity: dict[str, Any] = {"max_abs": LIMIT, "chained_steps": min(steps, CALLS)}
    if steps > CALLS:
        parity["drift"] = {"steps": steps, "max_growth": 1.5}
    attention, convolution = [layers, HEADS, "cached", 2 * WIDTH // HEADS], [layers, 1, WIDTH, KERNEL - 1]
    inputs = {
        "features": {"shape": ["batch", FRAMES, MELS], "dtype": "float32", "original": [1, FRAMES, MELS]},
        "offset": {"shape": ["batch"], "dtype": "int64", "original": []},
        "attention_cache": {
            "shape": ["batch", *attention],
            "dtype": "float32",
            "state": "next_attention_cache",
            "original": attention,
        },
        "convolution_cache": {
            "shape": ["batch", layers, WIDTH, KERNEL - 1],
            "dtype": "float32",
            "state": "next_convolution_cache",
            "original": convolution,
        },
    }
    graph: dict[str, Any] = {
        "source": {"factory": "benchmarks.streaming_conformer:" + {2: "build_of_two", 12: "build"}[layers]},
        "inputs": inputs,
        "outputs": ["encoded", "next_attention_cache", "next_convolution_cache"],
        "axes": {"batch": {"buckets": list(BUCKETS)}, "cached": {"window": WINDOW}},
    }
    data = {"verification": {"feeds": "benchmarks.streaming_conformer:streams", "count": 2}}
    if int8:
        graph["passes"] = list(INT8_PASSES)
        data["calibration"] = {"feeds": "benchmarks.streaming_conformer:calibration", "count": 2}
        parity["lossy"] = {"max_abs": 0.5, "sqnr_db": 20.0}
    return {
        "name": f"streaming_conformer_{layers}",
        "graphs": {"encoder": graph},
        "data": data,
        "targets": [{"kind": "onnx_static"}],
        "gates": {"parity": {"encoder": parity}},
    }


def furthest(folder: Path, layers: int, calls: int, rows: int, threads: int) -> dict[str, float]:
    """Return the largest errors of a bucket relative to the model's own PyTorch loop, over all calls.

    Every row runs the same stream, each a call later than the row before, so that rows of all ages share a run.

    Args:
        folder: the bundle.
        layers: of the model.
        calls: chained calls of the first row.
        rows: number of rows of the bucket.
        threads: number of threads of one run.

    Returns:
        By output and state the largest difference; without states in whose place others are carried.
    """
    errors, peaks = dict[str, float](), dict[str, float]()
    answers = collections.deque[dict[str, np.ndarray]](maxlen=rows)
    with runtime_lite.Runtime(threads=threads) as runtime:
        runner = runtime.load(folder).runner("encoder")
        feeds = next(streams(calls))
        states = [runner.initial_state(1) for _ in range(rows)]
        for call, answer in enumerate(ahead(_torch_loop(build(layers), feeds))):
            answers.appendleft(answer)
            given = [runner.check("benchmark", feeds[call - row]) for row in range(len(answers))]
            results = runner.step_streams(given, states[: len(answers)], {"batch": rows})
            for row, (outputs, state) in enumerate(results):
                states[row] = state
                for name, expected in answers[row].items():
                    got = _stacked({**outputs, **state.values}, name)
                    if got is None:
                        continue
                    newest = got[:, :, -expected.shape[2] :] if name == "attention_cache" else got
                    error = float(np.max(np.abs(newest.astype(np.float64) - expected)))
                    errors[name] = max(errors.get(name, 0.0), float("inf") if np.isnan(error) else error)
                    peaks[name] = max(peaks.get(name, 1.0), float(np.max(np.abs(expected))))
    return {name: error / peaks[name] for name, error in errors.items()}


def _stacked(values: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """Return an output of one row, or the states of all layers stacked as in the model; None for other states."""
    if name in values:
        found: np.ndarray = values[name][0]
        return found
    layers = itertools.takewhile(values.__contains__, (f"{name}_{layer}" for layer in itertools.count()))
    members = [values[each][0] for each in layers]
    return np.stack(members) if members else None


def export(layers: int, path: Path) -> None:
    """Write the plain dynamic export that all contenders start from."""
    model = build(layers) if layers > 2 else build_of_two()
    attention = torch.zeros(layers, HEADS, WINDOW, 2 * WIDTH // HEADS)
    given = (torch.zeros(1, FRAMES, MELS), torch.tensor(0), attention, torch.zeros(layers, 1, WIDTH, KERNEL - 1))
    cached = {2: torch.export.Dim("cached")}
    shapes: tuple[dict[int, Any], ...] = ({}, {}, cached, {})
    with torch.no_grad():
        program = torch.onnx.export(
            model.eval(), given, dynamo=True, dynamic_shapes=shapes, opset_version=20, verbose=False
        )
    assert program is not None
    program.save(path)


def _torch_loop(model: nn.Module, feeds: Sequence[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the model's outputs call after call, with its caches passed on by hand."""
    torch.set_num_threads(1)
    layers = len(model.eval().layers)  # type: ignore[arg-type]
    attention = torch.zeros(layers, HEADS, 0, 2 * WIDTH // HEADS)
    convolution = torch.zeros(layers, 1, WIDTH, KERNEL - 1)
    for feed in feeds:
        with torch.no_grad():
            features, offset = torch.from_numpy(feed["features"]), torch.from_numpy(feed["offset"])[0]
            encoded, attention, convolution = model(features, offset, attention, convolution)
        yield {
            "encoded": encoded[0].numpy(),
            "attention_cache": attention.numpy(),
            "convolution_cache": convolution[:, 0].numpy(),
        }


def _build(options: argparse.Namespace, folder: Path) -> int:
    """Build the bundle and print the time of every stage; return the exit code of the build."""
    written, report = folder / "streaming_conformer.yaml", folder / "report.json"
    written.write_text(yaml.safe_dump(recipe(options.layers, options.steps, int8=options.int8), sort_keys=False))
    places = ["--out", str(options.out or folder / "bundle"), "--no-cache", "--report", str(report)]
    code = front_door.main(["--recipe", str(written), *places])
    stages = json.loads(report.read_text())["stages"] if report.exists() else []
    print(f"{'':24} {'clock':>10} {'processor':>12}")
    for each in stages:
        print(f"{each['stage']:24} {each['seconds']:8.1f} s {each['processor_seconds']:10.1f} s")
    clock, processor = (sum(each[key] for each in stages) for key in ("seconds", "processor_seconds"))
    print(f"{'all':24} {clock:8.1f} s {processor:10.1f} s")
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the model, or compare a bundle of it; return the exit code, 1 if a bundle is too far off."""
    parser = argparse.ArgumentParser(description="Build of a cache-aware Conformer, stage by stage, and its calls.")
    parser.add_argument("--layers", type=int, choices=(2, 12), default=12)
    parser.add_argument("--steps", type=int, default=1000, help="chained calls that are compared")
    parser.add_argument("--int8", action="store_true", help="on 8-bit integers")
    parser.add_argument("--export", type=Path, help="write the plain dynamic export here, build nothing")
    parser.add_argument("--out", type=Path, help="where the bundle stays; it goes where none is given")
    parser.add_argument("--bundle", type=Path, help="one that is built already: compare it, build nothing")
    parser.add_argument("--rows", type=int, nargs="+", choices=BUCKETS, default=list(BUCKETS))
    parser.add_argument("--threads", type=int, default=1, help="of one run of a bundle")
    options = parser.parse_args(arguments)
    if options.export is not None:
        export(options.layers, options.export)
        return 0
    if options.bundle is None:
        with tempfile.TemporaryDirectory() as scratch:
            return _build(options, Path(scratch))
    worst = 0.0
    for rows in options.rows:
        found = furthest(options.bundle, options.layers, options.steps, rows, options.threads)
        worst = max(worst, *found.values())
        told = ", ".join(f"{name} {error:.1e}" for name, error in found.items())
        print(f"{rows:2} rows, {options.steps} calls: {told} of the largest value (limit {LIMIT:.0e})")
    return int(worst > LIMIT)


if __name__ == "__main__":
    command.run(main)
