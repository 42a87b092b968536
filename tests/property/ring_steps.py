"""Random steps that attend over windows, as rings: against the same steps with windows, and served beside each other.

    python -m tests.property.ring_steps 2000

Every third graph reads in which slot a cached frame lies: it is refused, or its answers are the same all the same.
"""

import argparse
import collections
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler.build.bundle.manifest_of import GraphParts, graph_record
from compiler.build.verify.invariance_check import check_invariance
from compiler.errors import GateFailed, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.padded_chunks import side_by_side
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Array, Feed, Lowered, PaddedAxis, State
from compiler.passes import make_pass
from compiler.states.kept_frames import keep_newest
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite import Runtime, Stream
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.golden import npz_from_golden
from tests.kit.graphs import parse
from tests.runtime_lite.bundles import plain_golden, write_bundle

WIDTH, ROWS, CHUNK = 4, 3, 4
PASSES = ("simplify", "carry_contexts", "pad_axes", "window_states", "project_positions")
BEHIND = ("pack_states", "simplify")


class Unlike(Exception):
    """A ring answers otherwise than the window."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A random step: its graph before any pass, and frames of its calls, None for up to `CHUNK`."""

    lowered: Lowered
    step: int | None
    is_spoiled: bool


def drawn(seed: int) -> Drawn:
    """The graph of a seed."""
    random = np.random.default_rng(seed)
    step = None if random.random() < 0.4 else int(random.integers(1, 4))
    slots, layers, is_spoiled = int(random.integers(2, 9)), int(random.integers(1, 3)), seed % 3 == 2
    frames = "chunk" if step is None else str(step)
    has_context, inputs, outputs, nodes, states = random.random() < 0.5, [], [], [], []
    x = "features"
    if has_context:
        inputs, outputs = [f"float[batch,2,{WIDTH}] context"], [f"float[batch,2,{WIDTH}] next_context"]
        nodes = ["wide = Concat<axis = 1>(context, features)  next_context = Slice(wide, last, end, one)",
                 "channels = Transpose<perm = [0, 2, 1]>(wide)  convolved = Conv(channels, kernel)",
                 "x_0 = Transpose<perm = [0, 2, 1]>(convolved)"]  # fmt: skip
        x, states = "x_0", [State("context", "next_context", None)]
    for layer in range(layers):
        caches = random.choice(["one", "two", "turned"])
        spoil = str(random.choice(["bias", "band", "slope"])) if is_spoiled and layer == layers - 1 else ""
        nodes.append(_attention(layer, x, caches, spoil, slots, random))
        names = [f"kept_{layer}"] if caches == "one" else [f"keys_{layer}", f"values_{layer}"]
        for name in names:
            axis = 2 if caches == "turned" and name.startswith("keys") else 1
            shape = f"batch,{WIDTH},cache" if axis == 2 else f"batch,cache,{WIDTH}"
            inputs.append(f"float[{shape}] {name}")
            outputs.append(f"float[{shape.replace('cache', 'all')}] next_{name}")
            states.append(State(name, f"next_{name}", axis, "cache"))
        x = f"x_{layer + 1}"
    matrices = {f"w{which}_{layer}": (WIDTH, WIDTH) for layer in range(layers) for which in "qkv"}
    shapes = matrices | {"kernel": (WIDTH, WIDTH, 3)}
    weights = {name: (random.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}
    given = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items())
    text = f"""(float[batch,{frames},{WIDTH}] features, {", ".join([*inputs, given])})
        => (float[batch,{frames},{WIDTH}] scores, {", ".join(outputs)})
    <int64[1] last = {{-2}}, int64[1] end = {{{graphs.END}}}, int64[1] one = {{1}}, int64[1] zero = {{0}},
     int64 none = {{0}}, int64 next = {{1}}, float tenth = {{0.1}}, float low = {{-1e9}}, float nothing = {{0}},
     int64[1] front = {{1}}> {{ {"  ".join(nodes)}  scores = Identity({x}) }}"""
    cache = CacheAxis("cache", slots, step or 1, "real_length", None, added=None if step else "chunk")
    axes = () if step else (PaddedAxis("chunk", "chunk_length"),)
    model = parse(text, weights)
    if step is None:  # as capture leaves it, where a chunk may be of any length
        keep_newest(model, slots, {each.output: each.frames_axis for each in states if each.frames_axis is not None})
    lowered = Lowered("net", model, states=tuple(states), caches=(cache,), batch_axis="batch",
                      data_outputs=("scores",), padded_axes=axes)  # fmt: skip
    return Drawn(lowered, step, is_spoiled)


