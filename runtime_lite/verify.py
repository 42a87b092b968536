"""Runs the golden feeds of a bundle on this machine, in every bucket, and measures the error of the outputs.

Each recorded row is run alone in every bucket that holds it, padded where the bucket is larger, so that every graph
file of the bundle is opened and padding is tested, too. The steps of a stream run one after the other from its initial
states; a chunk that does not fit into the bucket runs in the next larger one. The states after the last step are
compared like outputs.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime_lite.calls.feeds import Feed
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Pipeline
from runtime_lite.calls.state import initial_state, oldest_first
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.golden import TOGETHER, Golden, golden_from_npz, golden_of_pipeline
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.model import Model


@dataclass(frozen=True)
class Comparison:
    """The measured error of one output in one bucket, and its limit.

    Attributes:
        graph: graph name, or the names of wired graphs joined by +.
        bucket: sizes of the padded axes, e.g. `batch=4,time=512`; `static` for a graph without padded axes; `together`
            for wired graphs, each of which chooses its own bucket.
        output: output name.
        steps: number of recorded steps that the bucket holds.
        max_abs_error: largest absolute error over all steps; infinite if a value is NaN. For integer and boolean
            outputs, which are classes, the share of entries that differ.
        limit: tolerance times `max(1, max|expected|)` over all steps. For classes, the share of entries that may
            differ: at least one entry, unless none may.
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
    """Yield one comparison per graph, bucket and recorded output, and one per output of wired graphs together.

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
    yield from _compare_together(model)


def answers_together(model: Model, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Return the outputs of the wired graphs of a model for the feeds of one stream.

    Raises:
        BadInput: a feed does not fit.
    """
    if not model.asked().has_states:
        return [model.run(feed) for feed in feeds]
    with model.open_stream() as stream:
        return [stream.push(feed) for feed in feeds]


def _compare_together(model: Model) -> Iterator[Comparison]:
    """Compare the outputs of wired graphs with their recording; yield nothing if the bundle has none."""
    pipeline = model.asked() if model.bundle.manifest.wiring else None
    if not isinstance(pipeline, Pipeline) or TOGETHER not in model.bundle.manifest.files:
        return
    where = f"{model.bundle.path}: {TOGETHER}"
    golden = golden_of_pipeline(model.bundle.read_file(TOGETHER), where, list(pipeline.outputs))
    try:
        answers = answers_together(model, [step.feeds for step in golden.steps])
    except BadInput as error:
        refuse(where, "feeds that fit the wired graphs", str(error))
    for name in pipeline.outputs:
        pairs = [(got[name], step.outputs[name]) for got, step in zip(answers, golden.steps, strict=True)]
        if any(got.shape != expected.shape for got, expected in pairs):
            refuse(f"{where}: {name!r}", f"shape {list(pairs[0][0].shape)}", str(list(pairs[0][1].shape)))
        yield Comparison(pipeline.name, "together", name, len(pairs), *_error_and_limit(pairs, golden))


def _compare(where: str, runner: GraphRunner, golden: Golden, bucket: Mapping[str, int]) -> Iterator[Comparison]:
    """Compare every step that fits into a bucket of the padded axes; other axes have the sizes of the step."""
    pairs: dict[str, list[tuple[Array, Array]]] = {}
    state = initial_state(runner.graph, 1)
    for step in golden.steps:
        feed = runner.check(f"{runner.name}.verify", step.feeds)
        sizes = {**feed.sizes, **bucket}
        if any(feed.sizes[axis] > size for axis, size in bucket.items()):
            if not runner.graph.states:
                continue
            sizes = _holding(runner.graph, feed, bucket)
        ((outputs, state),) = runner.step_streams([feed], [state], sizes)
        outputs |= {carried.output: oldest_first(runner.graph, state, carried) for carried in runner.graph.states}
        for name, expected in step.outputs.items():
            pairs.setdefault(name, []).append((outputs[name], expected))
    if not pairs:
        refuse(where, f"a recorded step that fits into {bucket_name(bucket)}", "only longer ones")
    # the code next to the right one: another processor rounds a number in the middle of two the other way
    coded = {carried.output for carried in runner.graph.states if carried.dtype in ("int8", "uint8")}
    for name, compared in pairs.items():
        error, limit = _error_and_limit(compared, golden, is_coded=name in coded)
        yield Comparison(runner.name, bucket_name(bucket), name, len(compared), error, limit)


def _holding(graph: Graph, feed: Feed, bucket: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a bucket, each enlarged to the next bucket of its axis if the chunk is longer."""
    needed = {axis: max(size, feed.sizes[axis]) for axis, size in bucket.items()}
    return {**feed.sizes, **{axis: next(b for b in graph.axes[axis].buckets if b >= n) for axis, n in needed.items()}}


def _error_and_limit(
    pairs: Sequence[tuple[Array, Array]], golden: Golden, *, is_coded: bool = False
) -> tuple[float, float]:
    """Return the error of outputs against recorded ones, and its limit.

    If `is_coded`, integers stand for numbers and may differ by 1; otherwise integers are classes.
    """
    if pairs[0][1].dtype.kind in "iub" and not is_coded:
        differing = sum(int(np.count_nonzero(got != expected)) for got, expected in pairs)
        count = max(sum(expected.size for _, expected in pairs), 1)
        may_differ = max(round((1.0 - golden.min_equal) * count), 1) if golden.min_equal < 1.0 else 0
        return differing / count, may_differ / count
    peak = max(1.0, *(float(np.abs(expected.astype(np.float64)).max(initial=0.0)) for _, expected in pairs))
    limit = max(golden.tolerance * peak, 1.0 if is_coded else 0.0)
    return max(_max_abs_error(got, expected) for got, expected in pairs), limit


def _max_abs_error(got: Array, expected: Array) -> float:
    """Return the largest absolute difference; infinite if one is NaN."""
    error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
