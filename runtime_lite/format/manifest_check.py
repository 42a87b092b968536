"""Checks that the records of a manifest agree with each other, before anything of the bundle is used."""

import itertools
import math
from collections.abc import Mapping

from runtime_lite.errors import show
from runtime_lite.format.arrays import holds
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.formula import parse_formula
from runtime_lite.format.initial_value import Number, numbers_of_initial, shape_of_initial
from runtime_lite.format.manifest import (
    COSTS_FILE,
    ITEM_BYTES,
    MANIFEST_FILE,
    Artifact,
    Graph,
    Latency,
    Manifest,
    State,
    Tensor,
    bucket_name,
    tensor_bytes,
)
from runtime_lite.format.voice_check import check_voice
from runtime_lite.format.wiring_check import check_wiring

MAX_DIMENSION = 2**31 - 1
MAX_TENSOR_BYTES = 4 * 2**30
MAX_TOTAL_BYTES = 64 * 2**30
MAX_ARTIFACTS = 1024  # of one graph; with MAX_FORMULAS it bounds the time that a check takes
MAX_FORMULAS = 64


def check_manifest(manifest: Manifest) -> None:
    """Check that files, graphs, axes, states, caches, artifacts, wires and the voice agree with each other.

    Raises:
        BundleRefused: they do not.
    """
    _check_files(manifest)
    for name, graph in manifest.graphs.items():
        _check_graph(f"{MANIFEST_FILE}.graphs.{name}", graph)
    check_wiring(f"{MANIFEST_FILE}.wiring", manifest)
    check_voice(f"{MANIFEST_FILE}.voice", manifest)
    _check_latencies(manifest)


def _check_latencies(manifest: Manifest) -> None:
    """Check that the graphs of a model with several latencies have different ones, and are not wired."""
    known: dict[Latency, str] = {}
    for name, graph in manifest.graphs.items():
        where = f"{MANIFEST_FILE}.graphs.{name}.latency"
        if graph.latency is None:
            continue
        if graph.latency.of in manifest.graphs:
            refuse(where, "a name that no graph has", show(graph.latency.of))
        if known.setdefault(graph.latency, name) != name:
            refuse(where, "another latency than that of every other graph", f"that of {known[graph.latency]!r}")
        if any(name in (wire.from_graph, wire.to_graph) for wire in manifest.wiring):
            refuse(where, "none in a graph that is wired", show(graph.latency.name))


def _check_files(manifest: Manifest) -> None:
    """Check that file names cannot collide, that sizes are within the limits, and that all named files are listed."""
    where = f"{MANIFEST_FILE}.files"
    spellings: dict[str, str] = {}
    for path in [MANIFEST_FILE, COSTS_FILE, *manifest.files]:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            prefix = "/".join(parts[:depth])
            known = spellings.setdefault(prefix.lower(), prefix)
            if known != prefix:
                refuse(where, "names that differ in more than case", f"{known!r} and {prefix!r}")
            if known in manifest.files and depth < len(parts):
                refuse(where, "a name to be a file or a folder", f"{known!r} as both")
    for path in (MANIFEST_FILE, COSTS_FILE):
        if path in manifest.files:
            refuse(where, f"every file but {MANIFEST_FILE} and {COSTS_FILE}", f"{path!r}")
    total_bytes = sum(entry.bytes for entry in manifest.files.values())
    if total_bytes > MAX_TOTAL_BYTES:
        refuse(where, f"at most {MAX_TOTAL_BYTES} bytes in all", f"{total_bytes}")
    named = [("receipts", manifest.receipts), ("recipe", manifest.recipe)]
    for name, graph in manifest.graphs.items():
        named += [(f"graphs.{name}.golden", graph.golden), (f"graphs.{name}.certificate", graph.certificate)]
        if graph.engine is not None:
            named += [(f"graphs.{name}.engine", path) for path in (graph.engine.plan, *graph.engine.files.values())]
        named += [(f"graphs.{name}.artifacts", path) for item in graph.artifacts for path in (item.file, *item.files)]
    for place, path in named:
        if path not in manifest.files:
            refuse(f"{MANIFEST_FILE}.{place}", "a file listed under 'files'", repr(path))


