"""The command `plan`: how many streams this machine carries at which latency, from the cost tables of bundles."""

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
"""Part of the chunks that are late where a machine is said to be at its limit."""

TELL_S = 2.0
"""From line to line on standard error while a search goes on."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        streams: streams per graph with states.
        period_ms: each sends a chunk so often.
        late_ms: a chunk answered later than this is late; None for a period, when the next one comes.
        workers: runs in flight at once.
        threads: threads of one run; costs must have been measured with as many.
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
    """Add what `plan` takes; `positive` and `number` read a positive integer and a positive number."""
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
    """Print what `plan_bundles` finds."""
    names = ("streams", "period_ms", "late_ms", "workers", "threads", "requests_per_s")
    print(plan_bundles(options.bundles, Question(**{name: getattr(options, name) for name in names})))


def plan_bundles(paths: Sequence[Path], question: Question) -> str:
    """Return a table: the streams asked for, the most that are carried, and the most at the limit of the machine.

    Raises:
        BadInput: no bundle has a graph with states, one has no cost table for this machine, or no runtime has so many
            workers.
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
    """Tells on standard error what a search tries, once it takes long.

    Args:
        what: is searched for.
    """

    def __init__(self, what: str) -> None:
        """Start without a line."""
        self._what, self._told = what, time.monotonic()

    def __call__(self, streams: int) -> None:
        """Hear of the number that is tried next."""
        now = time.monotonic()
        if now - self._told > TELL_S:
            self._told = now
            print(f"plan: searching for {self._what}, trying {streams} streams", file=sys.stderr, flush=True)


def _machine_and_work(paths: Sequence[Path], question: Question) -> tuple[Machine, Work]:
    """Return what the planner takes, from the cost tables of bundles.

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
                found = spreads_of(bundle, name, graph, bundle.costs.get(name, {}), question.threads)
                costs |= found
                (streaming if graph.states else single).extend(found)
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
    """Return every key of a graph with its costs by rows.

    Args:
        bundle: of the graph.
        name: graph name.
        graph: its record.
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
    found = costs_of_graph(str(bundle.path), name, graph, table, threads, alone=not graph.rows_independent)
    return {key: {rows: cost for rows, cost in costs.items() if cost is not None} for key, costs in found.items()}
