"""Reads the axes to explain from the command line, and prepares the ONNX file or the recipe's graph for it."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx_ir as ir

from compiler.base.cache.store import StageCache
from compiler.base.did_you_mean import did_you_mean
from compiler.build.capture.initial_graph import step_frames
from compiler.build.capture.onnx_source.onnx_file import read_onnx, require_runnable
from compiler.build.capture.original import original_of
from compiler.build.lowering.listed_passes import check_passes
from compiler.build.report.progress import Progress
from compiler.errors import Location, RecipeError
from compiler.front.explain.words import shape_text
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis, Pass, State
from compiler.passes import make_pass
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.layout import symbols_of
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.recipe.user_code.callables import shown_path
from compiler.states.kept_frames import keep_newest
from compiler.targets import placements
from runtime_lite.format.cache_axis import CacheAxis

BATCH = "batch"
"""The axis of rows where none is named and the graph has it."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Axes as named on the command line.

    Attributes:
        axes: padded behind, with one length per row.
        windows: `AXIS=FRAMES` of a cache axis, whose valid frames lie last.
        batch: the axis of rows.
        masks: `INPUT=AXIS` of inputs that are 1 at valid places.
        pad_masks: `INPUT=AXIS` of inputs that are 0 at valid places.
        lengths: `INPUT=AXIS` of inputs that hold true lengths.
        states: `INPUT=OUTPUT` of caches.
    """

    axes: Sequence[str] = ()
    windows: Sequence[str] = ()
    batch: str | None = None
    masks: Sequence[str] = ()
    pad_masks: Sequence[str] = ()
    lengths: Sequence[str] = ()
    states: Sequence[str] = ()


def from_file(path: Path, request: Request) -> tuple[Lowered, tuple[Pass, ...]]:
    """Read an ONNX file and mark the requested axes in it; return the graph and the standard passes up to padding.

    Raises:
        RecipeError: the file cannot be read, or lacks a requested axis, input or output.
        Refused: ONNX Runtime cannot run it.
    """
    place = Location(stage="explain")
    shown = shown_path(path)
    if path.suffix in (".yaml", ".yml"):
        raise RecipeError(
            f"expected an ONNX file, got the recipe {shown}",
            cure=f"write the name of its graph: GRAPH --recipe {shown}",
        )
    model = read_onnx(path, place, "check the path, or name a recipe's graph with --recipe FILE")
    known = _axis_names(model)
    if not known:
        inputs = ", ".join(f"{value.name} {shape_text(value)}" for value in model.graph.inputs)
        raise RecipeError(
            f"{shown}: expected an input with a named axis, got {inputs or 'no inputs'}",
            cure="export the model with dynamic axes that have names",
        )
    others = [name for name in known if name != BATCH]
    if others and not request.axes and not request.windows and request.batch is None:
        raise RecipeError(
            f"{shown}: expected --axis NAME, got no axis to pad", cure=f"name one of its axes: {', '.join(others)}"
        )
    _check_known("--axis", request.axes, known)
    batch = request.batch
    if batch is not None:
        _check_known("--batch", [batch], known)
    elif BATCH in known and BATCH not in request.axes:
        batch = BATCH
    require_runnable(model, shown, place)
    graphs.infer_shapes(model)
    states = tuple(_states(model, request))
    lowered = Lowered(
        graph=path.stem,
        model=model,
        states=states,
        caches=_caches(model, states, request, known),
        batch_axis=batch,
        data_outputs=tuple(
            name for name in graphs.outputs_named(model) if name not in {state.output for state in states}
        ),
        padded_axes=padded_axes(model, request),
    )
    _check_disjoint(lowered)
    names = STANDARD_PASSES[: STANDARD_PASSES.index(PadAxes.name) + 1]
    return lowered, tuple(make_pass(name, {}) for name in names)


def from_recipe(
    loaded: LoadedRecipe, graph: str, request: Request, cache: StageCache | None, progress: Progress
) -> tuple[Lowered, tuple[Pass, ...]]:
    """Return a recipe's graph as captured by a build, and its passes up to padding.

    Heads are not distilled: they have the checkpoint's weights.

    Raises:
        SlipwayError: as in a build; also where the recipe lacks the graph, or the request contradicts it.
    """
    graphs = loaded.recipe.graphs
    shown = shown_path(loaded.path)
    if graph not in graphs:
        raise RecipeError(f"{shown}: expected one of its graphs, got {graph!r}", cure=did_you_mean(graph, graphs))
    named = (request.windows, request.states, request.masks, request.pad_masks, request.lengths)
    if any(named) or request.batch is not None:
        raise RecipeError(
            "--recipe: expected no other option on axes than --axis, got one",
            cure="write windows, states, masks, lengths and the batch into the recipe",
        )
    check_passes(loaded)
    spec = graphs[graph].model_copy(update={"share_heads": None})
    tracked = (*spec.padded, *spec.caches)
    _check_known("--axis", request.axes, tracked, "a padded axis or window of the recipe")
    names = [pass_spec.name for pass_spec in spec.passes]
    if PadAxes.name not in names:
        raise RecipeError(
            f"{shown}: expected {PadAxes.name} among the passes of {graph}, got {', '.join(names)}",
            cure=f"add {PadAxes.name}, or drop the list of passes for the standard ones",
        )
    original = original_of(loaded, graph, spec, cache, progress, with_data=False)
    return original.start(), tuple(
        make_pass(pass_spec.name, pass_spec.options, placements())
        for pass_spec in spec.passes[: names.index(PadAxes.name) + 1]
    )


def padded_axes(model: ir.Model, request: Request) -> tuple[PaddedAxis, ...]:
    """Return the requested axes that are padded at the end, with their mask and length inputs.

    Raises:
        RecipeError: a mask or length names an input or axis that the graph lacks.
    """
    inputs = graphs.inputs_named(model)
    masks = _pairs("--mask", request.masks, inputs, request.axes)
    pad_masks = _pairs("--pad-mask", request.pad_masks, inputs, request.axes)
    lengths = _pairs("--length", request.lengths, inputs, request.axes)
    return tuple(
        PaddedAxis(
            axis,
            _free_name(f"{axis}_length", inputs),
            mask_inputs=tuple(name for name, of in masks if of == axis),
            pad_mask_inputs=tuple(name for name, of in pad_masks if of == axis),
            length_inputs=tuple(name for name, of in lengths if of == axis),
        )
        for axis in request.axes
    )


def _free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return `wanted`, or `wanted_2`, `wanted_3`, ... where an input of the graph has that name."""
    names = set(taken)
    return next(name for name in (wanted, *(f"{wanted}_{n}" for n in range(2, len(names) + 3))) if name not in names)


