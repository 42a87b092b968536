"""Finds why an original answers the same feeds differently: random numbers, state that it keeps, or its factory.

Asked only where a graph differs from its original: nothing can be compared with a model that differs from itself.
"""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compiler.build.capture.module_contents import contents_of
from compiler.build.capture.reference import Reference
from compiler.build.verify.differences import max_abs_difference
from compiler.errors import Location, RecipeError, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.operators.traits import RANDOM
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import Tolerance
from compiler.recipe.user_code.callables import running_line

SHARE = 0.01
"""Of the limits: by less than this two answers do not differ."""

SHOWN = 4
"""Most names that a message shows."""

DRAW_ONCE = "draw them outside and feed them as an input, or leave them out in evaluation mode"


def unsteady(
    reference: Reference, feeds: Sequence[Feed], limits: Tolerance, graph: str, model: ir.Model
) -> SlipwayError | None:
    """Return the error for an original whose results differ between two runs on the same feeds; None where they agree.

    Args:
        reference: the original, ready to run.
        feeds: feeds of one stream from its first call on, or utterances.
        limits: tolerances of the parity gate.
        graph: the graph's name.
        model: the captured graph, in which random operators of an ONNX file are found.
    """
    if not _differ(_answers(reference, feeds), _answers(reference, feeds), limits):
        return None
    place = Location(stage="reference", graph=graph)
    node = next((node for node in graphs.nodes_of(model) if node.op_type in RANDOM), None)
    if not reference.modules and node is not None:
        place = Location("reference", graph, str(node.name), node.op_type, source=graphs.source_of(node))
        return Refused(
            f"the model draws random numbers in every call, with {node.op_type}", cure=DRAW_ONCE, place=place
        )
    before = [contents_of(module) for module in reference.modules]
    with _Draws() as draws:  # type: ignore[no-untyped-call]
        _answers(reference, feeds)
    if draws.operator:
        place = Location(stage="reference", graph=graph, op=draws.operator, source=draws.line)
        return Refused(
            f"the model draws random numbers in every call, with {draws.operator}", cure=DRAW_ONCE, place=place
        )
    after = [contents_of(module) for module in reference.modules]
    changed = [name for old, new in zip(before, after, strict=True) for name in changed_names(old, new)]
    if changed:
        return Refused(
            f"the model keeps a state of its own from call to call: {_some(changed)} changed while it answered, and "
            "the same feeds got other answers",
            cure="return it as a result and take it as an input with state:, or set it anew at the start of forward",
            place=place,
        )
    if not _differ(_seeded(reference, feeds), _seeded(reference, feeds), limits):
        return Refused(
            "the model draws random numbers in every call, with NumPy's or Python's generator",
            cure=DRAW_ONCE,
            place=place,
        )
    return Refused(
        "the model answers the same feeds otherwise when it is run again: expected the same answers, got others",
        cure="let forward depend on its inputs and weights alone, and not on clocks, files or global variables",
        place=place,
    )


def name_draws(error: SlipwayError, again: Callable[[], object]) -> None:
    """Extend an error of a call by a note on random numbers, where the model draws them.

    Args:
        error: the call's error.
        again: repeats the call.
    """
    with _Draws() as draws, contextlib.suppress(SlipwayError):  # type: ignore[no-untyped-call]
        again()
    if draws.operator:
        error.message += (
            f"; besides, the model draws random numbers in every call, with {draws.operator} ({draws.line})"
        )
        error.cure += f"; of the numbers: {DRAW_ONCE}"


def require_same_module(make: Callable[[], torch.nn.Module], where: str, factory: str) -> None:
    """Call a factory twice, and require that both modules are equal.

    Args:
        make: calls the factory, and loads its checkpoint.
        where: start of the message.
        factory: the factory's name.

    Raises:
        RecipeError: they differ; the message names the parts.
    """
    changed = changed_names(contents_of(make()), contents_of(make()))
    if changed:
        raise RecipeError(
            f"{where}: expected {factory} to make the same model in every call, got other contents of {_some(changed)}",
            cure="seed it, as torch.manual_seed(0) in its first line does, or give a checkpoint",
        )


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the tensors and attributes of a module whose digests differ."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _answers(reference: Reference, feeds: Sequence[Feed]) -> list[dict[str, Array]]:
    return [dict(outputs) for outputs, _ in reference.run(feeds)]


def _seeded(reference: Reference, feeds: Sequence[Feed]) -> list[dict[str, Array]]:
    """Return the results after seeding NumPy's and Python's generators, whose states are restored."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        np.random.seed(0)
        random.seed(0)
        return _answers(reference, feeds)
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _differ(some: Sequence[Mapping[str, Array]], others: Sequence[Mapping[str, Array]], limits: Tolerance) -> bool:
    pairs = ((one[name], other[name]) for one, other in zip(some, others, strict=True) for name in one)
    return any(max_abs_difference(one, other) > SHARE * limits.max_abs for one, other in pairs)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first operator that draws random numbers, and the user's line that called it."""

    operator = ""
    line = ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.operator and torch.Tag.nondeterministic_seeded in function.tags:
            self.operator = function.name().removeprefix("aten::").partition(".")[0].rstrip("_")
            self.line = running_line()
        return function(*args, **(kwargs or {}))