def _attention(layer: int, x: str, caches: str, spoil: str, slots: int, random: np.random.Generator) -> str:
    """A layer: what it caches, its scores, and what it adds."""
    new = {"keys": f"MatMul({x}, wk_{layer})", "values": f"MatMul({x}, wv_{layer})"}
    if caches == "one":
        nodes = f"""next_kept_{layer} = Concat<axis = 1>(kept_{layer}, {x})
            all_keys_{layer} = MatMul(next_kept_{layer}, wk_{layer})
            all_values_{layer} = MatMul(next_kept_{layer}, wv_{layer})
            turned_{layer} = Transpose<perm = [0, 2, 1]>(all_keys_{layer})"""
    else:
        of_keys = f"Concat<axis = 1>(keys_{layer}, new_keys_{layer})"
        turned = f"turned_{layer} = Transpose<perm = [0, 2, 1]>(next_keys_{layer})"
        if caches == "turned":
            of_keys = f"Concat<axis = 2>(keys_{layer}, flat_{layer})"
            turned = f"turned_{layer} = Identity(next_keys_{layer})"
        nodes = f"""new_keys_{layer} = {new["keys"]}  new_values_{layer} = {new["values"]}
            flat_{layer} = Transpose<perm = [0, 2, 1]>(new_keys_{layer})
            next_keys_{layer} = {of_keys}  {turned}
            next_values_{layer} = Concat<axis = 1>(values_{layer}, new_values_{layer})
            all_values_{layer} = Identity(next_values_{layer})"""
    scores = f"raw_{layer}"
    nodes += f"  query_{layer} = MatMul({x}, wq_{layer})  raw_{layer} = MatMul(query_{layer}, turned_{layer})"
    if spoil:
        nodes += f"""  size_{layer} = Shape<start = 2, end = 3>(turned_{layer})
            count_{layer} = Squeeze(size_{layer})  places_{layer} = Range(none, count_{layer}, next)
            from_end_{layer} = Sub(size_{layer}, places_{layer})  far_{layer} = Cast<to = 1>(from_end_{layer})"""
        nodes += {
            "bias": f"  bias_{layer} = Mul(far_{layer}, tenth)  spoiled_{layer} = Add(raw_{layer}, bias_{layer})",
            "slope": f"""  bias_{layer} = Mul(far_{layer}, tenth)  spoiled_{layer} = Mul(raw_{layer}, bias_{layer})""",
            "band": f"""  bound_{layer} = Constant<value_ints = [{random.integers(2, slots + CHUNK + 1)}]>()
                near_{layer} = Less(from_end_{layer}, bound_{layer})
                banded_{layer} = Where(near_{layer}, raw_{layer}, low)  spoiled_{layer} = Identity(banded_{layer})""",
        }[spoil]
        scores = f"spoiled_{layer}"
    nodes += (
        f"  weights_{layer} = Softmax<axis = 2>({scores})  mixed_{layer} = MatMul(weights_{layer}, all_values_{layer})"
    )
    if random.random() < 0.3:
        nodes += f"""  best_{layer} = ReduceMax<keepdims = 1>(mixed_{layer}, front)
            more_{layer} = Sub(mixed_{layer}, best_{layer})"""
        return nodes + f"  x_{layer + 1} = Add({x}, more_{layer})"
    return nodes + f"  x_{layer + 1} = Add({x}, mixed_{layer})"


def windows_of(graph: Drawn) -> Lowered:
    """The graph with windows that are replaced.

    Raises:
        Refused: a pass does not take it.
    """
    lowered = dataclasses.replace(graph.lowered, model=graphs.clone(graph.lowered.model))
    for name in PASSES:
        lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def rings_of(window: Lowered, *, is_packed: bool) -> Lowered:
    """A graph with windows, as one with rings.

    Raises:
        Refused: the order of its frames counts.
    """
    lowered = dataclasses.replace(window, model=graphs.clone(window.model))
    for name in ("overwrite_states", *(BEHIND if is_packed else ())):
        lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def feeds_of(graph: Drawn, random: np.random.Generator, count: int) -> list[Feed]:
    """Calls of one row."""
    sizes = [graph.step or int(random.integers(1, CHUNK + 1)) for _ in range(count)]
    return [{"features": random.standard_normal((1, size, WIDTH)).astype(np.float32)} for size in sizes]