def _states(model: ir.Model, request: Request) -> list[State]:
    """Return the requested states; a state lies along the axis with a window that it has, if any."""
    windows = {text.split("=", 1)[0] for text in request.windows}
    inputs = graphs.inputs_named(model)
    found = []
    for name, output in _pairs("--state", request.states, inputs, graphs.outputs_named(model)):
        names = [str(dim) for dim in graphs.dims_of(inputs[name]) or ()]
        at, cache = next(((at, dim) for at, dim in enumerate(names) if dim in windows), (None, None))
        found.append(State(name, output, at, cache))
    return found


def _caches(model: ir.Model, states: Sequence[State], request: Request, known: Sequence[str]) -> tuple[CacheAxis, ...]:
    """Return the cache axes with their windows, as requested."""
    caches = []
    for text in request.windows:
        axis, slots = _split("--window", text, "AXIS=FRAMES")
        _check_known("--window", [axis], known)
        if not slots.isdigit() or int(slots) < 1:
            raise RecipeError(f"--window {axis}: expected a number of frames, got {slots!r}", cure=f"write {axis}=64")
        if not any(state.cache == axis for state in states):
            raise RecipeError(
                f"--window {axis}: expected the caches that have this axis, got no --state with it",
                cure="write --state INPUT=OUTPUT for each cache, e.g. --state cache=next_cache",
            )
        length = _free_name(f"{axis}_length", graphs.inputs_named(model))
        frames = step_frames(model, states, (), axis, "explain")
        if isinstance(frames, int):
            caches.append(CacheAxis(axis, int(slots), frames, length, None))
            continue
        along = {state.output: state.frames_axis for state in states if state.cache == axis}
        keep_newest(
            model, int(slots), {output: frames_axis for output, frames_axis in along.items() if frames_axis is not None}
        )
        caches.append(CacheAxis(axis, int(slots), 1, length, None, added=graphs.written(frames)))
    return tuple(caches)


def _axis_names(model: ir.Model) -> tuple[str, ...]:
    """Return the names of the symbolic axes of all inputs, in order of appearance."""
    dims = (dim for value in model.graph.inputs for dim in graphs.dims_of(value) or ())
    names = (symbol for dim in dims for symbol in sorted(symbols_of(dim), key=str) if not symbol.is_Dummy)
    return tuple(dict.fromkeys(map(str, names)))


def _check_known(
    option: str, names: Iterable[str], known: Sequence[str], what: str = "an axis of the graph's inputs"
) -> None:
    for name in names:
        if name not in known:
            raise RecipeError(f"{option} {name}: expected {what}, got {name!r}", cure=did_you_mean(name, known))


def _check_disjoint(lowered: Lowered) -> None:
    """Require that no axis is used twice, as the batch axis, a cache axis or a padded axis."""
    names = [each.axis for each in lowered.padded_axes]
    names += [cache.axis for cache in lowered.caches]
    names += [] if lowered.batch_axis is None else [lowered.batch_axis]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"axis {name}: expected one part, got {names.count(name)}", cure="name each axis once")


def _pairs(option: str, texts: Sequence[str], first: Iterable[str], second: Iterable[str]) -> list[tuple[str, str]]:
    """Parse arguments `A=B` of an option, and require that A and B are among the known names."""
    found = []
    for text in texts:
        name, other = _split(option, text, "NAME=NAME")
        for wanted, known in ((name, first), (other, second)):
            if wanted not in known:
                raise RecipeError(
                    f"{option} {text}: expected a known name, got {wanted!r}", cure=did_you_mean(wanted, known)
                )
        found.append((name, other))
    return found


def _split(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, other = text.partition("=")
    if not equals or not name or not other:
        raise RecipeError(f"{option}: expected {form}, got {text!r}", cure="write both sides")
    return name, other
