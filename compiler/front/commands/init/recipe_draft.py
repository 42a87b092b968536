"""Drafts a recipe from the names, sizes and types of a model's inputs and outputs, with a reason for every guess.

A build proves or refuses whatever is written here, so a wrong guess costs a look and no wrong bundle.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from compiler.front.commands.onnx_signature import Signature, Tensor
from compiler.front.commands.shared_axes import is_made_up
from compiler.front.commands.tensor_roles import Carried, carried_states, is_length, mask_key, unpaired_states, words_of
from compiler.graph.sizes.expressions import Dim, symbol
from compiler.recipe.graph_parts import CACHE_DEFAULTS
from compiler.recipe.tree.keys import TODO

LONG = frozenset(
    {"audio", "chars", "chunk", "frames", "len", "length", "samples", "seq", "sequence", "steps", "t", "text", "time"}
    | {"tokens", "wav", "waveform"}
)
"""Words for axes that are not rows."""

RAW = frozenset({"audio", "pcm", "samples", "signal", "speech", "wav", "waveform"})
"""Words for inputs whose numbers are samples of sound."""

FRAMES, SAMPLES, TOKENS = (128, 256, 512), (16_000, 32_000, 64_000), (32, 64, 128)
"""Buckets of an axis that may be long."""

ROWS = (1, 4)
CHUNK = 8
"""Frames of a call of a stream."""

WINDOW = 64
"""Slots of a cache, or four calls of it."""

STEPS, UTTERANCES = 30, 8
"""Calls in a row that parity runs, and recordings of whole utterances."""


@dataclasses.dataclass(frozen=True)
class DraftInput:
    """One input.

    Attributes:
        tensor: as the model has it.
        shape: numbers, axes of the recipe, or TODO.
        role: key and value beside shape and dtype, e.g. `("state", "next_cache")`; None for data.
        reason: of the guess; empty where nothing is guessed.
    """

    tensor: Tensor
    shape: tuple[int | str, ...]
    role: tuple[str, str] | None
    reason: str


@dataclasses.dataclass(frozen=True)
class DraftAxis:
    """One axis: `kind` and its value as a recipe has them, and the size of it in example feeds."""

    name: str
    settings: Mapping[str, int | str | tuple[int, ...]]
    reason: str


@dataclasses.dataclass(frozen=True)
class Draft:
    """A graph of a recipe.

    Attributes:
        inputs: in order.
        outputs: names, in order.
        axes: in the order in which shapes mention them.
        steps: calls in a row that the parity gate asks for.
        is_stream: whether states go from call to call.
    """

    inputs: tuple[DraftInput, ...]
    outputs: tuple[str, ...]
    axes: tuple[DraftAxis, ...]
    steps: int
    is_stream: bool

    @property
    def fixed(self) -> dict[str, int]:
        """Return the sizes of axes in feeds of one row, without those that vary from feed to feed."""
        found = {}
        for axis in self.axes:
            fixed, buckets = axis.settings.get("fixed"), axis.settings.get("buckets")
            if isinstance(fixed, int):
                found[axis.name] = fixed
            elif buckets is not None and axis.name not in self.ragged:
                found[axis.name] = 1
        return found

    @property
    def ragged(self) -> dict[str, tuple[int, ...]]:
        """Return the buckets of the axes with a length per row."""
        taken = {each.role[1] for each in self.inputs if each.role is not None and each.role[0] != "state"}
        found = {}
        for axis in self.axes:
            buckets = axis.settings.get("buckets")
            if isinstance(buckets, tuple) and ("length_input" in axis.settings or axis.name in taken):
                found[axis.name] = buckets
        return found


def draft_of(signature: Signature) -> Draft:
    """Return a recipe's graph, guessed from a model's inputs and outputs."""
    carried = {tensor.input: tensor for tensor in carried_states(signature)}
    unpaired = unpaired_states(signature, carried.values())
    carried |= {name: maybe[0] for name, maybe in unpaired.items()}
    names = _axis_names(signature, carried)
    batch = next((axis for axis, (_, is_batch) in names.items() if is_batch), None)
    named = {axis: name for axis, (name, _) in names.items()}
    shapes = {state.name: _shape(state, named) for state in signature.inputs}
    rows = None if batch is None else named[batch]
    cached = {
        str(shapes[name][tensor.frames_axis]) for name, tensor in carried.items() if tensor.frames_axis is not None
    }
    for state in signature.inputs:
        if state.name not in carried:  # callers do not know how long a cache is
            shapes[state.name] = tuple(TODO if dim in cached else dim for dim in shapes[state.name])
    others = [name for name in dict.fromkeys(_mentioned(shapes.values())) if name not in cached and name != rows]
    padded = [] if carried else others
    roles = {tensor.name: _role(tensor, shapes[tensor.name], carried, padded) for tensor in signature.inputs}
    roles |= {name: (("state", TODO), _choice(maybe)) for name, maybe in unpaired.items()}
    inputs = tuple(DraftInput(tensor, shapes[tensor.name], *roles[tensor.name]) for tensor in signature.inputs)
    taken = {tensor.name for tensor in signature.inputs}
    settings = _Settings(signature, carried, named, inputs, taken)
    axes = tuple(
        settings.rows(name) if name == rows
        else settings.cache(name) if name in cached
        else settings.padded(name) if name in padded
        else settings.chunk(name)
        for name in dict.fromkeys(_mentioned(shapes.values()))
    )  # fmt: skip
    return Draft(
        inputs, tuple(tensor.name for tensor in signature.outputs), axes, settings.steps(axes, padded), bool(carried)
    )


def _mentioned(shapes: Iterable[Sequence[int | str]]) -> list[str]:
    return [dim for shape in shapes for dim in shape if isinstance(dim, str) and dim != TODO]


def _shape(tensor: Tensor, named: Mapping[str, str]) -> tuple[int | str, ...]:
    return tuple(dim if isinstance(dim, int) else named.get(str(dim), TODO) for dim in tensor.dims)


def _is_axis(dim: Dim) -> bool:
    """Whether a size is an axis by itself, not a sum or unknown."""
    return not isinstance(dim, int) and bool(dim.is_Symbol) and not dim.is_Dummy


def _role(
    tensor: Tensor, shape: Sequence[int | str], carried: Mapping[str, Carried], padded: Sequence[str]
) -> tuple[tuple[str, str] | None, str]:
    """Return the recipe's key and value for an input's role (state, mask or length), or None, and a comment on it."""
    if any(getattr(dim, "is_Dummy", False) for dim in tensor.dims):
        return None, "TODO: its sizes and axis names, as in [batch, time, 80]"
    if TODO in shape:
        return None, f"TODO: {tensor} hangs on other sizes; write an axis of its own, or feed the model otherwise"
    if tensor.name in carried:
        state = carried[tensor.name]
        return ("state", state.output), f"guessed: a state, fed by {state.output}, as {state.reason}"
    own_axes = [dim for dim in shape if dim in padded]
    key = mask_key(tensor)
    if key is not None and own_axes:
        said = "1 at valid places" if key == "mask_of" else "0 at valid places"
        return (
            key,
            str(own_axes[-1]),
        ), f"guessed: {said} of {own_axes[-1]}, as its name says {' '.join(words_of(tensor.name))}"
    if is_length(tensor) and padded:
        words = set(words_of(tensor.name))
        of = next((axis for axis in padded if words & set(words_of(axis))), padded[0] if len(padded) == 1 else None)
        if of is not None:
            return ("length_of", of), f"guessed: the true length along {of}, as its name says so"
    return None, ""


def _choice(maybe: Sequence[Carried]) -> str:
    return f"TODO: the output that feeds it; these come back longer: {', '.join(each.output for each in maybe)}"


# Axes


def _axis_names(signature: Signature, carried: Mapping[str, Carried]) -> dict[str, tuple[str, bool]]:
    """Return, by the model's axis, its name in the recipe and whether it is that of rows; several may share a name."""
    rows = _rows(signature, carried)
    frames = {
        str(tensor.dims[carried[tensor.name].frames_axis or 0])
        for tensor in signature.inputs
        if tensor.name in carried and carried[tensor.name].frames_axis is not None
    } - rows
    plain = [str(dim) for tensor in signature.inputs for dim in tensor.dims if _is_axis(dim)]
    names: dict[str, tuple[str, bool]] = {}
    for axis in dict.fromkeys(plain):
        taken = {name for name, _ in names.values()}
        if axis in rows or axis in frames:
            alike = rows if axis in rows else frames
            shared = next((names[known_axis][0] for known_axis in names if known_axis in alike), None)
            wanted = min(alike, key=plain.index) if not is_made_up(axis) else "batch" if axis in rows else "cached"
            names[axis] = (shared or _free(wanted, taken), axis in rows)
        else:
            unnamed = (
                is_made_up(axis) and sum(map(is_made_up, plain)) - sum(plain_axis in rows for plain_axis in plain) == 1
            )
            names[axis] = (_free("time" if unnamed else axis, taken), False)
    return names


