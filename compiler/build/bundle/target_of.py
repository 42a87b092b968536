"""Recreates the target of a bundle from the recipe that the bundle holds, and makes executors for this target."""

import functools

from compiler.build.bundle.recipe_of import recipe_of
from compiler.errors import RecipeError
from compiler.targets import TARGETS
from compiler.targets.base import Target
from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import EXECUTORS, Executor, ExecutorFactory, make_executor
from runtime_lite.format.reader import Bundle

WRONG = (AttributeError, KeyError, RecipeError, RecursionError, StopIteration, TypeError, ValueError)
"""What a recipe that no build has written may raise."""


def target_of(bundle: Bundle) -> Target:
    """Return the target of a bundle's graphs, with the options of its recipe.

    Raises:
        BadInput: the target is unknown, or the recipe does not name it.
    """
    name = next(iter(bundle.manifest.graphs.values())).target
    if name not in TARGETS:
        raise BadInput(
            f"{bundle.path}: expected a target of {', '.join(sorted(TARGETS))}, got {show(name)}; use the version of "
            "Slipway that has built it"
        )
    where = f"{bundle.path}: {bundle.manifest.recipe}"
    try:
        recipe = recipe_of(bundle)
        options = next({**options_listed} for options_listed in recipe["targets"] if options_listed["kind"] == name)
        del options["kind"]
        return TARGETS[name](**options)
    except WRONG as error:
        raise BadInput(
            f"{where}: expected target {name} with options that it has, got none ({type(error).__name__}: "
            f"{show(str(error))}); rebuild the bundle"
        ) from None


def executors_here(*, allow_host_code: bool) -> ExecutorFactory:
    """Return an executor factory for a machine with the compiler, which also runs engines unknown to the runtime.

    Args:
        allow_host_code: whether engines may run host code that they contain.
    """
    return functools.partial(_executor_here, allow_host_code)


def _executor_here(allow_host_code: bool, bundle: Bundle, name: str, threads: int) -> Executor:
    graph = bundle.manifest.graphs[name]
    is_built = graph.engine is not None and graph.engine.status == "built"
    if is_built and graph.target in TARGETS and graph.target not in EXECUTORS:
        return target_of(bundle).executor(bundle, name, threads)
    return make_executor(bundle, name, threads, allow_host_code)
