"""Checks the time and size of a rounded graph relative to the same graph before the first pass that rounds."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler.base.pieces import write_files
from compiler.base.records.findings import Finding, at_most
from compiler.base.records.timings import Ratio
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.gates.integer_kernels import is_rounded_here
from compiler.build.verify.speed import measure_ratios
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.gates import BudgetGate
from compiler.recipe.record import Recipe
from compiler.targets.static_graphs import bytes_of_graphs

STAGE = "against float"


def check_ratios(gate: BudgetGate, ratios: Sequence[Ratio], size: float, graph: str) -> list[Finding]:
    """Check time and size, relative to the graph before rounding, against the recipe's bounds.

    Raises:
        GateFailed: a bound is exceeded.
    """
    place = Location(stage=STAGE, graph=graph)
    findings = list(_findings(gate, ratios, size, graph))
    for ratio in ratios:
        if gate.max_time_ratio is not None and ratio.median > gate.max_time_ratio:
            raise GateFailed(
                f"expected at most {gate.max_time_ratio:g} of the time before rounding, got {ratio}, {ratio.certainty}",
                cure="quantise more (pins, keep_float), drop the pass, or raise gates.budget.max_time_ratio",
                place=place,
                findings=findings,
            )
    if gate.max_size_ratio is not None and size > gate.max_size_ratio:
        raise GateFailed(
            f"expected at most {gate.max_size_ratio:g} of the bytes before rounding, got {size:.2f}",
            cure="quantise more (pins, keep_float), or raise gates.budget.max_size_ratio",
            place=place,
            findings=findings,
        )
    return findings


def _findings(gate: BudgetGate, ratios: Sequence[Ratio], size: float, graph: str) -> Iterator[Finding]:
    for each in ratios if gate.max_time_ratio is not None else ():
        limit = gate.max_time_ratio or 0.0
        detail = f"{each}, {each.certainty}"
        yield at_most("budget.max_time_ratio", graph, each.sizes, limit=limit, measured=each.median, detail=detail)
    if gate.max_size_ratio is not None:
        yield at_most("budget.max_size_ratio", graph, limit=gate.max_size_ratio, measured=size)


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    """Yield the findings of the whole bundle, as no recipe says which of its graphs a pass will round."""
    gate = recipe.gates.budget or BudgetGate()
    if gate.max_time_ratio is not None:
        yield Finding("budget.max_time_ratio", limit=gate.max_time_ratio)
    if gate.max_size_ratio is not None:
        yield Finding("budget.max_size_ratio", limit=gate.max_size_ratio)


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    return any(_promised(recipe, shipped.name)) and is_rounded_here(recipe, shipped)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    gate, graph = shipped.loaded.recipe.gates.budget or BudgetGate(), shipped.graph
    with tempfile.TemporaryDirectory() as scratch:
        exact = graph.before_rounding()
        write_files(Path(scratch), exact.files)
        ships = (shipped.folder, graph.built.artifacts, shipped.open)
        ratios = measure_ratios(*ships, Path(scratch), exact.artifacts, graph.open_exact, gate.max_time_ratio)
    size = bytes_of_graphs(graph.built) / bytes_of_graphs(exact)
    findings = check_ratios(gate, ratios, size, shipped.name)
    return Checked(findings, f"time {', '.join(map(str, ratios))} and size {size:.2f} of float")


AGAINST_FLOAT = Gate("against float", _check, _promised, _wanted, phases=("bundle",), stage=STAGE)