def _rows(signature: Signature, carried: Mapping[str, Carried]) -> set[str]:
    """Return the axes taken for the batch: first in all data, and without a name that means something else."""
    data = [tensor for tensor in signature.inputs if tensor.name not in carried and tensor.dims]
    first = {tensor.dims[0] for tensor in data if _is_axis(tensor.dims[0])}
    if len({tensor.dims[0] for tensor in data}) != len(first) or not first:
        return set()
    names = {str(dim) for dim in first}
    if any(LONG & set(words_of(name)) and "batch" not in words_of(name) for name in names):
        return set()
    if len(names) > 1 and not all(is_made_up(name) or "batch" in words_of(name) for name in names):
        return set()
    states = (tensor.dims for tensor in signature.inputs if tensor.name in carried)
    more = {str(dims[0]) for dims in states if dims and not isinstance(dims[0], int)}
    return names | {name for name in more if is_made_up(name) or "batch" in words_of(name)}


def _free(wanted: str, taken: Collection[str]) -> str:
    """Return a name in a recipe's form that no other axis has."""
    plain = re.sub(r"\W", "_", wanted, flags=re.ASCII)[:56]
    plain = plain if re.match(r"[A-Za-z_]", plain) else f"axis_{plain}"
    return next(name for name in (plain, *(f"{plain}_{n}" for n in range(2, 1000))) if name not in taken)


