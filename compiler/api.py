"""Builds bundles from Python code: turns the arguments of `compile` into a recipe, and builds it like the command line.

    from compiler.api import compile

    report = compile(module, inputs=..., outputs=..., axes=..., data=..., parity=..., out="dist/mine")

An argument is the section of a recipe that has its name, in plain values or in records of `compiler.recipe`. Where a
recipe names code, the code itself may be given. What is wrong or refused is raised as the command would say it:
`RecipeError`, `CheckpointError`, `DataError`, `Refused`, `GateFailed`, `ToolchainAbsent` of `compiler.errors`.
"""

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from compiler.base.cache.store import StageCache, open_cache
from compiler.base.garbage_collection import seldom
from compiler.base.interruption import signals_interrupt
from compiler.base.records.build_report import BuildReport
from compiler.build import pipeline
from compiler.build.report.progress import Progress
from compiler.errors import RecipeError, blamed
from compiler.recipe.load import LoadedRecipe, load_recipe, plain_of, recipe_of_values
from compiler.recipe.record import Recipe
from compiler.recipe.user_code.passed_objects import is_module, passed, with_references

CALL = "compile"
"""Stands in messages where a recipe has its file and line."""

PathLike = str | os.PathLike[str]


def compile(
    model: Any,
    *,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    data: Any,
    parity: Any,
    axes: Mapping[str, Any] | None = None,
    targets: str | Sequence[Any] = "onnx_static",
    gates: Mapping[str, Any] | None = None,
    name: str = "model",
    checkpoint: PathLike | None = None,
    out: PathLike | None = None,
    strict: bool = False,
    cache: PathLike | bool = True,
    progress: bool = True,
    **graph: Any,
) -> BuildReport:
    """Build one model.

    Args:
        model: a `torch.nn.Module`, which is copied; a function without arguments that returns one; its name,
            `"package.module:function"`; or the path of an ONNX file.
        inputs: by name, in the order of `forward`: `{"shape": ["batch", 8, 40], "dtype": "float32"}`, and for a cache
            `state`, the output that is fed back.
        outputs: names, in the order of the results.
        data: streams to verify with, each a list of feeds, each arrays by input name; or by role as in a recipe, with
            streams or `{"feeds": function, "count": number}` for `verification`, `calibration` and others.
        parity: how near to the original the result must be: `{"max_abs": 1e-5, "chained_steps": 30}`.
        axes: how each named axis becomes static: `{"batch": {"buckets": [1, 4]}, "cached": {"window": 64}}`.
        targets: one or several kinds, or sections with options.
        gates: further gates, e.g. `{"budget": {"size_mb": 40.0}}`.
        name: of the bundle and of its graph.
        checkpoint: a safetensors file that is loaded into the module that a function returns.
        out: folder of the bundle; `dist/<name>` by default.
        strict: whether a target whose toolchain is absent fails the build.
        cache: folder of results of earlier builds; True is that of the command, False is none.
        progress: whether stages and tables are printed as the command prints them.
        graph: further keys of the graph's section, e.g. `passes`, `derive_steps`, `first_call`.

    Returns:
        The report of the build: `report.bundle` is the folder, `report.gates` are the findings.

    Raises:
        SlipwayError: the build failed; `exit_code` says whose fault it is, nothing half-written is left.
    """
    key = re.sub(r"\W", "_", name)
    section = {"source": _source_of(model), "inputs": inputs, "outputs": outputs, "axes": axes or {}, **graph}
    kinds = [targets] if isinstance(targets, str) else targets
    recipe = {
        "name": name,
        "graphs": {key: section},
        "data": _data_of(data),
        "targets": [{"kind": kind} if isinstance(kind, str) else kind for kind in kinds],
        "gates": {"parity": {key: parity}, **(gates or {})},
    }
    return compile_recipe(recipe, checkpoint=checkpoint, out=out, strict=strict, cache=cache, progress=progress)


def compile_recipe(
    recipe: PathLike | Mapping[str, Any] | Recipe,
    *,
    checkpoint: PathLike | None = None,
    out: PathLike | None = None,
    strict: bool = False,
    cache: PathLike | bool = True,
    progress: bool = True,
) -> BuildReport:
    """Build a whole recipe, given as its file, its values or its record; other arguments are those of `compile`."""
    objects: dict[str, Callable[..., Any]] = {}
    weights = None if checkpoint is None else os.fspath(checkpoint)
    try:
        loaded = _loaded(recipe, weights, objects)
        with passed(objects), signals_interrupt(), seldom(), _threads_kept():
            place = Path("dist", loaded.recipe.name) if out is None else Path(out)
            shown = Progress(None if progress else Console(quiet=True))
            report = pipeline.build(loaded, pipeline.BuildOptions(place, strict, _cache_of(cache)), shown)
            shown.show(report)
            return report
    except Exception as error:
        ended = blamed(error)
        if ended is error:
            raise
        raise ended from error


def _loaded(recipe: Any, checkpoint: str | None, objects: dict[str, Callable[..., Any]]) -> LoadedRecipe:
    if isinstance(recipe, str | os.PathLike):
        return load_recipe(os.fspath(recipe), checkpoint=checkpoint)
    if not isinstance(recipe, Mapping | Recipe):
        got = type(recipe).__name__
        raise RecipeError(f"{CALL}: expected a recipe as a file, a mapping or a Recipe, got {got}", cure="give one")
    return recipe_of_values(with_references(plain_of(recipe), objects), CALL, checkpoint)


def _source_of(model: Any) -> dict[str, Any]:
    if isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        return {"onnx" if text.endswith(".onnx") else "factory": text}
    if not callable(model) and not is_module(model):
        raise RecipeError(
            f"{CALL}: expected a torch.nn.Module, a function that returns one, its name or the path of an ONNX file, "
            f"got {type(model).__name__}",
            cure="give the module itself",
        )
    return {"factory": model}


def _data_of(data: Any) -> Any:
    """Return the section `data`: streams alone are for verification, and each list of streams becomes a generator."""
    if isinstance(data, list | tuple):
        return {"verification": _feeds_of(data)}
    return {role: _feeds_of(given) for role, given in data.items()} if isinstance(data, Mapping) else data


def _feeds_of(given: Any) -> Any:
    return {"feeds": given, "count": len(given)} if isinstance(given, list | tuple) else given


def _cache_of(cache: PathLike | bool) -> StageCache | None:
    """Open the stage cache; results that depend on code alone are not cached: this process may change code."""
    if cache is False:
        return None
    return open_cache(None if cache is True else Path(cache), warnings.warn, knows_code=False)


@contextlib.contextmanager
def _threads_kept() -> Iterator[None]:
    """Restore PyTorch's number of threads at the end, if the caller has imported it: the reference runs on one."""
    framework = sys.modules.get("torch")
    before = None if framework is None else framework.get_num_threads()
    try:
        yield
    finally:
        if framework is not None:
            framework.set_num_threads(before)
