"""Searches for the fastest variants of one graph after its passes, and returns the record of the search."""

import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler.base.records.searches import Search
from compiler.build.search.form_bench import VariantBench
from compiler.build.search.greedy import search_plan
from compiler.build.search.machine_kind import machine_kind
from compiler.graph.runners.stream import Advance, OriginalCall
from compiler.graph.stages import Lowered
from compiler.recipe.gates import ParityGate
from compiler.targets.base import Target

WRITERS = frozenset({"onnx", "onnx-ir"})
"""Packages that graphs are written with, which no time depends on."""


def searched(
    target: Target,
    lowered: Lowered,
    buckets: Mapping[str, tuple[int, ...]],
    gate: ParityGate,
    answers: Callable[[], Sequence[OriginalCall]] | None,
    advance: Advance,
) -> Search:
    """Find the plan of one graph by measurement on this machine.

    Args:
        target: the target, which lists the variants.
        lowered: the graph after all passes.
        buckets: sizes by axis.
        gate: without lossy limits no rounding variant is tried, with them none that is noisier than allowed.
        answers: returns the original's calls on calibration data; None without such data.
        advance: called as the search goes on.
    """
    started = time.monotonic()
    lossy = gate.lossy
    most_db = None if lossy is None else lossy.sqnr_db
    with tempfile.TemporaryDirectory() as scratch:
        bench = VariantBench(target, lowered, buckets, Path(scratch), None if lossy is None else answers)
        most_noise = float("inf") if most_db is None else 10.0 ** (-most_db / 10.0)
        result = search_plan(bench, target.search_s, most_noise=most_noise, advance=advance)
    plan = tuple(variant.name for variant in target.offers if variant.name in result.plan)
    machine = machine_kind([f"{name} {importlib.metadata.version(name)}" for name in _runners(target)])
    return Search(lowered.graph, plan, result.trials, result.total, machine, time.monotonic() - started)


def _runners(target: Target) -> list[str]:
    return [name for name in target.packages if name not in WRITERS]
