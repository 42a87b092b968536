"""Checks the results of a bundle's wired graphs against those of the originals run one after the other."""

from collections.abc import Iterator

import runtime_lite
from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.differences import Difference, Tally, class_words, worst_of
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.pipeline_answers import (
    answers_of_bundle,
    answers_of_originals,
    draw_together,
    limits_together,
    together,
)
from compiler.graph.runners.stream import Advance
from compiler.recipe.gates import Tolerance
from compiler.recipe.record import Recipe


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.gates.pipeline
    if gate is not None and not graph:
        yield Finding("pipeline.max_abs", graph, limit=gate.max_abs)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    """Compare every output of every graph, over all streams.

    Raises:
        RecipeError: the generator does not exist.
        DataError: its feeds do not fit.
    """
    gate = shipped.loaded.recipe.gates.pipeline
    assert gate is not None
    streams = draw_together(shipped.loaded)
    tallies: dict[str, Tally] = {}
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(shipped.folder, shipped.executors)
        pipeline = together(model)
        for number, (stream, answers) in enumerate(
            zip(streams, answers_of_bundle(shipped.loaded, model, streams), strict=True), start=1
        ):
            expected = answers_of_originals(pipeline, shipped.originals, stream)
            for got, wanted in zip(answers, expected, strict=True):
                for name, array in wanted.items():
                    tallies.setdefault(name, Tally(name)).add(got[name], array)
            advance(number, len(streams))
    limits, through = limits_together(shipped.loaded.recipe), f"{sum(map(len, streams))} calls through {pipeline.name}"
    differences = [tally.difference() for tally in tallies.values()]
    findings = {difference.tensor: _finding(difference, limits, through) for difference in differences}
    worst = worst_of(differences, limits)
    return Checked(
        list(findings.values()),
        f"{pipeline.name}, {sum(map(len, streams))} calls",
        {"pipeline": {difference.tensor: difference.max_abs for difference in differences}},
        findings[worst.tensor] if worst.classes is None else None,
    )


def _finding(difference: Difference, limits: Tolerance, through: str) -> Finding:
    if difference.classes is None:
        return at_most(
            "pipeline.max_abs",
            "",
            difference.tensor,
            limit=difference.limit(limits),
            measured=difference.max_abs,
            detail=f"{through}, reference up to {max(1.0, difference.reference_max):.3g}",
        )
    return Finding(
        "pipeline",
        "",
        difference.tensor,
        difference.classes.equal,
        limits.min_equal,
        difference.classes.holds(limits.min_equal),
        f"{through}, {class_words(difference.classes, in_order=False)}",
        is_least=True,
    )


PIPELINE = Gate(
    "pipeline",
    _check,
    _promised,
    phases=("bundle", "engines"),
    each_graph=False,
    cure="see the findings on parity of each graph; one graph's error is the next one's input",
)