def compare(graph: Drawn, window: Lowered, ring: Lowered, random: np.random.Generator, *, is_served: bool) -> None:
    """Rows of different ages as rings against each alone as a window; poison in padding; served.

    Raises:
        Unlike: an answer or a state differs.
        GateFailed: poison is seen.
    """
    rows = [feeds_of(graph, random, 14) for _ in range(ROWS)]
    starts = [0, *(int(each) for each in random.integers(0, 9, ROWS - 1))]
    alone = [Runner(window, session_of(window.model), 1) for _ in rows]
    truth = [[runner.step(feed)["scores"] for feed in feeds] for runner, feeds in zip(alone, rows, strict=True)]
    runner = Runner(ring, session_of(ring.model), ROWS, fill=float(random.choice([0.0, 1e30, np.nan])))
    idle = {name: np.zeros_like(array) for name, array in rows[0][0].items()}
    for call in range(14):
        for row in [row for row, start in enumerate(starts) if start == call]:
            runner.lengths = {name: np.where(np.arange(ROWS) == row, 0, each) for name, each in runner.lengths.items()}
            for state in ring.states:
                runner.states[state.input] = runner.states[state.input].copy()
                runner.states[state.input][row] = runner.initial(state)[row]
        feeds = [rows[row][call - start] if call >= start else idle for row, start in enumerate(starts)]
        got = runner.step(side_by_side(ring, feeds))["scores"]
        for row, start in enumerate(starts):
            if call >= start:
                expected = truth[row][call - start]
                _require_close(got[row : row + 1, : expected.shape[1]], expected, f"row {row} at call {call}")
    check_invariance(Runner(ring, session_of(ring.model), ROWS), rows[0][:9])
    if is_served:
        _compare_served(ring, rows, starts, truth)


def _compare_served(
    ring: Lowered, rows: Sequence[Sequence[Feed]], starts: Sequence[int], truth: Sequence[Sequence[Array]]
) -> None:
    """Streams that begin at different calls, some of which go back to a snapshot on the way."""
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        model = runtime.load(str(write_step(Path(folder), ring, {"batch": (1, 2, ROWS)})))
        streams: dict[int, Stream] = {}
        for call in range(14):
            now = [row for row, start in enumerate(starts) if start <= call]
            streams |= {row: model.open_stream() for row in now if row not in streams}
            kept = {row: streams[row].snapshot() for row in now if (row + call) % 4 == 0}
            for row, snapshot in kept.items():
                streams[row].push(rows[row][0])
                streams[row].restore(snapshot)
            tickets = {row: streams[row].submit(rows[row][call - starts[row]]) for row in now}
            for row, ticket in tickets.items():
                _require_close(ticket.result()["scores"], truth[row][call - starts[row]], f"served {row} at {call}")


def write_step(folder: Path, lowered: Lowered, buckets: dict[str, tuple[int, ...]]) -> Path:
    """The bundle of a lowered step."""
    buckets |= {each.axis: (CHUNK,) for each in lowered.padded_axes}
    built = OnnxStatic().emit(lowered, buckets)
    golden = npz_from_golden(plain_golden())
    parts = GraphParts(lowered, lowered.parts, buckets, OnnxStatic.name, built, b"{}\n", golden)
    record = graph_record("net", parts)
    files = {name: bytes(content) for name, content in built.files.items()}
    return write_bundle(folder, {"net": record}, {**files, record.golden: golden, record.certificate: b"{}\n"})


def _require_close(got: Array, expected: Array, what: str) -> None:
    if got.shape != expected.shape or not np.allclose(got, expected, rtol=1e-4, atol=1e-4):
        raise Unlike(f"{what}: expected {expected.ravel()[:4]}, got {got.ravel()[:4]}")


def outcome_of(seed: int) -> str:
    """What becomes of the graph of a seed: `ring`, `refused` or what is wrong."""
    graph = drawn(seed)
    try:
        window = windows_of(graph)
        ring = rings_of(window, is_packed=seed % 4 == 1)
    except Refused as refused:
        return f"refused: {refused.message}"
    try:
        compare(graph, window, ring, np.random.default_rng(seed), is_served=seed % 5 == 0)
    except (Unlike, GateFailed) as failed:
        return f"unsound: {failed}"
    return "spoiled ring" if graph.is_spoiled else "ring"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count what becomes of graphs; 1 if any answers otherwise than its window."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.ring_steps", description=__doc__)
    parser.add_argument("count", type=int)
    count: int = parser.parse_args(arguments).count
    found: collections.Counter[str] = collections.Counter()
    for seed in range(count):
        outcome = outcome_of(seed)
        kind = outcome.partition(":")[0]
        found[kind] += 1
        if kind == "unsound":
            print(seed, outcome, flush=True)
    print(", ".join(f"{kind} {number}" for kind, number in sorted(found.items())))
    return int(found["unsound"] > 0)


if __name__ == "__main__":
    sys.exit(main())
