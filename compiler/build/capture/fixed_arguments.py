"""Fixes some arguments of a module to constants, so that callers pass only the others."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from compiler.build.capture.constant_inputs import constants_of
from compiler.build.capture.torch_module import first_call_inputs, load_module
from compiler.build.capture.written_states import answer_of
from compiler.graph.stages import Array
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation

NUMBERS = (bool, int, float)
"""Annotations of parameters that take a number of Python in the place of a tensor."""


def load_fixed(location: RecipeLocation, graph: str, spec: Graph, key: str) -> torch.nn.Module:
    """Return the module of one call form, whose forward takes the inputs that are not fixed.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record, constants included.
        key: `source` or `first_call`.

    Raises:
        RecipeError: as `load_module` and `constants_of` raise it.
    """
    source = spec.source if key == "source" else spec.first_call
    assert source is not None
    module = load_module(location, graph, source, key)
    constants = constants_of(location, graph, spec)
    if constants:
        names = list(spec.inputs) if key == "source" else list(first_call_inputs(spec))
        fix_arguments(module, names, constants, spec.outputs, spec.fed_back)
    return module


def fix_arguments(
    module: torch.nn.Module,
    names: Sequence[str],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    states: Mapping[str, str],
) -> None:
    """Replace a module's forward by one that takes only the inputs that are not constants, as flat arguments.

    Args:
        module: changed; its parameters and their names stay.
        names: all inputs, in the order of forward.
        constants: arrays by name; a parameter annotated as a Python number gets one.
        outputs: the recipe's names, written states among them.
        states: the output of each input that is fed back.
    """
    forward = module.forward
    parameters = inspect.signature(forward).parameters
    fixed = {name: _given(array, parameters.get(name)) for name, array in constants.items()}

    def forward_of_the_others(*leaves: Any) -> Any:
        others = iter(leaves)
        arguments = [fixed[name] if name in fixed else next(others) for name in names]
        return answer_of(forward, names, lambda: arguments, outputs, states).results

    vars(module)["forward"] = forward_of_the_others


def _given(array: Array, parameter: inspect.Parameter | None) -> Any:
    wanted = None if parameter is None else parameter.annotation
    is_number = wanted in NUMBERS or wanted in [kind.__name__ for kind in NUMBERS]
    return array.item() if is_number and array.size == 1 else torch.from_numpy(array)
