"""Runs the golden feeds of a bundle on this machine, in every bucket, and measures how far the outputs are off.

Each recorded row is run alone in every bucket that holds it, padded where the bucket is larger, so that every graph
file that ships is opened and the padding is exercised as well. Streams are chained from their initial states, chunks
that a bucket does not hold run in the next one, and the states after the last step are compared like outputs.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.golden import Golden, golden_from_npz
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.model import Model


@dataclass(frozen=True)
class Comparison:
    """What was measured for one output in one bucket.

    Attributes:
        graph: graph name.
        bucket: `batch=4,time=512`: the axes that are padded; `static` for a graph without any.
        output: output name.
        steps: number of recorded steps that the bucket holds.
        max_abs_error: over all steps; infinite when a value is NaN.
        limit: tolerance times `max(1, max|expected|)` over all steps.
    """

    graph: str
    bucket: str
    output: str
    steps: int
    max_abs_error: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the error is within the limit."""
        return self.max_abs_error <= self.limit


def verify_model(model: Model) -> Iterator[Comparison]:
    """Yield one comparison per graph, bucket and recorded output.

    Raises:
        BundleRefused: a golden file or a graph file is not what the manifest says, or no recording fits into a bucket.
    """
    for name, graph in model.bundle.manifest.graphs.items():
        where = f"{model.bundle.path}: {graph.golden}"
        golden = golden_from_npz(model.bundle.read_file(graph.golden), where, graph)
        can_pad = [n for n, axis in graph.axes.items() if n == graph.batch_axis or axis.length_input is not None]
        padded = {name: graph.axes[name].buckets for name in can_pad}
        for buckets in itertools.product(*padded.values()):
            yield from _compare(where, model.runner(name), golden, dict(zip(padded, buckets, strict=True)))


def _compare(where: str, runner: GraphRunner, golden: Golden, bucket: Mapping[str, int]) -> Iterator[Comparison]:
    """Compare every step that a bucket of the padded axes holds; the steps decide the sizes of the others."""
    errors: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {}
    state = initial_state(runner.graph, 1)
    for step in golden.steps:
        feed = runner.check(f"{runner.name}.verify", step.feeds)
        sizes = {**feed.sizes, **bucket}
        if any(feed.sizes[axis] > size for axis, size in bucket.items()):
            if not runner.graph.states:
                continue
            sizes = _holding(runner.graph, feed, bucket)
        ((outputs, state),) = runner.step_streams([feed], [state], sizes)
        outputs |= {carried.output: state.values[carried.input] for carried in runner.graph.states}
        for name, expected in step.outputs.items():
            errors.setdefault(name, []).append(_max_abs_error(outputs[name], expected))
            peaks.setdefault(name, []).append(float(np.abs(expected.astype(np.float64)).max(initial=0.0)))
    if not errors:
        refuse(where, f"a recorded step that fits into {bucket_name(bucket)}", "only longer ones")
    for name, found in errors.items():
        limit = golden.tolerance * max(1.0, *peaks[name])
        yield Comparison(runner.name, bucket_name(bucket), name, len(found), max(found), limit)


def _holding(graph: Graph, feed: Feed, bucket: Mapping[str, int]) -> dict[str, int]:
    """The bucket, or of an axis that is too short in it the next one that holds a chunk of the stream."""
    needed = {axis: max(size, feed.sizes[axis]) for axis, size in bucket.items()}
    return {**feed.sizes, **{axis: next(b for b in graph.axes[axis].buckets if b >= n) for axis, n in needed.items()}}


def _max_abs_error(got: Array, expected: Array) -> float:
    error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
