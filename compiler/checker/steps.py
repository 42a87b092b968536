"""Replays the certificate of derived steps: compares the whole and the derived graph value by value, call by call.

The checker knows no rule of what derived them. It runs the whole graph on sequences that the axis names allow, and the
derived one on the same sequences, cut into calls of random lengths, with caches that it keeps itself:

1. Every value of which the certificate says that the derived graph computes a part is that part of it: the new places
   or all places of each of its time axes, call after call.
2. What is cached, and what is answered, keeps its entries when other frames follow: the future is drawn anew, and
   replaced by the largest numbers that the input's type holds, and nothing of the past may move.
3. What is answered moves with no frame that lies further ahead than the certificate says.
4. Where steps count frames and go on without end, sequences are several windows long, and a row answers as before
   beside rows of another age.

Sequences hold the numbers that the graph tells apart, as tokens that it takes for padding: as their beginning, and here
and there. Other axes are as long as is told, as short as may be, and of a length that is drawn.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper  # noqa: TID251 - nothing of the prover's vocabulary

from compiler.checker.graph import STOPPED, Opened, Rejected, Unanswered, Weights, numbers_of, opened, read_by

Array = npt.NDArray[Any]

TOLERANCE = 1.0e-4
"""Of a float value, relative to the largest number in it: kernels sum up rows of other sizes in another order."""

CANCELLED = 1.0e-2
"""Numbers of a part of a value are compared as if they were this share of the value's largest, or of 1, at least: where
they cancel to nearly nothing, their rounding is that of the numbers that they are made of."""

COARSE = {onnx.TensorProto.FLOAT16: 2.0**-6, onnx.TensorProto.BFLOAT16: 2.0**-3}
"""The same where a graph computes in one of these types, sixteen times what separates two numbers that follow each
other: one rounding of an intermediate result is more than all the reordered sums of float32."""

ROUNDINGS = 16
"""Two programs of a value may differ by as many times what one rounding of every weight moves it: of phases, which are
sums over all frames so far, little is left of the precision of their operands."""

MOST_MOVED = 1.0e-2
"""That, relative to the value's largest number, at most: what roundings move further may not differ as far."""

FRAMES = 23
"""Of the sequences that are run; fewer where the certificate holds for fewer."""

MOST_FRAMES = 200
"""Of the sequences of steps that go on without end: longer than the window, if that is shorter than this."""

ROWS = 2
"""Of a batch, and the size of every other axis of which no largest is told."""

MOST_ENTRIES = 64
"""Of an axis besides that of frames, however many the certificate allows."""

FEW = 8
"""Numbers of a constant that the graph may tell apart from others."""

COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""A list of its own: operators that tell numbers apart."""

PLACES = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1}
"""A list of its own: the operand that holds places, by operator."""

PLACED, MANY = 2, 2**15
"""Whole numbers of which nothing is told are below these: where places may follow from them, and where none do."""

ENDS = 0.2
"""The share of whole numbers that are an end of their range."""


PARTS = ("new", "recent", "first", "since", "all", "last", "state", "count")
"""Of an axis of frames: those of a call; those and as many in front of them as masks show that slide along; what lies
in front of all frames, all frames so far, and both; or the last ones so far, as many as are told, with zeros in front
of the first; or the state of a recurrence, or how many frames there were."""


@dataclasses.dataclass(frozen=True)
class _Graphs:
    whole: Opened
    steps: Opened
    rounded: Callable[[], Opened]
    """Opens the whole graph with weights that are one rounding away."""


def check_steps(
    whole: onnx.ModelProto,
    steps: onnx.ModelProto,
    certificate: Mapping[str, Any],
    *,
    seeds: int = 2,
    weights: Weights = MappingProxyType({}),
) -> int:
    """Replay a certificate of derived steps.

    Args:
        whole: the stateless graph, with axis names in the shapes of its inputs.
        steps: the derived graph.
        certificate: `time`, `past`, `longest`, `largest`, `chunk`, `look_ahead`, `first`, `caches` and `values`.
        seeds: number of sequences; one more where other axes have lengths.
        weights: content of the weights that the graphs refer to.

    Returns:
        The number of values that were compared.

    Raises:
        Rejected: a value differs; the message names it.
    """
    values = certificate["values"]
    for cache_or_value in (*certificate["caches"], *values):
        if cache_or_value["value"] not in _names(whole):
            raise Rejected(f"the whole graph has no value {cache_or_value['value']!r}")
    _require_told(whole, steps, certificate)
    _require_conditions(whole, certificate)
    named = [value["value"] for value in values if value["value"] not in _outputs(whole)]
    named += [cache["value"] for cache in certificate["caches"]]
    of_steps = [value["step"] for value in values]
    rounded = functools.cache(lambda: _session(*_with_rounded_weights(whole, named, weights)))
    graphs = _Graphs(_session(whole, named, weights), _session(steps, of_steps, weights), rounded)
    for seed in range(seeds + bool(_other_axes(whole, certificate))):
        _Replay(whole, steps, certificate, graphs, seed).run()
    return len(values)


def _require_told(whole: onnx.ModelProto, steps: onnx.ModelProto, certificate: Mapping[str, Any]) -> None:
    """Require that every input of the steps is one of the whole graph or a cache, and every result has a record."""
    caches = {cache["input"]: cache for cache in certificate["caches"]}
    input_names = {value.name for value in whole.graph.input}
    for value in steps.graph.input:
        if value.name not in input_names and value.name not in caches:
            raise Rejected(f"the derived graph has an input {value.name!r} that is no cache")
    left = {cache["output"] for cache in certificate["caches"]}
    results = {value.name for value in whole.graph.output}
    for value in steps.graph.output:
        if value.name not in left and value.name not in results:
            raise Rejected(f"the derived graph gives {value.name!r}, which the whole graph does not")
    told = {value["step"] for value in certificate["values"]}
    for name in (*results, *left):
        if name not in told:
            raise Rejected(f"the certificate says nothing of the result {name!r}")


CONDITIONS = {"bounded look-ahead", "cached values stay", "places are counted", "along time", "end of stream"}


def _require_conditions(whole: onnx.ModelProto, certificate: Mapping[str, Any]) -> None:
    """Require that every condition is stated, of every result and cached value, as in the values' records."""
    told = certificate["conditions"]
    if set(told) != CONDITIONS:
        raise Rejected(f"the certificate tells {sorted(told)} of the conditions {sorted(CONDITIONS)}")
    reaches = {each["value"]: each["reach"] for each in certificate["values"] if each["value"] in _outputs(whole)}
    if told["bounded look-ahead"] != reaches:
        raise Rejected(f"results read {reaches}, and the certificate tells {told['bounded look-ahead']}")
    if told["cached values stay"] != {each["value"]: each["reach"] for each in certificate["caches"]}:
        raise Rejected("the certificate tells of other cached values than there are")