def _check_graph(where: str, graph: Graph) -> None:
    """Check that the records of one graph agree with each other."""
    tensors = {tensor.name: tensor for tensor in graph.inputs + graph.outputs}
    if len(tensors) != len(graph.inputs) + len(graph.outputs):
        refuse(where, "every input and output name once", "a name twice")
    if graph.batch_axis is not None and graph.batch_axis not in graph.axes:
        refuse(
            f"{where}.batch_axis",
            f"one of the axes ({', '.join(graph.axes) or 'none'}) or null",
            show(graph.batch_axis),
        )
    if not any(tensor.role == "data" for tensor in graph.outputs):
        refuse(f"{where}.outputs", "an output of role 'data'", "none")
    for tensor in tensors.values():
        _check_shape(f"{where}.{tensor.name}.shape", graph, tensor)
        _check_range(f"{where}.{tensor.name}.range", graph, tensor)
    fed = {size for tensor in graph.inputs if tensor.role == "data" for size in tensor.shape}
    if unfed := sorted(graph.axes.keys() - fed - {graph.batch_axis}):
        refuse(f"{where}.axes", "axes that an input of role 'data' has, their sizes come from the feed", repr(unfed[0]))
    if not graph.rows_independent and graph.row_buckets[-1] > 1:
        buckets = ", ".join(str(size) for size in graph.row_buckets)
        expected = f"true for the buckets {buckets} of {graph.batch_axis!r}"
        refuse(f"{where}.rows_independent", expected, "false")
    _check_artifacts(where, graph)
    _check_engine(f"{where}.engine", graph)
    _check_axes(where, graph)
    _check_sizes(where, graph)
    _check_states(where, graph)
    _check_caches(where, graph)
    _check_flush(where, graph)
    _check_lengths(where, graph, tensors)
    _check_shared_files(where, graph)


def _check_shape(where: str, graph: Graph, tensor: Tensor) -> None:
    names = [size for size in tensor.shape if size in graph.axes]
    if len(set(names)) != len(names):
        refuse(where, "every axis name once", show(list(tensor.shape)))
    for size in tensor.shape:
        axes = parse_formula(size).axes if isinstance(size, str) else frozenset()
        if unknown := sorted(axes - graph.axes.keys()):
            refuse(where, f"axes declared under 'axes' ({', '.join(graph.axes) or 'none'})", repr(unknown[0]))
        if size in graph.axes or isinstance(size, int):
            continue
        if tensor.role != "data" or tensor in graph.inputs:
            refuse(where, "formulas in outputs of role 'data' only", show(size))
        if not axes or graph.batch_axis in axes:
            refuse(where, f"formulas over axes other than {graph.batch_axis!r}", show(size))
    if graph.batch_axis is None or graph.batch_axis in names:
        return
    if tensor in graph.outputs or tensor.role != "data":
        refuse(where, f"the axis {graph.batch_axis!r}, which the graph declares", show(list(tensor.shape)))
    if any(graph.axes[str(name)].length_input is not None for name in names):
        refuse(where, f"the axis {graph.batch_axis!r} beside an axis with a length per row", show(list(tensor.shape)))


def _check_range(where: str, graph: Graph, tensor: Tensor) -> None:
    """Check that only inputs of callers have a range, and that the runtime's own values lie within it."""
    if tensor.range is None:
        return
    if tensor.role != "data" or tensor not in graph.inputs or tensor.dtype == "bool":
        refuse(where, "null but for numbers that callers feed", show(list(tensor.range)))
    low, high = tensor.range
    if low > high or not (_holds(tensor.dtype, low) and _holds(tensor.dtype, high)):
        refuse(where, f"the smaller number first, and numbers that {tensor.dtype} holds", show([low, high]))
    flushed = graph.flush_values.get(tensor.name, 0.0)
    if tensor.name in graph.flush and not low <= flushed <= high:
        refuse(where, f"the number {flushed:g} in it, which completes a stream", show([low, high]))


def _check_artifacts(where: str, graph: Graph) -> None:
    count = math.prod(len(axis.buckets) for axis in graph.axes.values())
    if len(graph.artifacts) > MAX_ARTIFACTS:
        refuse(f"{where}.artifacts", f"at most {MAX_ARTIFACTS}", str(len(graph.artifacts)))
    if len(graph.artifacts) != count:
        refuse(f"{where}.artifacts", "one per combination of buckets", f"{len(graph.artifacts)} for {count}")
    for artifact in graph.artifacts:
        if set(artifact.sizes) != set(graph.axes):
            refuse(f"{where}.artifacts", f"sizes for the axes {sorted(graph.axes)}", show(dict(artifact.sizes)))
        if unknown := [axis for axis, size in artifact.sizes.items() if size not in graph.axes[axis].buckets]:
            refuse(f"{where}.artifacts", f"a bucket of axis {unknown[0]!r}", str(artifact.sizes[unknown[0]]))
    if len({bucket_name(artifact.sizes) for artifact in graph.artifacts}) != count:
        refuse(f"{where}.artifacts", "every combination of buckets once", "one twice")


