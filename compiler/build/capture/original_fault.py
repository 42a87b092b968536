"""Finds why a captured graph differs from its original: because of the original, its factory, or torch's exporter."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir
import torch

from compiler.build.capture import torch_module
from compiler.build.capture.exported_graph import exporter_fault
from compiler.build.capture.module_call import called
from compiler.build.capture.reference import Reference
from compiler.build.capture.unsteady_original import require_same_module, unsteady
from compiler.errors import Location, SlipwayError
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import Tolerance
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.user_code.nested import leaves_in


def original_fault(
    location: RecipeLocation,
    graph: str,
    spec: Graph,
    reference: Reference,
    feeds: Sequence[Feed],
    limits: Tolerance,
    model: ir.Model,
) -> SlipwayError | None:
    """Return the error for a graph that differs from its original; None where they differ by rounding alone.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record at capture.
        reference: the original, ready to run.
        feeds: feeds of one stream from its first call on, or utterances; the last one differs.
        limits: tolerances of the parity gate.
        model: the captured graph.
    """
    try:
        for key, source in (("source", spec.source), ("first_call", spec.first_call)):
            if source is not None and source.factory is not None:
                where = location.where("graphs", graph, key, "factory")
                make = functools.partial(torch_module.load_module, location, graph, source, key)
                require_same_module(make, where, source.factory)
    except SlipwayError as error:
        return error
    return unsteady(reference, feeds, limits, graph, model) or _of_exporter(graph, spec, reference, feeds)


def _of_exporter(graph: str, spec: Graph, reference: Reference, feeds: Sequence[Feed]) -> SlipwayError | None:
    """Return the error for an exported graph that differs from its module at the last call; None where it agrees."""
    if not reference.modules:
        return None
    spec = spec.without_constants
    names = [list(spec.inputs), list(torch_module.first_call_inputs(spec))][: len(reference.modules)]
    calls: list[tuple[int, dict[str, Array]]] = []
    with _noting(reference.modules, names, calls):
        for _ in reference.run(feeds):
            pass
    form, feed = calls[-1]
    module = reference.modules[form]
    wanted = called(module, feed, Location(stage="reference", graph=graph), outputs=spec.outputs, states=spec.fed_back)
    return exporter_fault(torch_module.exported_module(module, graph, spec, names[form]), graph, feed, wanted)


@contextlib.contextmanager
def _noting(
    modules: Sequence[torch.nn.Module], names: Sequence[Sequence[str]], calls: list[tuple[int, dict[str, Array]]]
) -> Iterator[None]:
    """Record which module is called with which inputs, copied before it writes to them."""

    def note(form: int, module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        leaves = leaves_in(module.forward, names[form], given)
        calls.append((form, {name: leaf.numpy().copy() for name, leaf in zip(names[form], leaves, strict=True)}))

    handles = [module.register_forward_pre_hook(functools.partial(note, form)) for form, module in enumerate(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