class _Replay:
    def __init__(
        self, whole: onnx.ModelProto, steps: onnx.ModelProto, certificate: Mapping[str, Any], graphs: _Graphs, seed: int
    ) -> None:
        self.whole, self.steps, self.certificate, self.graphs = whole, steps, certificate, graphs
        self.time, self.past = certificate["time"], certificate["past"]
        self.random = np.random.default_rng(seed)
        self.chunk = max(int(certificate["chunk"]), 1)
        self.recent = int(certificate["recent"])
        least, longest = max(FRAMES, 4 * self.chunk - 1, 3 * self.recent + 2), int(certificate["longest"])
        self.is_endless = any(cache.get("is_count") for cache in certificate["caches"])
        further = max(least, min(longest + self.recent + 2, MOST_FRAMES))
        self.frames = further if self.is_endless else min(least, longest)
        self.told_apart = _told_apart(whole)
        self.sizes: dict[str, int] = {}
        self.feeds: dict[str, Array] = {}
        self.ranges: Mapping[str, tuple[int, int]] = certificate.get("ranges", {})  # of older ones none is told
        self.rounding = _rounding(whole)
        self.answers = self._begun(seed)
        self.moved: dict[str, Array] = {}

    def _dims(self, value: onnx.ValueInfoProto) -> list[str | int]:
        return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]

    def _sizes(self, seed: int) -> Iterator[dict[str, int]]:
        """Yield sizes of other axes: those of the seed, and the largest, should the graph not run with those."""
        largest = _rows(self.whole, self.certificate) | _other_axes(self.whole, self.certificate)
        if seed == 1:
            yield {name: int(self.random.integers(1, size + 1)) for name, size in largest.items()}
        elif seed > 1:
            yield dict.fromkeys(largest, 1)
        yield largest

    def _begun(self, seed: int) -> dict[str, Array]:
        """Return the whole graph's results for a sequence, with the first sizes of other axes at which it runs."""
        names = self.graphs.whole.outputs
        *others, last = self._sizes(seed)
        for sizes in (*others, last):
            self.sizes = {self.time: self.frames, **sizes}
            self.feeds = {
                value.name: self._telling(value, self._drawn(value), is_begun=seed % 2 == 0)
                for value in self.whole.graph.input
            }
            try:
                return self._answered(names, self.feeds)
            except Unanswered:
                if sizes is last:
                    raise
        raise AssertionError("there are always lengths")

    def _telling(self, value: onnx.ValueInfoProto, array: Array, *, is_begun: bool) -> Array:
        """Return a sequence with numbers that the graph compares with in its first row, at the start or scattered."""
        dims = self._dims(value)
        numbers = [False] if array.dtype.kind == "b" else self.told_apart
        if array.dtype.kind in "iu":
            low, high = self._span(value.name)
            numbers = [number for number in numbers if number == int(number) and low <= number <= high]
        if self.time not in dims or not numbers:
            return array
        count = int(self.random.integers(1, self.frames + 1))
        there = np.arange(self.frames) < count if is_begun else self.random.random(self.frames) < 0.4
        chosen = np.array(numbers)[self.random.integers(0, len(numbers), self.frames)].astype(array.dtype)
        frames_last = np.moveaxis(array, dims.index(self.time), -1)
        row = frames_last[0] if array.ndim > 1 else frames_last
        row[..., there] = chosen[there]
        return array

    def _drawn(self, value: onnx.ValueInfoProto) -> Array:
        shape = [each if isinstance(each, int) else self.sizes.get(each, ROWS) for each in self._dims(value)]
        return drawn(self.whole, value, shape, self.ranges, self.random)

    def _span(self, name: str) -> tuple[int, int]:
        return _span(self.whole, name, self.ranges)

    def run(self) -> None:
        """Compare one sequence, whole and in calls; then its beginning with another future."""
        self._in_calls(self.answers)
        self._with_other_futures(self.answers)

    def _answered(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(names, self.graphs.whole.run(names, dict(feeds)), strict=True))
        except STOPPED as error:
            raise Unanswered(
                f"the whole graph does not answer numbers within {self.ranges}: {str(error)[:300]}"
            ) from None

    def _lengths(self) -> Iterator[int]:
        left = self.frames
        first = max(int(self.certificate["first"]), 1)
        while left:
            most = 5 if self.chunk == 1 else 2
            count = min(left, self.chunk * int(self.random.integers(1, most + 1)))
            if left == self.frames and first > 1:
                count = min(left, first)
            yield count
            left -= count

    def _in_calls(self, answers: Mapping[str, Array]) -> None:
        names = self.graphs.steps.outputs
        inputs = {value.name: value for value in self.steps.graph.input}
        states = {
            cache["input"]: self._begun_with(
                inputs[cache["input"]], cache.get("initial", 0)
            )  # of older ones none is told
            for cache in self.certificate["caches"]
        }
        position, calls = 0, []
        for count in self._lengths():
            feed = {value.name: self._chunk(value, position, count) for value in self.whole.graph.input}
            try:
                results = dict(zip(names, self.graphs.steps.run(names, {**feed, **states}), strict=True))
            except STOPPED as error:
                raise Rejected(f"the derived graph does not run behind {position} frames: {str(error)[:300]}") from None
            for cache in self.certificate["values"]:
                self._compare(cache, answers[cache["value"]], results[cache["step"]], position, count)
            calls.append((count, {**feed, **states}, results))
            states = {cache["input"]: results[cache["output"]] for cache in self.certificate["caches"]}
            position += count
        if self.is_endless:
            self._with_other_ages(calls)

    def _with_other_ages(self, calls: Sequence[tuple[int, Mapping[str, Array], Mapping[str, Array]]]) -> None:
        """Require that a row's results do not change where other rows of its call are streams of another age."""
        rows = next(iter(_rows(self.whole, self.certificate)), None)
        first_states, left = (
            {value.name: self._dims(value).index(rows) for value in values if rows in self._dims(value)}
            for values in (self.steps.graph.input, self.steps.graph.output)
        )
        for late, (count, feed, results) in enumerate(calls):
            early = next((earlier_call for earlier_call in calls[:late] if earlier_call[0] == count), None)
            if early is None or self.sizes.get(str(rows), 1) < ROWS:
                continue
            mixed = {name: _first_row_of(early[1][name], feed[name], first_states.get(name)) for name in feed}
            got = dict(zip(left, self.graphs.steps.run(list(left), mixed), strict=True))
            for name, axis in left.items():
                expected = _first_row_of(early[2][name], results[name], axis)
                among = np.concatenate([call[2][name].ravel() for call in calls])
                if not agree(expected, got[name], self.rounding, among):
                    raise Rejected(
                        f"{name!r} moves with the age of other rows, behind {sum(n for n, *_ in calls[:late])} "
                        f"frames: {_difference(expected, got[name])}"
                    )

    def _begun_with(self, value: onnx.ValueInfoProto, initial: Any) -> Array:
        """Return a cache's value at the first call: no frames, or the stated initial numbers."""
        shape = [
            each if isinstance(each, int) else 0 if each == self.past else self.sizes.get(each, ROWS)
            for each in self._dims(value)
        ]
        try:
            numbers = np.broadcast_to(np.asarray(initial, np.float64), shape)
        except (TypeError, ValueError):
            raise Rejected(f"{value.name!r} of shape {shape} cannot begin with what is told") from None
        return numbers.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))

    def _chunk(self, value: onnx.ValueInfoProto, at: int, count: int) -> Array:
        array, dims = self.feeds[value.name], self._dims(value)
        return array.take(range(at, at + count), dims.index(self.time)) if self.time in dims else array

    def _compare(self, told: Mapping[str, Any], whole: Array, part: Array, at: int, count: int) -> None:
        expected = whole
        for axis, which, inside, in_front in told["parts"]:
            inner, before = self._entries(inside), self._sum(in_front)
            if which == "state":
                if at + count < self.frames:
                    return
                continue
            if which == "count":
                expected = np.full(
                    [size for axis_number, size in enumerate(whole.shape) if axis_number != axis] or [1], at + count
                )
                continue
            if which == "last":
                zeros, end = np.zeros_like(expected.take(range(1), axis)).repeat(before, axis), (at + count) * inner
                if expected.shape[axis] != self.frames * inner:
                    raise Rejected(f"{told['value']!r} has no {inner} entries per frame along axis {axis}")
                expected = np.concatenate([zeros, expected], axis).take(range(end, end + before), axis)
                continue
            if which not in PARTS or expected.shape[axis] % ((before + self.frames) * inner):
                raise Rejected(f"the part of {told['value']!r} along axis {axis} is told as {which!r} of {inside}")
            if which == "recent":  # zeros, and what is made of them, lie in front of the frames that there are
                there = min(self.recent, at)
                part = part.take(range(max(part.shape[axis] - there - count, 0), part.shape[axis]), axis)
            starts = {"new": before + at, "since": before, "recent": before + at - min(self.recent, at)}
            places = np.arange(starts.get(which, 0), before if which == "first" else before + at + count)
            split = [*expected.shape[:axis], -1, before + self.frames, inner, *expected.shape[axis + 1 :]]
            taken = expected.reshape(split).take(places, axis + 1)
            expected = taken.reshape([*expected.shape[:axis], -1, *expected.shape[axis + 1 :]])
        if expected.shape != part.shape or not (
            agree(expected, part, self.rounding, whole) or self._is_rounding(told["value"], expected, part, whole)
        ):
            raise Rejected(
                f"{told['step']!r} is not the part of {told['value']!r} for places {at} to {at + count - 1}: "
                f"{_difference(expected, part)}"
            )

    def _is_rounding(self, name: str, expected: Array, part: Array, whole: Array) -> bool:
        """Whether a part of a value differs by no more than roundings of the weights move that value."""
        if expected.dtype.kind != "f":
            return False
        if not self.moved:
            names, session = self.graphs.whole.outputs, self.graphs.rounded()
            self.moved = dict(zip(names, session.run(names, dict(self.feeds)), strict=True))
        with np.errstate(invalid="ignore"):
            moved = _largest(np.abs(self.moved[name].astype(np.float64) - whole))
            differences = np.abs(expected.astype(np.float64) - part)
        allowed = min(ROUNDINGS * moved, MOST_MOVED * _largest(whole))
        return bool(np.all((differences <= allowed) | (expected == part) | (np.isnan(expected) & np.isnan(part))))

    def _entries(self, sizes: Sequence[str]) -> int:
        """Return the product of sizes, each of them a product of numbers and axis names."""
        factors = [factor for size in sizes for factor in size.split("*")]
        return math.prod(int(each) if each.isdigit() else self.sizes.get(each, ROWS) for each in factors)

    def _sum(self, size: str) -> int:
        """Return a sum of products of numbers and axis names."""
        return sum(self._entries([each]) for each in size.split(" + "))

    def _with_other_futures(self, answers: Mapping[str, Array]) -> None:
        """Require that no cached value or result changes with later frames."""
        names = self.graphs.whole.outputs
        watched = {
            (cache["value"], cache["axis"], self._sum(cache["before"]))
            for cache in self.certificate["caches"]
            if not cache["is_state"]
        }
        watched |= {
            (value["value"], axis, self._sum(in_front))
            for value in self.certificate["values"]
            if value["value"] in _outputs(self.whole)
            for axis, *_, in_front in value["parts"]
        }
        first = min(max(int(self.certificate["first"]), 1), self.frames)
        ends = {first, self.frames // 2 if self.frames // 2 > first else first, self.frames - 1}
        for frame in sorted({end // self.chunk * self.chunk if self.chunk > 1 else end for end in ends} - {0}):
            if frame >= self.frames or frame < first:
                continue
            other = self._answers_behind(names, frame)
            for name, axis, in_front in watched:
                before, after = (
                    results_of[name].take(range(in_front + frame), axis) for results_of in (answers, other)
                )
                if not agree(before, after, among=answers[name]):
                    raise Rejected(f"{name!r} moves with frames behind {frame}: {_difference(before, after)}")
        results = {entry for entry in watched if entry[0] in _outputs(self.whole)}
        ahead = int(self.certificate["look_ahead"])
        for place in range(first, min(first + self.chunk, self.frames - ahead - 1)) if self.chunk > 1 else ():
            other = self._answers_behind(names, place + ahead + 1)
            for name, axis, in_front in results:
                before, after = (
                    results_of[name].take(range(in_front + place + 1), axis) for results_of in (answers, other)
                )
                if not agree(before, after, among=answers[name]):
                    raise Rejected(
                        f"{name!r} moves at {place} with frames further ahead than {ahead}: "
                        f"{_difference(before, after)}"
                    )

    def _answers_behind(self, names: Sequence[str], at: int) -> dict[str, Array]:
        """Return the whole graph's results where other frames follow after the first `at`."""
        feeds = {value.name: self._other(value, at) for value in self.whole.graph.input}
        return self._answered(names, feeds)

    def _other(self, value: onnx.ValueInfoProto, at: int) -> Array:
        """Return the same frames up to a position, and other ones behind it."""
        dims = self._dims(value)
        array = self.feeds[value.name]
        if self.time not in dims:
            return array
        axis, drawn = dims.index(self.time), self._telling(value, self._drawn(value), is_begun=False)
        if array.dtype.kind == "f" and value.name not in self.ranges:
            drawn = drawn * np.asarray(100, array.dtype)
        return np.concatenate([array.take(range(at), axis), drawn.take(range(at, self.frames), axis)], axis)


def _first_row_of(first: Array, others: Array, axis: int | None) -> Array:
    """Return the first row of one array, and the other rows of another; the latter where it has no rows."""
    if axis is None:
        return others
    rest = others.take(range(1, others.shape[axis]), axis)
    return np.concatenate([first.take(range(1), axis), rest], axis)


def _rounding(model: onnx.ModelProto) -> float:
    """Return the tolerance between two programs of a graph, from the coarsest type that it computes in."""
    graph = model.graph
    kinds = {each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info, *graph.output)}
    kinds |= {each.data_type for each in graph.initializer}
    return max([TOLERANCE, *(COARSE[each] for each in kinds & COARSE.keys())])


def agree(expected: Array, got: Array, tolerance: float = TOLERANCE, among: Array | None = None) -> bool:
    """Return whether two arrays are equal, or equal but for rounding.

    Args:
        expected: the numbers that a part of a value must have.
        got: the numbers that it has.
        tolerance: relative to the largest number.
        among: the value; None where it is the part.
    """
    if expected.dtype.kind != "f":
        return bool(np.array_equal(expected, got))
    expected, got = expected.astype(np.float64), got.astype(np.float64)  # differences of halves may be beyond these
    least = 0.0 if among is None else CANCELLED * min(_largest(among), 1.0)
    scale = max(_largest(expected), least, 1.0e-6)
    with np.errstate(invalid="ignore"):
        close = np.abs(expected - got) <= tolerance * scale
    return bool(np.all(close | (expected == got) | (np.isnan(expected) & np.isnan(got))))


def _largest(array: Array) -> float:
    """Return the largest magnitude of the finite numbers; 0 where there is none."""
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _difference(expected: Array, got: Array) -> str:
    if expected.shape != got.shape:
        return f"shape {list(got.shape)} instead of {list(expected.shape)}"
    if expected.dtype.kind != "f":
        return "other numbers"
    with np.errstate(invalid="ignore"):
        return f"by up to {float(np.nanmax(np.abs(expected - got))):.3g}"


def _names(model: onnx.ModelProto) -> set[str]:
    made = {name for node in model.graph.node for name in node.output}
    return made | {value.name for value in model.graph.input}


def _outputs(model: onnx.ModelProto) -> set[str]:
    return {value.name for value in model.graph.output}


def _rows(model: onnx.ModelProto, certificate: Mapping[str, Any]) -> dict[str, int]:
    """Return a few rows, or fewer where the certificate holds for fewer, by the name of inputs' first axis."""
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    names = {dims[0].dim_param for dims in shapes if dims and dims[0].dim_param} - {certificate["time"]}
    return {name: min(certificate["largest"].get(name, ROWS), ROWS + 1) for name in sorted(names)}


def _other_axes(model: onnx.ModelProto, certificate: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of axes that are neither rows nor frames, by name."""
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    names = {dim.dim_param for dims in shapes for dim in list(dims)[1:] if dim.dim_param}
    names -= {certificate["time"], *_rows(model, certificate)}
    return {name: min(certificate["largest"].get(name, ROWS), MOST_ENTRIES) for name in sorted(names)}


def _told_apart(model: onnx.ModelProto) -> list[float]:
    """Return the numbers that the graph compares with; zero for boolean casts."""
    few = [tensor for tensor in model.graph.initializer if len(tensor.dims) <= 1 and not tensor.external_data]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in few}
    numbers: set[float] = set()
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type in COMPARING:
            arrays = [constants[name] for name in node.input if name in constants]
            numbers |= {float(entry) for array in arrays if array.size <= FEW for entry in array.reshape(-1)}
        elif node.op_type == "Cast" and helper.get_node_attr_value(node, "to") == onnx.TensorProto.BOOL:
            numbers.add(0.0)
    return sorted(number for number in numbers if math.isfinite(number))


def _session(model: onnx.ModelProto, names: Sequence[str], weights: Weights) -> Opened:
    """Return a session that also outputs other values, without fusion."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = _outputs(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in known)
    return opened(copy, weights)


def _with_rounded_weights(
    model: onnx.ModelProto, names: Sequence[str], weights: Weights
) -> tuple[onnx.ModelProto, Sequence[str], Weights]:
    """Return a graph whose weights are one rounding away from a graph's, up or down at random."""
    random, copy = np.random.default_rng(0), onnx.ModelProto()
    copy.CopyFrom(model)

    def rounded(array: Array) -> Array:
        if array.dtype not in (np.float16, np.float32, np.float64) or array.size == 1:
            return array  # single numbers are exponents and bounds, too: no power of -1 is known but whole ones
        signs = np.where(random.random(array.shape) < 0.5, -1, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(array * (1 + signs * np.finfo(array.dtype).eps), array.dtype)

    elsewhere = {}
    for tensor in copy.graph.initializer:
        array = rounded(numbers_of(tensor, weights))
        if tensor.external_data:
            elsewhere[tensor.name] = array
            tensor.external_data[0].value = tensor.name
        else:
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return copy, names, elsewhere


def drawn(
    model: onnx.ModelProto,
    value: onnx.ValueInfoProto,
    shape: Sequence[int],
    ranges: Mapping[str, tuple[int, int]],
    random: np.random.Generator,
) -> Array:
    """Return random numbers for an input.

    Args:
        model: the graph that has it.
        value: the input.
        shape: of the numbers.
        ranges: the whole numbers that inputs hold, by name; small ones where none are told, and they may be places.
        random: draws them.
    """
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if kind.kind == "b":
        return random.random(shape) < 0.5
    if kind.kind == "f" and value.name not in ranges:
        return random.standard_normal(shape).astype(kind)
    return _within(_span(model, value.name, ranges), shape, random).astype(kind)


def _span(model: onnx.ModelProto, name: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the smallest and the largest number of an input: declared, or small where it may be an index."""
    low, high = ranges.get(name, (0, (PLACED if _may_be_places(model, name) else MANY) - 1))
    return low, high


def _within(span: Sequence[int], shape: Sequence[int], random: np.random.Generator) -> Array:
    """Return random integers of a range, including its ends."""
    low, high = span
    numbers, ends = random.integers(low, high + 1, shape), random.choice(np.array([low, high]), shape)
    return np.where(random.random(shape) < ENDS, ends, numbers)


def _may_be_places(model: onnx.ModelProto, name: str) -> bool:
    """Whether values computed from an input are used as indices."""
    names = {name}
    for node in model.graph.node:
        if node.op_type in PLACES and node.input[PLACES[node.op_type]] in names:
            return True
        if names & set(read_by(node)) and node.op_type not in ("Shape", "Size"):
            names |= set(node.output)
    return False