def _check_shared_files(where: str, graph: Graph) -> None:
    """Check that artifacts that share a file differ only in their number of rows."""
    first: dict[str, Artifact] = {}
    for artifact in graph.artifacts:
        like = first.setdefault(artifact.file, artifact)
        differ = {axis for axis, size in artifact.sizes.items() if like.sizes[axis] != size}
        if differ - {graph.batch_axis} or set(like.files) != set(artifact.files):
            expected = f"artifacts that share {show(artifact.file)} to differ in their rows alone"
            refuse(f"{where}.artifacts", expected, show([dict(like.sizes), dict(artifact.sizes)]))


def _check_engine(where: str, graph: Graph) -> None:
    """Check that every graph file has its own engine if engines are built, and none if they are not."""
    engine = graph.engine
    if engine is None:
        return
    if engine.status != "built":
        if engine.reason is None:
            refuse(f"{where}.reason", "why the engine is not built", "null")
        if engine.files or engine.built_with:
            refuse(f"{where}.files", "no engine while the status is 'not built'", show(sorted(engine.files)))
        return
    if engine.reason is not None:
        refuse(f"{where}.reason", "null for an engine that is built", show(engine.reason))
    if not engine.built_with:
        refuse(f"{where}.built_with", "what the engine was built with", "nothing")
    if set(engine.files) != {artifact.file for artifact in graph.artifacts}:
        refuse(f"{where}.files", "one engine per graph file", show(sorted(engine.files)))
    if len(set(engine.files.values())) != len(engine.files):
        refuse(f"{where}.files", "an engine of its own per graph file", "one engine for two")


def _check_axes(where: str, graph: Graph) -> None:
    for name, axis in graph.axes.items():
        place = f"{where}.axes.{name}"
        if axis.length_input is None:
            if axis.minimum != 1:
                refuse(f"{place}.minimum", "1 without a length_input", str(axis.minimum))
            if axis.is_held:
                refuse(f"{place}.is_held", "false without a length_input", "true")
        elif name == graph.batch_axis:
            refuse(f"{place}.length_input", "null, free rows need no length", show(axis.length_input))
        elif axis.minimum > axis.buckets[0]:
            refuse(f"{place}.minimum", f"at most the smallest bucket, {axis.buckets[0]}", str(axis.minimum))
        elif axis.is_held and any(not cache.kind.is_given_whole for cache in graph.caches):
            refuse(f"{place}.is_held", "false where calls give new frames alone", "true")


def _check_sizes(where: str, graph: Graph) -> None:
    """Check that every size has a valid value in every artifact, and at the smallest length."""
    names = {size for tensor in graph.inputs + graph.outputs for size in tensor.shape if isinstance(size, str)}
    if len(names - graph.axes.keys()) > MAX_FORMULAS:
        refuse(f"{where}.outputs", f"at most {MAX_FORMULAS} formulas", str(len(names - graph.axes.keys())))
    least = {name: axis.minimum for name, axis in graph.axes.items() if axis.length_input is not None}
    largest: dict[str, int] = {}
    for name in sorted(names):
        formula = parse_formula(name)
        for artifact in graph.artifacts:
            slots, valid = formula.value(artifact.sizes), formula.value({**artifact.sizes, **least})
            if not 1 <= slots <= MAX_DIMENSION or not 0 <= valid <= slots:
                got = f"{slots} at {bucket_name(artifact.sizes)}, {valid} of them valid at the smallest length"
                refuse(f"{where}.outputs", f"valid places within 1 to {MAX_DIMENSION} places for {show(name)}", got)
            largest[name] = max(slots, largest.get(name, 0))
    for tensor in graph.inputs + graph.outputs:
        shape = [largest[size] if isinstance(size, str) else size for size in tensor.shape]
        if tensor_bytes(shape, tensor.dtype) > MAX_TENSOR_BYTES:
            expected = f"a tensor of at most {MAX_TENSOR_BYTES} bytes"
            refuse(f"{where}.{tensor.name}.shape", expected, show(list(tensor.shape)))


