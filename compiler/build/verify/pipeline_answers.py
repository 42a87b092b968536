"""Runs wired graphs together on a recipe's feeds: the originals one after the other, or the bundle as a whole."""

from collections.abc import Iterator, Mapping, Sequence

from compiler.build.verify.gate import OriginalGraph
from compiler.build.verify.stream_artefacts import GOLDEN_STEPS
from compiler.errors import DataError
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import Tolerance
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.record import Recipe
from compiler.recipe.user_code.callables import call, function_name, importable, resolve
from compiler.recipe.user_code.streams import take_streams
from runtime_lite.calls.pipeline import Pipeline
from runtime_lite.errors import BadInput
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.model import Model
from runtime_lite.verify import answers_together

Answers = list[dict[str, Array]]


def together(model: Model) -> Pipeline:
    """Return the wired graphs of a loaded bundle."""
    pipeline = model.asked()
    assert isinstance(pipeline, Pipeline)
    return pipeline


def draw_together(loaded: LoadedRecipe) -> list[list[Feed]]:
    """Return the streams on which wired graphs are verified.

    Raises:
        RecipeError: the generator does not exist.
        DataError: the generator raises, or yields less than the recipe requires.
    """
    gate = loaded.recipe.gates.pipeline
    assert gate is not None
    where = loaded.where("gates", "pipeline", "feeds")
    folders = loaded.search_path()
    function = resolve(gate.feeds, folders, where)
    name = function_name(function)
    with importable(folders):
        streams: list[list[Feed]] = call(
            take_streams, where, DataError, function, gate.count, f"{where}: {name}", named=function
        )
    if len(streams) < gate.count or not all(streams):
        got = f"{len(streams)}" if all(streams) else "an empty one"
        raise DataError(
            f"{where}: expected {gate.count} streams of feeds from {name}, got {got}", cure="yield more, or lower count"
        )
    return streams


def answers_of_bundle(loaded: LoadedRecipe, model: Model, streams: Sequence[Sequence[Feed]]) -> list[Answers]:
    """Return a bundle's results for every stream.

    Raises:
        DataError: a feed does not fit.
    """
    by_stream = []
    for number, stream in enumerate(streams):
        try:
            by_stream.append(answers_together(model, stream))
        except BadInput as error:
            where = loaded.where("gates", "pipeline", "feeds")
            raise DataError(f"{where}: stream {number}: {error}", cure="yield feeds that callers may give") from None
    return by_stream


def answers_of_originals(
    pipeline: Pipeline, originals: Mapping[str, OriginalGraph], stream: Sequence[Feed]
) -> Iterator[dict[str, Array]]:
    """Yield the originals' results for a stream, each fed with results of those before it, by callers' names."""
    results: dict[str, list[dict[str, Array]]] = {}
    for name in pipeline.order:
        wires = [wire for wire in pipeline.wiring if wire.to_graph == name]
        feeds = [
            {own_name: feed[public] for public, (graph, own_name) in pipeline.inputs.items() if graph == name}
            | {wire.input: results[wire.from_graph][number][wire.output] for wire in wires}
            for number, feed in enumerate(stream)
        ]
        results[name] = [outputs for outputs, _ in originals[name].run(feeds)]
    for number in range(len(stream)):
        yield {public: results[graph][number][own_name] for public, (graph, own_name) in pipeline.outputs.items()}


def golden_together(loaded: LoadedRecipe, model: Model) -> bytes:
    """Return the golden file of wired graphs: first calls with the bundle's results, one stream's if it has states."""
    streams, left = draw_together(loaded), GOLDEN_STEPS
    feeds = []
    for stream in streams[:1] if together(model).has_states else streams:
        feeds.append(stream[:left])
        left -= len(feeds[-1])
    answers = answers_of_bundle(loaded, model, feeds)
    steps = [
        GoldenStep(feed, outputs)
        for stream, stream_answers in zip(feeds, answers, strict=True)
        for feed, outputs in zip(stream, stream_answers, strict=True)
    ]
    limits = limits_together(loaded.recipe)
    return npz_from_golden(Golden(tuple(steps), limits.max_abs, limits.min_equal))


def limits_together(recipe: Recipe) -> Tolerance:
    """Return the tolerance of wired graphs' outputs; for classes, the least that a graph requires."""
    gate = recipe.gates.pipeline
    assert gate is not None
    least = min(each.limits(lossy=True).min_equal for each in recipe.gates.parity.values())
    return Tolerance(max_abs=gate.max_abs, min_equal=least)
