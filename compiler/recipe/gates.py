"""Defines the records of the gates in a recipe, the checks that a build must pass; compiler/build/verify runs them."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field

from compiler.recipe.field_types import FilePath, Name, ObjectName, Positive, Record

EdgeKind = Literal["silence", "constant", "impulse", "full_scale", "smallest"]
"""What an edge feed holds; compiler/build/verify/edge_feeds.py makes them."""


MAX_FORM_LOSS_DB = 1.0
"""A quarter more power of noise than without forms. Roundings that flip make other noise, not more."""


class Tolerance(Record):
    """How far outputs and states may be from the original model's.

    Attributes:
        max_abs: largest difference of real numbers, times the larger of 1 and the largest reference value.
        sqnr_db: smallest ratio of signal to quantisation noise of a tensor of real numbers over all steps, in dB; None
            asks for none.
        min_equal: smallest share of equal entries of a tensor of whole numbers or truths over all steps, which are
            compared as classes.
    """

    max_abs: Annotated[float, Field(gt=0)]
    sqnr_db: float | None = None
    min_equal: Annotated[float, Field(ge=0, le=1)] = 1.0


class LossyTolerance(Tolerance):
    """How far outputs and states may be from the original model's where numbers are rounded on purpose.

    Attributes:
        min_equal: the same; rounding decides between classes that are nearly tied.
    """

    min_equal: Annotated[float, Field(ge=0, le=1)] = 0.99


class DriftGate(Record):
    """The error of a stream must not grow over many chained calls.

    Attributes:
        steps: calls in a row; the verification streams one behind the other, and from the start again.
        max_growth: the error of the second half of the calls, once the caches are full, over that of the first half.
    """

    steps: Annotated[int, Field(ge=8)] = 1000
    max_growth: Annotated[float, Field(ge=1)] = 1.5


class ParityGate(Tolerance):
    """Largest allowed difference to the original model, on outputs and states.

    Attributes:
        chained_steps: calls in a row, each fed with the states of the one before.
        lossy: the limits from the first pass on that rounds on purpose: half precision, int8.
        targets: the limits of what a target writes that rounds on purpose, in place of `lossy`, by the target's kind;
            where several targets are of one kind, by the folder of the bundle.
        max_form_loss_db: largest loss of signal to noise by the target's forms, in dB, where something rounds on
            purpose.
        drift: whether the artefact is run much longer, to see that errors do not grow; for graphs with states.
        edges: the kinds of edge feeds that every comparison runs besides.
    """

    chained_steps: Positive
    lossy: LossyTolerance | None = None
    targets: dict[str, LossyTolerance] | None = None
    max_form_loss_db: Annotated[float, Field(ge=0)] = MAX_FORM_LOSS_DB
    drift: DriftGate | None = None
    edges: tuple[EdgeKind, ...] = get_args(EdgeKind)

    def limits(self, *, lossy: bool) -> Tolerance:
        """Return the tolerance of a graph, by whether it has been rounded on purpose."""
        return self.lossy if lossy and self.lossy is not None else self

    def for_target(self, label: str) -> Self:
        """Return the gate with the limits of one target as its lossy limits.

        Args:
            label: the target's kind, or the folder of its bundle where several are of that kind.
        """
        lossy = (self.targets or {}).get(label, self.lossy)
        return self.model_copy(update={"lossy": lossy, "targets": None})


class TaskGate(Record):
    """The task metric on real recordings, original against bundle.

    Attributes:
        recordings: callable that yields records with `name`, `chunks` (feeds) and `reference` (text).
        decode: callable from a recording's outputs to a transcript.
        metric: callable from references and transcripts to one number, smaller is better.
        max_increase: allowed difference of the metric, bundle minus original.
        identical: whether every transcript must be the same.
        files: files and folders that the three callables read; their content is part of the cache key.
        graph: the graph that hears the recordings; None for the first.
    """

    recordings: ObjectName
    decode: ObjectName
    metric: ObjectName
    max_increase: Annotated[float, Field(ge=0)]
    identical: bool = False
    files: tuple[FilePath, ...] = ()
    graph: Name | None = None


class PipelineGate(Record):
    """Wired graphs together, original after original against the bundle.

    Attributes:
        feeds: callable without arguments that yields streams of feeds of one row, by the names that callers of the
            bundle use: an input that no wire fills by its own name, or `graph.name` where several graphs have it.
        count: streams taken from it.
        max_abs: largest difference of every output, times the larger of 1 and the largest reference value.
        files: files and folders that the callable reads; their content is part of the cache key.
    """

    feeds: ObjectName
    count: Positive
    max_abs: Annotated[float, Field(gt=0)]
    files: tuple[FilePath, ...] = ()


class BudgetGate(Record):
    """Upper bounds of the bundle.

    Attributes:
        size_mb: bytes of all files, in units of 1e6.
        p95_ms: 95th percentile of one call at the smallest bucket, one thread.
        max_time_ratio: time of every bucket's call, as a share of that of the same graph before the first pass that
            rounds; both are timed in turns by one process on one thread, until it is known on which side of the bound
            the median lies.
        max_size_ratio: bytes of the graphs and weights, as a share of the same.
    """

    size_mb: Annotated[float, Field(gt=0)] | None = None
    p95_ms: Annotated[float, Field(gt=0)] | None = None
    max_time_ratio: Annotated[float, Field(gt=0)] | None = None
    max_size_ratio: Annotated[float, Field(gt=0)] | None = None


class Gates(Record):
    """The promises of the build.

    Attributes:
        parity: one gate per graph: what ships is near the original.
        task: the metric of the task on what ships; None runs no task.
        budget: bounds of size and time; None sets none.
        pipeline: the wired graphs together; needed with `wiring`, and only there.
    """

    parity: dict[Name, ParityGate]
    task: TaskGate | None = None
    budget: BudgetGate | None = None
    pipeline: PipelineGate | None = None