def _check_states(where: str, graph: Graph) -> None:
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        declared = {tensor.name: tensor for tensor in tensors if tensor.role == "state"}
        used = [state.input if side == "input" else state.output for state in graph.states]
        if sorted(used) != sorted(declared):
            refuse(
                f"{where}.states", f"every {side} of role 'state' once ({show(sorted(declared))})", show(sorted(used))
            )
        for state, name in zip(graph.states, used, strict=True):
            shape = state.shape if side == "input" else _next_shape(graph, state)
            if (declared[name].shape, declared[name].dtype) != (shape, state.dtype):
                refuse(
                    f"{where}.states.{state.name}",
                    f"the shape and dtype of {side} {name!r}",
                    show([list(shape), state.dtype]),
                )
    for state in graph.states:
        if any(isinstance(size, str) and size != graph.batch_axis for size in state.shape):
            expected = f"integers and the axis {graph.batch_axis!r}, a stream keeps its states over all its feeds"
            refuse(f"{where}.states.{state.name}.shape", expected, show(list(state.shape)))
        _check_initial(f"{where}.states.{state.name}.initial", graph, state)


def _check_initial(where: str, graph: Graph, state: State) -> None:
    """Check that an initial value is one number, or numbers along the state's axes other than rows."""
    shape = shape_of_initial(state.initial)
    if shape and state.cache is not None:
        refuse(where, "one number for a state along a cache", show(list(shape)))
    sizes = [1 if isinstance(size, str) else size for size in state.shape]
    if shape is None or (shape and (len(shape) != len(sizes) or any(map(_is_other, shape, sizes)))):
        got = "lists of different lengths" if shape is None else show(list(shape))
        refuse(where, f"a number, or numbers of shape {show(sizes)}, with 1 for any size", got)
    for number in numbers_of_initial(state.initial):
        if not _holds(state.dtype, number):
            refuse(where, f"a number that {state.dtype} holds", show(number))


def _is_other(size: int, wanted: int) -> bool:
    return size not in (1, wanted)


def _holds(dtype: str, number: Number) -> bool:
    if dtype == "bool":
        return type(number) is bool
    if type(number) is bool:
        return False
    if dtype.startswith("float"):
        return abs(number) <= {"float16": 65504.0, "float32": 3.4e38, "float64": 1.7e308}[dtype]
    bits = 8 * ITEM_BYTES[dtype]
    low, high = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return type(number) is int and low <= number < high


def _next_shape(graph: Graph, state: State) -> tuple[int | str, ...]:
    """Return the shape of a state's output: the whole state, or new frames alone."""
    if graph.kind_of(state).is_given_whole:
        return state.shape
    (cache,) = [each for each in graph.caches if each.axis == state.cache]
    frames = cache.added or cache.step
    return tuple(frames if at == state.frames_axis else size for at, size in enumerate(state.shape))


def _check_caches(where: str, graph: Graph) -> None:
    """Check that every cache axis has its own name and a state, and every state the right axis for it."""
    slots = {cache.axis: cache.slots for cache in graph.caches}
    if len(slots) != len(graph.caches) or slots.keys() & graph.axes.keys():
        names = show([*graph.axes, *(cache.axis for cache in graph.caches)])
        refuse(f"{where}.caches", "a name of its own for every axis", names)
    for state in graph.states:
        place = f"{where}.states.{state.name}"
        if state.cache is None or state.frames_axis is None:
            continue
        if state.cache not in slots:
            refuse(f"{place}.cache", f"one of the cache axes ({', '.join(slots) or 'none'})", show(state.cache))
        if state.frames_axis >= len(state.shape) or state.shape[state.frames_axis] != slots[state.cache]:
            refuse(f"{place}.frames_axis", f"the axis of size {slots[state.cache]}", str(state.frames_axis))
    if idle := sorted(slots.keys() - {state.cache for state in graph.states}):
        refuse(f"{where}.caches", f"a state along {idle[0]!r}", "none")
    for number, cache in enumerate(graph.caches):
        _check_added(f"{where}.caches[{number}].added", graph, cache)
        if not cache.kind.is_given_whole:
            _check_written(f"{where}.caches[{number}]", graph, cache)


