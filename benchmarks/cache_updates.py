"""Times ways of adding one frame to a cache and attending over it, in ONNX Runtime, with and without a shared buffer.

    python -m benchmarks.cache_updates

One attention, 512 cached frames of 64 channels, 16 heads or 4 with four queries each, one thread. A way "in place" has
its output bound to the buffer of its input: operators that only write some entries then copy nothing.
"""

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, Work

FRAMES, CHANNELS, CALLS = 512, 64, 120

ATTEND = """turned = Transpose<perm = [0, 1, 3, 2]>(next_keys)  raw = MatMul(query, turned)  scores = Add(raw, mask)
    weights = Softmax<axis = 3>(scores)  y = MatMul(weights, next_values)"""
IN_PLACE = {"next_keys": "keys", "next_values": "values"}


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to add a frame to a cache and attend over it.

    Attributes:
        nodes: in ONNX text, of `query`, `keys`, `values`, `new_keys`, `new_values`, `mask`, `slot`, `place`, `length`.
        opset: of the standard operators.
        shared: inputs whose buffers outputs are bound to.
    """

    nodes: str
    opset: int = 20
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)


JOIN = """all_keys = Concat<axis = 2>(keys, new_keys)  all_values = Concat<axis = 2>(values, new_values)
    next_keys = Slice(all_keys, one, end, two)  next_values = Slice(all_values, one, end, two)  """
SHIFT = JOIN + ATTEND
SCATTER = (
    f"""next_keys = ScatterND(keys, slot, new_keys)  next_values = ScatterND(values, slot, new_values)  {ATTEND}"""
)
PUT = """next_keys = TensorScatter<axis = 2>(keys, new_keys, place)
    next_values = TensorScatter<axis = 2>(values, new_values, place)  """
WRITE = PUT + ATTEND
GROUPED = """flat_query = Reshape(query, row)  flat_keys = Reshape(new_keys, row)
    flat_values = Reshape(new_values, row)
    y, next_keys, next_values = com.microsoft.GroupQueryAttention<num_heads = HEADS, kv_num_heads = GROUPS>(
        flat_query, flat_keys, flat_values, keys, values, length, total)"""
FUSED = """heads = Reshape(query, apart)
    y = Attention<scale = 1.0>(heads, next_keys, next_values, mask)"""
JOINED_INSIDE = """heads = Reshape(query, apart)  seen = Slice(mask, nil, one, three)
    wide = Concat<axis = 3>(mask, seen)
    y, all_keys, all_values = Attention<scale = 1.0>(heads, new_keys, new_values, wide, keys, values)
    next_keys = Slice(all_keys, one, end, two)  next_values = Slice(all_values, one, end, two)"""
COUNTED = """heads = Reshape(query, apart)  valid = Add(place, one)
    y = Attention<scale = 1.0>(heads, next_keys, next_values, , , , valid)"""
APART = """turned = Transpose<perm = [0, 1, 3, 2]>(keys)  raw = MatMul(query, turned)  old = Add(raw, mask)
    new_turned = Transpose<perm = [0, 1, 3, 2]>(new_keys)  new = MatMul(query, new_turned)
    scores = Concat<axis = 3>(old, new)  weights = Softmax<axis = 3>(scores)
    of_old, of_new = Split<axis = 3>(weights, parts)  from_old = MatMul(of_old, values)
    from_new = MatMul(of_new, new_values)  y = Add(from_old, from_new)"""

WAYS = {
    "join, cut and copy out": Way(SHIFT),
    "ScatterND": Way(SCATTER),
    "ScatterND in place": Way(SCATTER, shared=IN_PLACE),
    "TensorScatter in place": Way(WRITE, 24, IN_PLACE),
    "GroupQueryAttention": Way(GROUPED),
    "GroupQueryAttention in place": Way(GROUPED, shared=IN_PLACE),
    "join, cut, Attention": Way(JOIN + FUSED, 23),
    "Attention that joins, cut": Way(JOINED_INSIDE, 23),
    "TensorScatter in place, Attention": Way(PUT + FUSED, 24, IN_PLACE),
    "TensorScatter in place, Attention of as many frames as are valid": Way(PUT + COUNTED, 24, IN_PLACE),
    "cache and new frame apart, nothing written": Way(APART),
}


def opened(way: Way, rows: int, groups: int, each: int) -> tuple[onnxruntime.InferenceSession, Any]:
    """Return a session of one way, and its buffers."""
    heads, cached = groups * each, f"float[{rows},{groups},{FRAMES},{CHANNELS}]"
    new = f"float[{rows},{groups},1,{CHANNELS}]"
    outputs = ["y", *(name for name in IN_PLACE if f"{name} =" in way.nodes or f"{name}," in way.nodes)]
    results = ", ".join(f"float {name}" for name in outputs)
    nodes = way.nodes.replace("HEADS", str(heads)).replace("GROUPS", str(groups))
    text = f"""<ir_version: 11, opset_import: ["" : {way.opset}, "com.microsoft" : 1]>
    step (float[{rows},{groups},{each},{CHANNELS}] query, {cached} keys, {cached} values, {new} new_keys,
      {new} new_values, float[{rows},1,1,{FRAMES}] mask, int64[{rows},{groups},1,3] slot, int64[{rows}] place,
      int32[{rows}] length, int32[1] total) => ({results})
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{{FRAMES + 1}}}, int64[2] parts = {{{FRAMES}, 1}},
     int64[1] nil = {{0}}, int64[1] three = {{3}},
     int64[4] apart = {{{rows}, {heads}, 1, {CHANNELS}}},
     int64[3] row = {{{rows}, 1, -1}}> {{ {nodes} }}"""
    model = ir.from_onnx_text(text)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    content = onnx.ModelProto.SerializeToString(ir.to_proto(model))
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    binding, random = session.io_binding(), np.random.default_rng(0)
    last = FRAMES - 1
    slot = np.stack(np.broadcast_arrays(*np.ogrid[:rows, :groups], last), -1)[:, :, np.newaxis].astype(np.int64)
    numbers = {"slot": slot, "place": np.full(rows, last), "length": np.full(rows, last, np.int32)}
    numbers |= {"total": np.array([FRAMES], np.int32), "mask": np.zeros((rows, 1, 1, FRAMES), np.float32)}
    buffers = {}
    for given in session.get_inputs():
        drawn = numbers.get(given.name)
        array = random.standard_normal(given.shape, dtype=np.float32) if drawn is None else drawn
        buffers[given.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(given.name, buffers[given.name])
    for name in outputs:
        own = np.zeros((rows, groups, FRAMES, CHANNELS), np.float32)
        if name in IN_PLACE:
            made = buffers[way.shared[name]] if name in way.shared else onnxruntime.OrtValue.ortvalue_from_numpy(own)
            binding.bind_ortvalue_output(name, made)
        else:
            binding.bind_output(name)
    return session, binding


def measured(way: Way, rows: int, groups: int, each: int, calls: int) -> Sequence[float]:
    """Return the 10th, 50th and 90th percentile of the microseconds of a call."""
    session, binding = opened(way, rows, groups, each)
    found = []
    for _ in range(calls):
        started = time.perf_counter()
        session.run_with_iobinding(binding)
        found.append(1e6 * (time.perf_counter() - started))
    return [float(np.quantile(found, at)) for at in (0.1, 0.5, 0.9)]


def main() -> None:
    """Measure every way and print the table."""
    parser = argparse.ArgumentParser(description="Ways of adding one frame to a cache, in ONNX Runtime.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    cases = [(rows, groups, 16 // groups) for rows in options.rows for groups in (16, 4)]
    table = Table("us", *(f"{rows} rows, {groups} heads" for rows, groups, _ in cases))
    for name, way in WAYS.items():
        with command.contender(name):
            found = [measured(way, *case, options.calls) for case in cases]
        table.add_row(name, *(f"{middle:.0f} ({low:.0f}..{high:.0f})" for low, middle, high in found))
    machine = Machine()
    floors = (1e6 * machine.floor_s(Work({"float32": 2 * rows * 16 * FRAMES * CHANNELS}, 0)) for rows, _, _ in cases)
    table.add_row("floor: arithmetic, as caches stay in those of the processor", *(f"{each:.1f}" for each in floors))
    Console(width=150).print(table)


if __name__ == "__main__":
    command.run(main)
