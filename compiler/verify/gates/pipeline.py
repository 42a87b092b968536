"""The gate on wired graphs: what the bundle answers as one request, beside the originals one after the other."""

from collections.abc import Iterator

import numpy as np

import runtime_lite
from compiler.recipe.record import Recipe
from compiler.records.findings import Finding, at_most
from compiler.runners.stream import Advance
from compiler.verify.differences import max_abs_difference
from compiler.verify.gate import Checked, Gate, Shipped
from compiler.verify.pipeline_answers import answers_of_bundle, answers_of_originals, draw_together, together


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
    errors: dict[str, float] = {}
    peaks: dict[str, float] = {}
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(shipped.folder, shipped.executors)
        pipeline = together(model)
        for number, (stream, answers) in enumerate(
            zip(streams, answers_of_bundle(shipped.loaded, model, streams), strict=True), start=1
        ):
            expected = answers_of_originals(pipeline, shipped.originals, stream)
            for got, wanted in zip(answers, expected, strict=True):
                for name, array in wanted.items():
                    errors[name] = max(errors.get(name, 0.0), max_abs_difference(got[name], array))
                    peaks[name] = max(peaks.get(name, 1.0), float(np.max(np.abs(array), initial=0.0)))
            advance(number, len(streams))
    findings = [
        at_most(
            "pipeline.max_abs",
            "",
            name,
            limit=gate.max_abs * peaks[name],
            measured=error,
            detail=f"{sum(map(len, streams))} calls through {pipeline.name}, reference up to {peaks[name]:.3g}",
        )
        for name, error in errors.items()
    ]
    worst = max(findings, key=lambda each: (each.measured or 0.0) / (each.limit or 1.0))
    return Checked(findings, f"{pipeline.name}, {sum(map(len, streams))} calls", {"pipeline": errors}, worst)


PIPELINE = Gate(
    "pipeline",
    _check,
    _promised,
    phases=("bundle", "engines"),
    each_graph=False,
    cure="see the findings on parity of each graph; one graph's error is the next one's input",
)
