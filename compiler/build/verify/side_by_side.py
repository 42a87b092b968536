"""Compares the speed of bundles of the same graphs on this machine, alternating their calls in each bucket."""

from collections.abc import Mapping
from pathlib import Path

from compiler.base.records.build_report import RatioRow
from compiler.graph.runners.paired_rounds import ROUNDS, Clock, Rounds
from runtime_lite.bench import bucket_call
from runtime_lite.format.manifest import bucket_name
from runtime_lite.runtime import Runtime


def side_by_side(bundles: Mapping[str, Path], clock: Clock | None = None) -> list[RatioRow]:
    """Return the time of a call of every bundle over that of the first, on one thread, with all rows and slots in use.

    Args:
        bundles: folders by name; all have the same graphs and buckets.
        clock: returns seconds; None for the CPU time of the calling thread.
    """
    rows = []
    with Runtime() as runtime:
        models = [runtime.load(path) for path in bundles.values()]
        first, *others = bundles
        for name, graph in models[0].bundle.manifest.graphs.items():
            for artifact_number, artifact in enumerate(graph.artifacts):
                runners = [model.runner(name) for model in models]
                calls = [bucket_call(runner, runner.graph.artifacts[artifact_number]) for runner in runners]
                rounds = Rounds(calls) if clock is None else Rounds(calls, clock)
                rounds.more(ROUNDS)
                for number, label in enumerate(others, 1):
                    ratio = rounds.ratio(pair=(number, 0))
                    sizes = bucket_name(artifact.sizes)
                    rows.append(RatioRow(name, sizes, label, first, ratio.median, ratio.low, ratio.high))
    return rows
