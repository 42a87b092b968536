"""Runs the original model, whose results are the reference for every graph."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import onnx_ir as ir

from compiler.base.interruption import shielded
from compiler.build.capture.counts import frames_counted
from compiler.build.capture.initial_graph import added_by_call, states_of
from compiler.build.capture.prefix_reference import PrefixReference
from compiler.errors import Location, RecipeError, Refused
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation


class Reference(Protocol):
    """The original, ready to run.

    Attributes:
        modules: of torch, which answer; none where an ONNX file does.
    """

    modules: Sequence[Any]

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Yield, per chunk, all outputs by name, and the states that the next call takes, limited to their slots."""
        ...


def reference_of(
    location: RecipeLocation,
    graph: str,
    spec: Graph,
    start: Callable[[], Lowered],
    whole: Callable[[], ir.Model],
    given: Graph,
) -> Reference:
    """Return the original of a graph in its own framework; its caches are limited to their slots.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record.
        start: returns the captured graph, which runs an ONNX file as its own reference.
        whole: returns the captured graph over whole sequences, for derived steps.
        given: the record at capture, with the inputs that are fixed to constants.
    """
    with shielded():  # a signal in the middle of importing the framework would end the process without a word
        from compiler.build.capture import torch_module  # only when it must capture or compare
        from compiler.build.capture.fixed_arguments import load_fixed

    if spec.derive_steps is not None:
        if spec.source.onnx is not None:
            return PrefixReference(graph, spec, whole(), None)
        module = load_fixed(location, graph, given, "source")
        return PrefixReference(graph, spec, whole(), torch_module.whole_call(module, spec), [module])
    if spec.source.onnx is not None:
        return OnnxReference(start())
    first, started = spec.first_call, start()
    return torch_module.TorchReference(
        load_fixed(location, graph, given, "source"),
        None if first is None else load_fixed(location, graph, given, "first_call"),
        spec,
        states_of(spec),
        started.row_axes,
        frames_counted(spec, {cache.axis: added_by_call(cache) for cache in started.caches}),
    )


class OnnxReference:
    """An ONNX file as its own original; the runner cuts its caches to their slots before each call."""

    modules: Sequence[Any] = ()

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Yield, per chunk, all outputs, and the states limited to their slots."""
        try:
            runner = runner_of(self.lowered)
        except Exception as error:
            raise self._failed("in the recipe's sizes", error) from error
        for count, feed in enumerate(feeds):
            try:
                outputs = runner.step(feed)
            except Refused:
                raise
            except Exception as error:
                raise self._failed(f"at chained step {count}", error) from error
            yield outputs, dict(runner.states)

    def _failed(self, when: str, error: Exception) -> RecipeError:
        return RecipeError(
            f"the ONNX file does not run {when}: {' '.join(str(error).split())[:300]}",
            cure="write the sizes that the file takes; where its exporter has fixed one, export it with dynamic axes",
            place=Location(stage="reference", graph=self.lowered.graph),
        )
