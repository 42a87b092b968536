"""Runs the golden feeds of a bundle on this machine, in every bucket, and measures how far the outputs are off.

Each recorded row is run alone in its bucket, padded with free rows where the bucket is larger, so that every graph file
that ships is opened and the padding is exercised as well. Streams are chained from their initial states, and the states
after the last step are compared like outputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime_lite.arrays import Array
from runtime_lite.golden import Golden, golden_from_npz
from runtime_lite.manifest import BATCH_AXIS
from runtime_lite.session import GraphRunner, Model
from runtime_lite.state import initial_state


@dataclass(frozen=True)
class Comparison:
    """What was measured for one output in one batch bucket.

    Attributes:
        graph: graph name.
        bucket: `batch=4`, or `static` for a graph without a batch axis.
        output: output name.
        steps: number of steps in which it is recorded.
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
    """Yield one comparison per graph, batch bucket and recorded output.

    Raises:
        BundleRefused: a golden file or a graph file is not what the manifest says.
    """
    for name, graph in model.bundle.manifest.graphs.items():
        where = f"{model.bundle.path}: {graph.golden}"
        golden = golden_from_npz(model.bundle.read_file(graph.golden), where, graph)
        batched = BATCH_AXIS in graph.axes
        for batch_size in graph.axes[BATCH_AXIS].buckets if batched else (1,):
            yield from _compare(model.runner(name), golden, batch_size, f"batch={batch_size}" if batched else "static")


def _compare(runner: GraphRunner, golden: Golden, batch_size: int, bucket: str) -> Iterator[Comparison]:
    errors: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {}
    state = initial_state(runner.graph, 1)
    for step in golden.steps:
        feed = runner.check(f"{runner.name}.verify", step.feeds)
        outputs, state = runner.step_in_bucket(feed, state, batch_size)
        outputs |= {carried.output: state.values[carried.input] for carried in runner.graph.states}
        for name, expected in step.outputs.items():
            errors.setdefault(name, []).append(_max_abs_error(outputs[name], expected))
            peaks.setdefault(name, []).append(float(np.abs(expected.astype(np.float64)).max(initial=0.0)))
    for name, found in errors.items():
        limit = golden.tolerance * max(1.0, *peaks[name])
        yield Comparison(runner.name, bucket, name, len(found), max(found), limit)


def _max_abs_error(got: Array, expected: Array) -> float:
    error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
