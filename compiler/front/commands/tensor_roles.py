"""Guesses the roles of a model's inputs from names, sizes and types: states, masks, lengths, data.

Every guess has its reason in words; nothing is taken for granted by a build, which proves or refuses.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from compiler.front.commands.onnx_signature import Signature, Tensor
from compiler.graph.sizes.expressions import mentions

COMING = frozenset({"past", "prev", "previous", "old", "initial", "init", "cur", "current", "last"})
GOING = frozenset({"present", "next", "new", "updated", "final"})
SIDES = frozenset({"in", "out", "input", "output"})
"""Words that say which way a tensor goes; the last ones say so of data as well."""

KEPT = frozenset(
    {"buf", "buffer", "c", "cache", "caches", "carry", "cell", "context", "ctx", "h", "hidden", "history", "hx", "cx"}
    | {"key", "keys", "kv", "mem", "memory", "past", "prev", "previous", "state", "states", "value", "values"}
)
"""Words for what a model keeps from call to call."""

PADDING = frozenset({"pad", "padding", "padded"})
"""Words of masks that say where nothing is."""

LENGTH = frozenset({"len", "lens", "length", "lengths"})

START, END = frozenset({"0", "t"}), frozenset({"n", "1", "t"})
"""h0 and hn, h_t and h_t1: the state before and after."""


@dataclasses.dataclass(frozen=True)
class Carried:
    """An input that the next call takes from an output.

    Attributes:
        input: its name.
        output: the output's.
        frames_axis: the axis along which it grows, or None.
        reason: why it is taken for a state.
    """

    input: str
    output: str
    frames_axis: int | None
    reason: str


def carried_states(signature: Signature) -> tuple[Carried, ...]:
    """Return the states of a model in the order of its inputs: each has its own fitting output.

    Matching names are paired first, then outputs that grow, then names that suggest a state and fit one by one.
    """
    found: dict[str, Carried] = {}
    for match in (_by_name, _by_start_and_end, _by_longer_name, _by_growth, _by_growth_in_order, _by_word):
        inputs, outputs = _left(signature, found.values())
        for given, back, reason in match(inputs, outputs):
            found[given.name] = Carried(given.name, back.name, _frames_axis(given, back), reason)
    return tuple(found[each.name] for each in signature.inputs if each.name in found)


def told_states(signature: Signature, fed_by: Mapping[str, str]) -> tuple[Carried, ...]:
    """Return the states of a model whose outputs are known, without those that it does not have."""
    backs = {each.name: each for each in signature.outputs}
    return tuple(
        Carried(given.name, back.name, _frames_axis(given, back), "a recipe says so")
        for given in signature.inputs
        if (back := backs.get(fed_by.get(given.name, ""))) is not None
    )


def unpaired_states(signature: Signature, carried: Iterable[Carried]) -> dict[str, tuple[Carried, ...]]:
    """Return, for each unpaired input, the possible outputs that are longer than it."""
    inputs, outputs = _left(signature, carried)
    found = {
        given.name: tuple(
            Carried(given.name, back.name, axis, "it comes back longer")
            for back in outputs
            if (axis := _frames_axis(given, back)) is not None
        )
        for given in inputs
    }
    return {name: each for name, each in found.items() if each}


def _left(signature: Signature, carried: Iterable[Carried]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and the outputs that are in no pair yet."""
    pairs = list(carried)
    given, back = {each.input for each in pairs}, {each.output for each in pairs}
    return (
        [each for each in signature.inputs if each.name not in given],
        [each for each in signature.outputs if each.name not in back],
    )


Match = Iterable[tuple[Tensor, Tensor, str]]


