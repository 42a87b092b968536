"""Derives the graph of one streaming call, with inputs and outputs for caches, from a model of whole sequences.

What comes out is what a user writes by hand who exports a model with caches: inputs and outputs for every cache, and an
axis with a window along which they lie. Everything behind knows no other kind of stream.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.build.capture.fed_numbers import ranges_of_lookups
from compiler.build.capture.initial_graph import padded_axes_of
from compiler.checker.graph import Rejected
from compiler.checker.later import check_later
from compiler.checker.steps import check_steps
from compiler.errors import GateFailed, Location, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.structure import split
from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.canonicalize_positions import count_plainly
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from compiler.passes.simplify import simplify_model
from compiler.proof.derivation.caching import CachedValue
from compiler.proof.derivation.dependence import BOTH_WAYS
from compiler.proof.derivation.derive import derive
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input
from compiler.recipe.written_numbers import fault_of_initial
from runtime_lite.format.initial_value import initial_of_array

STAGE = "derive_steps"


@dataclasses.dataclass(frozen=True, eq=False)
class DerivedModel:
    """What steps were derived of, and what came out.

    Attributes:
        model: the graph of a call.
        whole: the stateless graph; the cached values are among its outputs, under the output names of the caches.
        certificate: why it may be called so.
        steps: of the certificate, that were replayed.
    """

    model: ir.Model
    whole: ir.Model
    certificate: dict[str, Any]
    steps: int


def derived_model(model: ir.Model, graph: str, spec: Graph) -> DerivedModel:
    """Derive the graph of a call, and have its certificate replayed.

    Args:
        model: the captured graph; changed.
        graph: the graph's name.
        spec: the graph's record.

    Raises:
        Refused: it cannot be derived; the message names the node.
        GateFailed: the checker does not agree.
    """
    assert spec.derive_steps is not None
    try:
        simplify_model(model)
        RemoveMaskInputs().apply(Lowered(graph, model, padded_axes=padded_axes_of(spec)))  # no call has padding
        CanonicalizeAttention().apply(Lowered(graph, model))
        count_plainly(model)
        simplify_model(model)
        past = cache_axis_name(spec)
        steps = spec.derive_steps
        most, ranges = _largest(spec), ranges_of_lookups(model, spec)
        derived = derive(model, steps.along, past, steps.window, most, steps.chunk, forget=steps.forget, ranges=ranges)
    except SlipwayError as error:
        raise error.at(stage=STAGE, graph=graph) from None
    if derived.certificate["first"]:
        raise Refused(
            f"the first {derived.certificate['first']} frames read each other, and a call may have fewer",
            cure="mask them causally, or build whole utterances: calls that must hold a prefix are not built yet",
            place=dataclasses.replace(
                _place_of_first(model, derived.certificate), stage=STAGE, graph=graph, axis=spec.derive_steps.along
            ),
        )
    for cached in derived.cached:
        _require_listed(cached, graph)
    whole, step_graph = (split(part) for part in (model, derived.model))
    try:
        weights = {**whole.weights, **step_graph.weights}
        replayed = check_steps(whole.proto, step_graph.proto, derived.certificate, weights=weights)
        if derived.early is not None:
            early = split(derived.early)
            replayed += check_later(early.proto, whole.proto, derived.certificate, {**weights, **early.weights})
    except Rejected as rejected:
        raise GateFailed(
            f"expected a certificate that holds, got: {rejected}",
            cure=rejected.cure,
            place=Location(stage=STAGE, graph=graph),
        ) from None
    for cached in derived.cached:
        model.graph.outputs.append(_frames_of(model, cached, spec.derive_steps.along))
    graphs.infer_shapes(derived.model)
    return DerivedModel(derived.model, model, derived.certificate, replayed)


def _require_listed(cached: CachedValue, graph: str) -> None:
    """Require that a bundle's manifest can write the initial state of a recurrence."""
    begins, node = cached.begins, cached.value.producer()
    fault = fault_of_initial(initial_of_array(begins), begins.shape, str(begins.dtype)) if begins.ndim else None
    if fault is not None:
        place = Location(
            STAGE, graph, str(node.name) if node else "", tensor=str(cached.value.name), source=graphs.source_of(node)
        )
        raise Refused(f"a recurrence begins with a state that no bundle lists: {fault[0]}", cure=fault[1], place=place)


def _place_of_first(model: ir.Model, certificate: Mapping[str, Any]) -> Location:
    """Return the location of the node whose mask lets the first frames read each other."""
    masked = {each["value"] for each in certificate["masks"] if BOTH_WAYS in each["reach"]}
    for node in model.graph:
        if any(value.name in masked for value in node.outputs):
            return Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))
    return Location()


def _largest(spec: Graph) -> dict[str, int]:
    """Return the largest size of every axis that is no window."""
    sizes = {name: each.buckets or (() if each.fixed is None else (each.fixed,)) for name, each in spec.axes.items()}
    return {name: max(each) for name, each in sizes.items() if each}