@dataclasses.dataclass(frozen=True)
class _Settings:
    """How axes become static.

    Attributes:
        signature: of the model.
        carried: its states by input.
        named: the recipe's names of its axes.
        inputs: with their roles.
        taken: names of inputs.
    """

    signature: Signature
    carried: Mapping[str, Carried]
    named: Mapping[str, str]
    inputs: Sequence[DraftInput]
    taken: Collection[str]

    def rows(self, name: str) -> DraftAxis:
        """Return a rows axis: with buckets where it is the first everywhere, else of one row."""
        for tensor in (*self.signature.inputs, *self.signature.outputs):
            places = [at for at, dim in enumerate(tensor.dims) if self._is(dim, name)]
            is_open = bool(tensor.dims) and bool(getattr(tensor.dims[0], "is_Dummy", False))
            if places != [0] and not is_open:
                reason = (
                    f"guessed: rows, one a call, as they are not in front of {tensor}; `original` may put them there"
                )
                return DraftAxis(name, {"fixed": 1}, reason)
        return DraftAxis(name, {"buckets": ROWS}, "guessed: rows, as it is in front of every input and output")

    def cache(self, name: str) -> DraftAxis:
        """Return a cache axis with a window of several calls."""
        state, frames = next(
            (each, self.frames_per_call(each))
            for each in self.carried.values()
            if each.frames_axis is not None and self._is(self._input(each.input).dims[each.frames_axis], name)
        )
        settings: dict[str, int | str] = {"window": max(WINDOW, 4 * frames)}
        if CACHE_DEFAULTS["length_input"] in self.taken:
            settings["length_input"] = _free(f"{name}_length", self.taken)
        reason = f"guessed: {state.output} comes back {frames} longer; how far back to look is yours to choose"
        return DraftAxis(name, settings, reason)

    def frames_per_call(self, state: Carried) -> int:
        """Return the number of frames by which a state grows in a call; 1 where unknown."""
        assert state.frames_axis is not None
        before, after = (
            each.dims[state.frames_axis] for each in (self._input(state.input), self._output(state.output))
        )
        grown = after - before
        sizes = {symbol(axis): CHUNK for axis in self.named}
        found = grown if isinstance(grown, int) else grown.subs(sizes)
        return max(int(found), 1) if isinstance(found, int) or found.is_Integer else 1

    def padded(self, name: str) -> DraftAxis:
        """Return a padded axis, with buckets and a length per row."""
        having = [draft_input.tensor for draft_input in self.inputs if name in draft_input.shape]
        words = {word for tensor in having for word in (*words_of(tensor.name), *words_of(name))}
        if words & RAW and any(len(tensor.dims) < 4 and tensor.dtype.startswith("float") for tensor in having):
            buckets, what = SAMPLES, "samples of sound"
        elif all(tensor.dtype.startswith(("int", "uint")) for tensor in having):
            buckets, what = TOKENS, "tokens"
        else:
            buckets, what = FRAMES, "frames"
        settings: dict[str, int | str | tuple[int, ...]] = {"buckets": buckets}
        if not any(draft_input.role is not None and draft_input.role[1] == name for draft_input in self.inputs):
            settings["length_input"] = _free(f"{name}_length", self.taken)
        return DraftAxis(name, settings, f"guessed: {what}, with a length per row; choose sizes that your data have")

    def chunk(self, name: str) -> DraftAxis:
        """Return a chunk axis, of one size for all calls of a stream."""
        return DraftAxis(name, {"fixed": CHUNK}, "guessed: of one size in all calls of a stream; choose yours")

    def steps(self, axes: Sequence[DraftAxis], padded: Sequence[str]) -> int:
        """Return a number of chained calls in which every window overflows."""
        if padded:
            return UTTERANCES
        windows = [axis.settings["window"] for axis in axes if "window" in axis.settings]
        frames = [self.frames_per_call(each) for each in self.carried.values() if each.frames_axis is not None]
        return max([STEPS, *(int(str(window)) // min(frames) + 8 for window in windows)])

    def _is(self, dim: Dim, name: str) -> bool:
        return not isinstance(dim, int) and self.named.get(str(dim)) == name

    def _input(self, name: str) -> Tensor:
        return next(each for each in self.signature.inputs if each.name == name)

    def _output(self, name: str) -> Tensor:
        return next(each for each in self.signature.outputs if each.name == name)
