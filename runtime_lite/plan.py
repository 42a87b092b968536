"""Implements the command `plan`, which computes how many streams this machine can serve from bundles' cost tables."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from runtime_lite.errors import BadInput
from runtime_lite.format.costs import Cost
from runtime_lite.format.describe import format_table
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.format.reader import Bundle, read_bundle
from runtime_lite.runtime import MAX_WORKERS, check_count
from runtime_lite.scheduling.capacity import Machine, Plan, Work, most_streams, plan_streams
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import Spread, costs_of_graph
from runtime_lite.scheduling.task import Key

AT_THE_LIMIT = 0.01
"""Share of late chunks at which a machine counts as at its limit."""

TELL_S = 2.0
"""Seconds between two progress lines on standard error."""


@dataclass(frozen=True)
class Question:
    """The load and the machine that a plan is computed for.

    Attributes:
        streams: number of streams of each graph with states.
        period_ms: time between two chunks of a stream.
        late_ms: a chunk answered after this time is late; by default `period_ms`, when the next chunk comes.
        workers: runs in flight at once.
        threads: threads of one run; costs must have been measured with the same number.
        requests_per_s: single requests per second for every bucket of a graph without states.
    """

    streams: int
    period_ms: float
    late_ms: float | None = None
    workers: int = 1
    threads: int = 1
    requests_per_s: float = 0.0


def add_arguments(
    parser: argparse.ArgumentParser, positive: Callable[[str], int], number: Callable[[str], float]
) -> None:
    """Add the arguments of `plan` to a parser.

    `positive` and `number` convert text to a positive integer and to a positive number.
    """
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="served together, their costs measured")
    parser.add_argument("--streams", type=positive, required=True, metavar="N", help="streams of every streaming graph")
    parser.add_argument("--period-ms", type=number, required=True, metavar="MS", help="a stream sends a chunk so often")
    parser.add_argument(
        "--late-ms", type=number, metavar="MS", help="late if answered after that (default: the period)"
    )
    parser.add_argument("--workers", type=positive, default=1, help="runs in flight at once (default 1)")
    parser.add_argument("--threads", type=positive, default=1, help="threads of one run (default 1)")
    parser.add_argument("--requests-per-s", type=number, default=0.0, metavar="R", help="of graphs without states")


def plan(options: argparse.Namespace) -> None:
    """Print the table that `plan_bundles` returns for the arguments of the command."""
    names = ("streams", "period_ms", "late_ms", "workers", "threads", "requests_per_s")
    print(plan_bundles(options.bundles, Question(**{name: getattr(options, name) for name in names})))


def plan_bundles(paths: Sequence[Path], question: Question) -> str:
    """Return a table of three plans: the streams asked for, the most in time, and the most at the machine's limit.

    Raises:
        BadInput: no bundle has a graph with states, one has no cost table for this machine, or there are more workers
            than a runtime may have.
        BundleRefused: a bundle cannot be read.
    """
    check_count("workers", question.workers, MAX_WORKERS)
    machine, work = _machine_and_work(paths, question)
    limit = replace(work, admission=False, most_late=AT_THE_LIMIT)
    plans = {
        "asked for": plan_streams(machine, work, question.streams),
        "carried at most": most_streams(machine, work, Progress("those carried at most")),
        f"at the limit, {AT_THE_LIMIT:.0%} late": most_streams(machine, limit, Progress("those at the limit")),
    }
    heads = ("streams", "", "busy", "p50 ms", "p99 ms", "late", "refused", "requests in time")
    table = format_table(heads, [_row(plan, name) for name, plan in plans.items()])
    grain = max(plan.grain for plan in plans.values())
    if grain == 1:
        return table
    return f"{table}\n<= upper bound: one stream was simulated for up to {grain}, on a machine as many times slower"


class Progress:
    """Prints the progress of a long search to standard error, at most once in `TELL_S` seconds.

    Args:
        what: the quantity that is searched for, in words.
    """

    def __init__(self, what: str) -> None:
        """Start the time until the first line."""
        self._what, self._told = what, time.monotonic()

    def __call__(self, streams: int) -> None:
        """Print the number of streams that is tried next, if the last line is old enough."""
        now = time.monotonic()
        if now - self._told > TELL_S:
            self._told = now
            print(f"plan: searching for {self._what}, trying {streams} streams", file=sys.stderr, flush=True)


def _machine_and_work(paths: Sequence[Path], question: Question) -> tuple[Machine, Work]:
    """Return the planner's inputs, read from the cost tables of bundles.

    Raises:
        BadInput: no bundle has a graph with states, or one has no cost table for this machine.
        BundleRefused: a bundle cannot be read.
    """
    costs: dict[Key, dict[int, Spread]] = {}
    streaming: list[Key] = []
    single: list[Key] = []
    with ExitStack() as stack:
        for path in paths:
            bundle = stack.enter_context(read_bundle(path))
            for name, graph in bundle.manifest.graphs.items():
                graph_costs = spreads_of(bundle, name, graph, bundle.costs.get(name, {}), question.threads)
                costs |= graph_costs
                (streaming if graph.states else single).extend(graph_costs)
    if not streaming:
        raise BadInput(
            f"{', '.join(map(str, paths))}: expected a graph with states to plan streams for, got none; "
            "name the bundle of a streaming model"
        )
    period_ns = int(question.period_ms * NS_PER_MS)
    late_ns = period_ns if question.late_ms is None else int(question.late_ms * NS_PER_MS)
    work = Work(tuple(streaming), tuple(single), period_ns, late_ns, requests_per_s=question.requests_per_s)
    return Machine(costs, question.workers), work


def _row(plan: Plan, name: str) -> tuple[str, ...]:
    return (
        str(plan.streams),
        name if plan.holds else f"{name}: not carried",
        f"{plan.utilisation:.0%}",
        f"{'<= ' if plan.grain > 1 else ''}{plan.p50_ms:.2f}",
        f"{'<= ' if plan.grain > 1 else ''}{plan.p99_ms:.2f}",
        f"{plan.late:.2%}",
        str(plan.refused),
        f"{plan.requests_in_time:.1%}",
    )


def spreads_of(
    bundle: Bundle, name: str, graph: Graph, table: Mapping[str, Cost], threads: int
) -> dict[Key, dict[int, Spread]]:
    """Return the costs of a graph, by key and number of rows.

    Args:
        bundle: the bundle of the graph.
        name: graph name.
        graph: the graph's record in the manifest.
        table: costs by bucket name.
        threads: threads of one run.

    Raises:
        BadInput: a bucket has no cost, or one that was measured with another number of threads.
    """
    for artifact in graph.artifacts:
        cost = table.get(bucket_name(artifact.sizes))
        if cost is None or cost.threads != threads:
            got = "none" if cost is None else f"one measured with {cost.threads}"
            raise BadInput(
                f"{bundle.path}: graph {name!r}: expected the cost of {bucket_name(artifact.sizes)} with {threads} "
                f"threads, got {got}; run bench --update-costs --threads {threads} on it"
            )
    by_key = costs_of_graph(str(bundle.path), name, graph, table, threads, alone=not graph.rows_independent)
    return {key: {rows: cost for rows, cost in costs.items() if cost is not None} for key, costs in by_key.items()}
