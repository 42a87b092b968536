"""Exports a family as a user would, checks the graph at sizes of its own against the module, and packs it."""

import itertools
import re
import tempfile
import unittest.mock
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from compiler.build.capture import torch_module
from compiler.errors import SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array
from compiler.passes.simplify import simplify_model
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from tests.kit.numerics import relative_difference
from tests.zoo.family import BATCH, DEFAULT_SIZES, Family
from tests.zoo.store import pack

SHIFTS = (0, 11, 27)
"""Added to the example sizes, one after the other, until the exporter's graph is right at other sizes too."""

TOLERANCE = 1e-4


class NotExported(Exception):
    """The exporter fails, or what it gives is wrong at other sizes than the example's; one line."""


def export(family: Family) -> bytes:
    """The packed graph.

    Raises:
        NotExported: with the reasons for every example size that was tried.
    """
    torch.set_num_threads(1)
    reasons = []
    for shift in SHIFTS:
        sizes = {axis: {**DEFAULT_SIZES, **family.sizes}[axis] for axis in family.axes}
        sizes = {axis: size if axis == BATCH else size + shift for axis, size in sizes.items()}
        try:
            model, other = (_captured(family, sizes, seed) for seed in (1, 2))
            _check(family, model, sizes)
            for each in (model, other):
                graphs.forget_shapes(each)
                simplify_model(each)
            return pack(model, other)
        except (SlipwayError, NotExported, RuntimeError, ValueError) as error:
            reasons.append(f"with sizes {sizes}: {' '.join(str(error).split())[:300]}")
    raise NotExported("; ".join(reasons))


def _module(family: Family, seed: int) -> torch.nn.Module:
    """The module with every parameter off its initial value, so that no two of them are equal by chance."""
    torch.manual_seed(0)
    module: torch.nn.Module = family.build().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator) * (1 + parameter.abs()))
    return module


def _captured(family: Family, sizes: Mapping[str, int], seed: int) -> ir.Model:
    """The captured graph of one choice of parameters."""
    spec = Graph(
        source=Source(factory="zoo:build"),
        inputs={
            name: Input.model_validate({"shape": given.shape, "dtype": given.dtype})
            for name, given in family.inputs.items()
        },
        outputs=family.outputs,
        axes={
            axis: Axis(buckets=(size,), length_input=None if axis == BATCH else f"{axis}_slots")
            for axis, size in sizes.items()
        },
    )
    arguments = feed(family, sizes, np.random.default_rng(seed))
    examples = [torch.from_numpy(array) for array in arguments.values()]
    module = _module(family, seed)
    if family.traced:
        return _traced(family, module, spec, tuple(examples))
    with unittest.mock.patch.object(torch_module, "_example", lambda spec, given, index, sizes: examples[index]):
        if not family.lenient:
            return _relative_sources(torch_module.capture_module(module, family.name, spec, list(family.inputs)))
        with unittest.mock.patch.object(torch_module, "_dynamic_shapes", _lenient_shapes):
            model = torch_module.capture_module(module, family.name, spec, list(family.inputs))
    for name, value in graphs.inputs_named(model).items():
        value.shape = ir.Shape(family.inputs[name].shape)
    return _relative_sources(model)


def _traced(family: Family, module: torch.nn.Module, spec: Graph, examples: tuple[torch.Tensor, ...]) -> ir.Model:
    """The graph of the older exporter, which records what a run of the module does, read as a recipe reads a file."""
    axes = {
        name: {at: dim for at, dim in enumerate(given.shape) if isinstance(dim, str)}
        for name, given in family.inputs.items()
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"{family.name}.onnx"
        torch.onnx.export(
            module,
            examples,
            str(path),
            dynamo=False,
            opset_version=20,
            input_names=list(family.inputs),
            output_names=list(family.outputs),
            dynamic_axes=axes,
        )
        model = torch_module.capture_onnx(path, family.name, spec)
    for node in model.graph:
        node.metadata_props[graphs.SOURCE_KEY] = f"{family.name}.onnx node {node.name}"
    return model


def _lenient_shapes(module: object, spec: Graph, names: list[str]) -> tuple[Any, ...]:
    """Dynamic axes of which the exporter finds the ranges."""
    hint = torch.export.Dim.DYNAMIC
    return (tuple({i: hint for i, dim in enumerate(spec.inputs[n].shape) if isinstance(dim, str)} for n in names),)


def _relative_sources(model: ir.Model) -> ir.Model:
    """Source lines without the folders of this machine."""
    for node in model.graph:
        source = graphs.source_of(node)
        if source:
            node.metadata_props[graphs.SOURCE_KEY] = re.sub(r"^.*(site-packages|/tests/zoo)/", "", source)
    return model


def feed(family: Family, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    """Random inputs without padding."""
    found: dict[str, Array] = {}
    for name, given in family.inputs.items():
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in given.shape]
        if given.mask_of is not None:
            array: Array = np.ones(shape)
        elif given.length_of is not None:
            array = np.full(shape, sizes[given.length_of])
        elif given.below is not None:
            array = rng.integers(0, given.below, shape)
        else:
            array = rng.standard_normal(shape)
        found[name] = np.asarray(array, given.dtype)
    return found


def _check(family: Family, model: ir.Model, example: Mapping[str, int]) -> None:
    """The graph gives what the module gives, at the example's sizes, the smallest and others."""
    session = open_session(graphs.serialized(model))
    random = any(node.op_type.startswith("Random") for node in model.graph)
    for trial, sizes in enumerate(_other_sizes(family, example)):
        arguments = feed(family, sizes, np.random.default_rng(trial))
        with torch.no_grad():
            results = _module(family, 1)(*(torch.from_numpy(array) for array in arguments.values()))
        expected = [each.numpy() for each in (results if isinstance(results, tuple | list) else (results,))]
        try:
            got = session.run(list(family.outputs), arguments)
        except Exception as error:  # ONNX Runtime's own classes have no common name
            raise NotExported(f"ONNX Runtime fails at {dict(sizes)}: {error}") from error
        for name, mine, theirs in zip(family.outputs, got, expected, strict=True):
            if mine.shape != theirs.shape:
                raise NotExported(f"{name} has shape {mine.shape} instead of {theirs.shape} at {dict(sizes)}")
            difference = 0.0 if random else relative_difference(mine, theirs)
            if not difference <= TOLERANCE:
                raise NotExported(f"{name} differs by {difference:.2g} at {dict(sizes)}")
            if trial == 0 and mine.size > 1 and float(np.std(mine)) == 0.0:
                raise NotExported(f"{name} is constant, so it shows nothing")


def _other_sizes(family: Family, example: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """The example's sizes, the smallest, and some in between and above, all axes at once and each alone."""
    yield example
    for batch, factor in ((1, 0.0), (1, 0.55), (3, 1.37), (1, 1.72), (2, 2.3), (1, 2.31), (2, 2.39)):
        sizes = {axis: max(family.least.get(axis, 1), int(size * factor) + 1) for axis, size in example.items()}
        if factor == 0.0:
            sizes = {axis: family.least.get(axis, 1) for axis in example}
        yield {**sizes, **({BATCH: batch} if BATCH in example else {})}
    for axis, more in itertools.product(family.padded, (1, 3)):
        yield {**example, axis: example[axis] + more}