def _by_name(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair `cache_in` and `cache_out`, `past_key_0` and `present_key_0`, `state` and `new_state`."""
    return _one_to_one(
        inputs, outputs, lambda a, b: _is_same_thing(words_of(a.name), words_of(b.name)), "their names match"
    )


def _by_start_and_end(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair `h0` and `hn`, `h` and `hn`."""

    def fits(given: Tensor, back: Tensor) -> bool:
        first, last = words_of(given.name), words_of(back.name)
        stem = first[:-1] if first[-1] in START else first
        return last[-1] in END and bool(stem) and stem == last[:-1]

    return _one_to_one(inputs, outputs, fits, "their names say start and end")


def _by_longer_name(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair `k0` and `nk0`: names with further letters in front or behind, any where the output is longer."""

    def fits(given: Tensor, back: Tensor) -> bool:
        name, longer = given.name.lower(), back.name.lower()
        more = {longer.removesuffix(name), longer.removeprefix(name)} - {longer}
        grows = _frames_axis(given, back) is not None
        return any(each.isalpha() if grows else each in GOING | {"n"} for each in more)

    return _one_to_one(inputs, outputs, fits, "its name has a little more")


def _by_growth(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair inputs with outputs that are longer, as frames have been joined to them."""
    return _one_to_one(inputs, outputs, lambda a, b: _frames_axis(a, b) is not None, "it comes back longer")


def _by_growth_in_order(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair in order of inputs whose outputs are longer in the same way, where no name distinguishes them."""
    for given in inputs:
        backs = [each for each in outputs if _frames_axis(given, each) is not None]
        alike = [each for each in inputs if backs and _sizes(each) == _sizes(given)]
        if len(alike) == len(backs) and len({_sizes(each) for each in backs}) == 1:
            yield given, backs[alike.index(given)], "both come at the same place among those that come back longer"


def _by_word(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Match:
    """Pair, in order, inputs whose names suggest a state with equally many outputs of their sizes."""
    for given in [each for each in inputs if not KEPT.isdisjoint(words_of(each.name))]:
        alike = [each for each in inputs if _sizes(each) == _sizes(given) and not KEPT.isdisjoint(words_of(each.name))]
        backs = [each for each in outputs if _sizes(each) == _sizes(given)]
        if len(alike) == len(backs):
            yield given, backs[alike.index(given)], "its name sounds kept, and one output has its sizes"


def _one_to_one(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], fits: Callable[[Tensor, Tensor], bool], reason: str
) -> Match:
    """Yield the pairs that may carry each other, and of which neither fits another one."""
    pairs = [(a, b) for a in inputs for b in outputs if _may_carry(a, b) and fits(a, b)]
    for given, back in pairs:
        if sum(a is given for a, _ in pairs) == 1 == sum(b is back for _, b in pairs):
            yield given, back, reason


def _is_same_thing(given: Sequence[str], back: Sequence[str]) -> bool:
    """Whether two names differ only in words of direction."""
    stem = [word for word in given if word not in COMING | SIDES]
    if stem != [word for word in back if word not in GOING | SIDES] or list(given) == list(back):
        return False
    return not GOING.isdisjoint(back) or not COMING.isdisjoint(given) or not KEPT.isdisjoint(stem)


def words_of(name: str) -> list[str]:
    """Return the words of a name: `pastKeys_10` -> past, keys, 10; `hn` -> h, n."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("past_key_values", "past").lower()
    words = re.findall(r"[a-z]+|\d+", name.replace("present_key_values", "present"))
    short = (re.fullmatch(r"([hc])([nt])", word) for word in words)
    return [part for word, cut in zip(words, short, strict=True) for part in (cut.groups() if cut else (word,))] or [""]


def _may_carry(given: Tensor, back: Tensor) -> bool:
    """Whether an output may be fed back: of one type and rank, and longer along at most one axis."""
    if given.dtype != back.dtype or len(given.dims) != len(back.dims):
        return False
    differ = [axis for axis, (a, b) in enumerate(zip(given.dims, back.dims, strict=True)) if a != b]
    return not differ or differ == [_frames_axis(given, back)] or all(_is_open(back, axis) for axis in differ)


def _frames_axis(given: Tensor, back: Tensor) -> int | None:
    """Return the only axis along which an output is longer than its input; None without one."""
    if given.dtype != back.dtype or len(given.dims) != len(back.dims):
        return None
    differ = [axis for axis, (a, b) in enumerate(zip(given.dims, back.dims, strict=True)) if a != b]
    if len(differ) != 1:
        return None
    before, after = given.dims[differ[0]], back.dims[differ[0]]
    grows = not isinstance(before, int) and before.is_Symbol and mentions(after, str(before))
    return differ[0] if grows else None


def _is_open(tensor: Tensor, axis: int) -> bool:
    """Whether a size is unknown."""
    return bool(getattr(tensor.dims[axis], "is_Dummy", False))


def _sizes(tensor: Tensor) -> tuple[object, ...]:
    return (*tensor.dims, tensor.dtype)


def mask_key(tensor: Tensor) -> str | None:
    """Return the recipe's key of a mask, of valid or of padded entries, from its name; None for other tensors."""
    words = set(words_of(tensor.name))
    if "mask" not in words or len(tensor.dims) < 2:
        return None
    return "mask_of" if words.isdisjoint(PADDING) else "pad_mask_of"


def is_length(tensor: Tensor) -> bool:
    """Whether the name suggests the number of valid entries of each row."""
    return tensor.dtype.startswith(("int", "uint")) and len(tensor.dims) == 1 and not LENGTH.isdisjoint(
        words_of(tensor.name)
    )  # fmt: skip