def _frames_of(model: ir.Model, cached: CachedValue, time: str) -> ir.Value:
    """Return a cached value as an output of the whole graph: its frames, without their prefix."""
    insert = graphs.Inserter(model, STAGE)
    value, kind = cached.value, cached.value.dtype
    if cached.kept:
        return _newest_of(insert, cached)
    if cached.is_count:
        return _count_of(insert, cached)
    if cached.is_state or cached.before == 0:
        return insert.op("Identity", [value], name=cached.output, shape=value.shape, dtype=kind)
    timed, frames = next(
        (graph_input, position)
        for graph_input in model.graph.inputs
        for position, dim in enumerate(graph_input.shape or ())
        if str(dim) == time
    )
    bounds = {"start": frames, "end": frames + 1}
    count = insert.op("Shape", [timed], bounds, name="frames", shape=[1], dtype=ir.DataType.INT64)
    start = insert.op("Neg", [count], name="first_frame", shape=[1])
    shape = [time if position == cached.axis else dim for position, dim in enumerate(value.shape or ())]
    operands = [value, start, insert.int64s(2**62), insert.int64s(cached.axis)]
    return insert.op("Slice", operands, name=cached.output, shape=shape, dtype=kind)


def _newest_of(insert: graphs.Inserter, cached: CachedValue) -> ir.Value:
    """Return the newest frames of a value that are kept, after zeros before the first frame."""
    value, kind = cached.value, cached.value.dtype
    rank = len(value.shape or ())
    in_front = [cached.kept if at == cached.axis else 0 for at in range(2 * rank)]
    padded = insert.op("Pad", [value, insert.int64s(*in_front)], name=f"{cached.output}_behind_zeros", dtype=kind)
    bounds = [insert.int64s(each) for each in (-cached.kept, graphs.END, cached.axis)]
    shape = [cached.kept if at == cached.axis else dim for at, dim in enumerate(value.shape or ())]
    return insert.op("Slice", [padded, *bounds], name=cached.output, shape=shape, dtype=kind)


def _count_of(insert: graphs.Inserter, cached: CachedValue) -> ir.Value:
    """Return the number of frames of a value, for each of its rows."""
    value, axis, kind = cached.value, cached.axis, ir.DataType.INT64
    count = insert.op("Shape", [value], {"start": axis, "end": axis + 1}, name="frames", shape=[1], dtype=kind)
    dims = list(value.shape or ())
    rows = [at for at in range(len(dims)) if at != axis]
    if not rows:
        return insert.op("Identity", [count], name=cached.output, shape=[1], dtype=kind)
    bounds = {"start": rows[0], "end": rows[0] + 1}
    several = insert.op("Shape", [value], bounds, name="rows", shape=[1], dtype=kind)
    return insert.op("Expand", [count, several], name=cached.output, shape=[dims[rows[0]]], dtype=kind)


def cache_axis_name(spec: Graph) -> str:
    """Return a name for the axis of cached frames that no axis of the recipe has."""
    name = "past"
    while name in spec.axes:
        name += "_"
    return name


def with_caches(spec: Graph, model: ir.Model, certificate: Mapping[str, Any]) -> Graph:
    """Return the recipe's graph with the derived caches, as if it had been exported with them.

    Args:
        spec: the graph's record in the recipe.
        model: the derived graph.
        certificate: the proof of the derivation, which lists caches and initial states.
    """
    if spec.derive_steps is None:
        return spec
    begun = {cache["input"]: np.asarray(cache["initial"]) for cache in certificate["caches"]}
    left = iter(str(value.name) for value in model.graph.outputs if str(value.name) not in spec.outputs)
    inputs, outputs = dict(spec.inputs), list(spec.outputs)
    for value in model.graph.inputs:
        if value.name in inputs:
            continue
        output = next(left)
        assert value.dtype is not None
        shape = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape or ())
        is_moved = spec.batch in shape[1:]  # recurrences have directions in front of rows
        rows_first = (spec.batch, *(dim for dim in shape if dim != spec.batch)) if is_moved else shape
        first = begun[str(value.name)]
        inputs[str(value.name)] = Input(
            initial=initial_of_array(first) if first.any() else None,
            shape=rows_first,  # type: ignore[arg-type]
            dtype=str(value.dtype.numpy()),  # type: ignore[arg-type]
            state=output,
            original=shape if is_moved else None,
        )
        outputs.append(output)
    past = cache_axis_name(spec)
    is_window = any(past in input_spec.shape for input_spec in inputs.values())
    axes = {**spec.axes, **({past: Axis(window=spec.derive_steps.window)} if is_window else {})}
    return spec.model_copy(update={"inputs": inputs, "outputs": tuple(outputs), "axes": axes})
