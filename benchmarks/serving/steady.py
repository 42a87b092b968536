"""Serves nine tenths of the streams that the planner promises for minutes; no chunk may be late.

The planner and the runtime use the same cost table, which is measured for a minute right before, in a copy of the
bundle.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.driven import serve_streams
from benchmarks.serving.planner import costs_as_served, late_share, service_of, work_of
from runtime_lite.format.reader import read_bundle
from runtime_lite.load_test.arrivals import Traffic
from runtime_lite.plan import spreads_of
from runtime_lite.scheduling.capacity import Machine, most_streams

PART = 0.9
"""Of what the planner promises."""

PLANNED_S = 20.0
"""Of traffic, that the planner tries; no more than is then served."""

COST_RUNS = 1000
"""Of each bucket: a minute of them, as a machine that is fast for seconds promises more than it keeps for minutes."""


def measure_steady(path: Path, name: str, lanes: int, period_ms: float, seconds: float) -> list[dict[str, Any]]:
    """Return how the chunks ended.

    Args:
        path: bundle directory.
        name: graph with states.
        lanes: runs at once, of one thread each.
        period_ms: from chunk to chunk; a chunk is late that is answered after the next one came.
        seconds: duration.
    """
    with costs_as_served(path, lanes, COST_RUNS) as measured:
        with read_bundle(measured) as bundle:
            costs = spreads_of(bundle, name, bundle.manifest.graphs[name], bundle.costs[name], 1)
        machine = Machine(costs, lanes)
        planned = most_streams(machine, work_of(machine, period_ms, min(PLANNED_S, seconds))).streams
        traffic = Traffic(seconds, max(round(PART * planned), 1), chunks=100, period_s=period_ms / 1e3)
        served, ends = serve_streams(measured, name, lanes, traffic, 0, service_of(period_ms), announced=True)
    done = [each for each in served if each.outcome == "done"]
    busy = sum(run.ended - run.began for run in ends.executions) / 1e9 / lanes / seconds
    p50, p99, most = np.percentile([each.latency_ms for each in done], (50, 99, 100)) if done else (0.0, 0.0, 0.0)
    return [
        {
            "planned": planned,
            "streams": traffic.streams,
            "chunks": len(served),
            "late": round(late_share(done, traffic.period_s) * len(done)) if done else 0,
            "not answered": len(served) - len(done),
            "p50, ms": f"{p50:.1f}",
            "p99, ms": f"{p99:.1f}",
            "most, ms": f"{most:.1f}",
            "lanes busy": f"{busy:.0%}",
            "rows per run": f"{np.mean([run.rows for run in ends.executions]) if ends.executions else 0.0:.2f}",
        }
    ]