def _check_written(where: str, graph: Graph, cache: CacheAxis) -> None:
    """Check that new frames can be written into a cache, and that its kind keeps all frames if it has to."""
    if cache.kind.needs_whole and not cache.is_whole:
        refuse(f"{where}.is_whole", f"true of {cache.kind.name}", "false")
    if cache.mask_input is not None:
        refuse(f"{where}.mask_input", "null where calls give new frames alone", show(cache.mask_input))
    for state in graph.states:
        if state.cache == cache.axis and graph.batch_axis is not None and state.shape[0] != graph.batch_axis:
            expected = f"the axis {graph.batch_axis!r} in front of a state of which calls give new frames alone"
            refuse(f"{where}: {state.name!r}", expected, show(list(state.shape)))


def _check_flush(where: str, graph: Graph) -> None:
    """Check that the chunk that completes a stream fits every input that callers feed, in size and values."""
    for name, value in graph.flush_values.items():
        dtypes = {tensor.name: tensor.dtype for tensor in graph.inputs if tensor.name in graph.flush}
        if name not in dtypes:
            refuse(f"{where}.flush_values", f"inputs that flush names ({show(sorted(dtypes))})", show(name))
        if not holds(dtypes[name], value):
            refuse(f"{where}.flush_values.{name}", f"a number that {dtypes[name]} has", str(value))
    if not graph.flush:
        return
    shapes = {tensor.name: tensor.shape for tensor in graph.inputs if tensor.role == "data"}
    if sorted(graph.flush) != sorted(shapes) or not graph.states:
        refuse(f"{where}.flush", f"every input of role 'data' of a graph with states ({show(sorted(shapes))})",
               show(sorted(graph.flush)))  # fmt: skip
    lengths: dict[str, int] = {}
    for name, count in graph.flush.items():
        along = [size for size in shapes[name] if size in graph.axes and size != graph.batch_axis]
        fits = [graph.axes[str(axis)].minimum <= count <= graph.axes[str(axis)].buckets[-1] for axis in along]
        padded = [graph.axes[str(axis)].length_input is not None for axis in along]
        same = [lengths.setdefault(str(axis), count) == count for axis in along]
        if not along or not all((*fits, *padded, *same)):
            refuse(f"{where}.flush.{name}", "the entries of one chunk along axes with a length per row", str(count))


def _check_added(where: str, graph: Graph, cache: CacheAxis) -> None:
    """Check that the number of frames a call adds follows from known lengths, and is valid at every bucket."""
    if cache.added is None:
        return
    counted = {name: axis for name, axis in graph.axes.items() if axis.length_input is not None}
    if unknown := sorted(parse_formula(cache.added).axes - counted.keys()):
        refuse(where, f"a formula of axes with a length per row ({', '.join(counted) or 'none'})", unknown[0])
    if cache.mask_input is not None:
        refuse(where, "null beside a mask_input", show(cache.added))
    if cache.step != 1:
        refuse(where, "a step of 1 beside it", str(cache.step))
    for sizes in itertools.product(*((axis.minimum, *axis.buckets) for axis in counted.values())):
        frames = parse_formula(cache.added).value(dict(zip(counted, sizes, strict=True)))
        if not 0 <= frames <= MAX_DIMENSION:
            refuse(where, f"0 to {MAX_DIMENSION} frames at every bucket", str(frames))


def _check_lengths(where: str, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
    """Check the inputs of lengths and masks, which the runtime fills."""
    lengths = [cache.length_input for cache in graph.caches]
    lengths += [axis.length_input for axis in graph.axes.values() if axis.length_input is not None]
    masks = [cache.mask_input for cache in graph.caches if cache.mask_input is not None]
    for role, names in (("length", lengths), ("mask", masks)):
        declared = sorted(tensor.name for tensor in graph.inputs if tensor.role == role)
        if declared != sorted(names):
            refuse(f"{where}.inputs", f"{show(sorted(names))} as the inputs of role {role!r}", show(declared))
    for name in lengths:
        length = tensors[name]
        if length.dtype not in ("int32", "int64") or not _is_rows(graph, length.shape):
            refuse(f"{where}.{name}", "int32 or int64 of shape [rows]", show([list(length.shape), length.dtype]))
    for cache in graph.caches:
        if cache.mask_input is None:
            continue
        mask, shape = tensors[cache.mask_input], (*tensors[cache.length_input].shape, cache.slots + cache.step)
        if mask.dtype != "float32" or mask.shape != shape:
            got = show([list(mask.shape), mask.dtype])
            refuse(f"{where}.{mask.name}", f"float32 of shape {show(list(shape))}", got)


def _is_rows(graph: Graph, shape: tuple[int | str, ...]) -> bool:
    return len(shape) == 1 and (shape[0] == graph.batch_axis or isinstance(shape[0], int))
