"""Every leaf of a manifest, changed in every way that keeps it JSON; what becomes of the answers."""

import collections
import copy
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runtime_lite import Model, Runtime, RuntimeLiteError
from runtime_lite.format.arrays import Array

Answers = dict[str, Array]
Probe = Callable[[Model], Answers]
"""Asks a bundle; names of answers and arrays."""

REFUSED, SAME, SILENT = "refused", "same answers", "answers changed in silence"


def leaves(plain: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of every object, list and value below the top."""
    if place:
        yield place
    if isinstance(plain, dict):
        for key in plain:
            yield from leaves(plain[key], (*place, key))
    elif isinstance(plain, list):
        for at in range(len(plain)):
            yield from leaves(plain[at], (*place, at))


def at(plain: Any, place: tuple[Any, ...]) -> Any:
    """The value at a place."""
    for key in place:
        plain = plain[key]
    return plain


def mutants(plain: Any) -> Iterator[tuple[str, Any]]:
    """Every changed manifest and what was changed."""
    strings = sorted({value for place in leaves(plain) if isinstance(value := at(plain, place), str)}, key=len)[:60]
    for place in leaves(plain):
        value = at(plain, place)
        others: list[Any] = [None, 0, 1, "x", [], {}, True, False, 0.5]
        if isinstance(value, int | float) and not isinstance(value, bool):
            others += [value + 1, value - 1, value * 2, -value, value // 2, float(value), 2**31]
        if isinstance(value, str):
            others += [each for each in strings if each != value][:: max(len(strings) // 6, 1)]
            others += [value + "x", value[:-1], value.upper()]
        if isinstance(value, list):
            others += [value[:-1], value[1:], value + value[:1], value[::-1]]
            others += [[*value[:i], value[i + 1], value[i], *value[i + 2 :]] for i in range(min(len(value) - 1, 4))]
        if isinstance(value, dict):
            keys = list(value)
            others += [{k: v for k, v in value.items() if k != gone} for gone in keys[:4]]
            others += [{**value, one: value[other], other: value[one]} for one, other in itertools.pairwise(keys[:5])]
            others += [{(f"{k}x" if k == keys[0] else k): v for k, v in value.items()}] if keys else []
        for other in others:
            if json.dumps(other) != json.dumps(value):
                changed = copy.deepcopy(plain)
                at(changed, place[:-1])[place[-1]] = other
                yield f"{'.'.join(map(str, place))}: {value!r:.60} -> {other!r:.60}", changed


def ask(bundle: Path, probe: Probe) -> Answers | None:
    """The answers, or None for a bundle that is refused."""
    try:
        with Runtime() as runtime:
            return probe(runtime.load(bundle))
    except RuntimeLiteError:
        return None


def survey(bundle: Path, probe: Probe, every: int = 1) -> tuple[collections.Counter[str], list[str]]:
    """What becomes of the mutants of one bundle: how many of each kind, and those that changed answers in silence.

    Args:
        bundle: a folder; its manifest is what it was in the end.
        probe: what to ask.
        every: try one mutant in this many.
    """
    path = bundle / "manifest.json"
    original = path.read_bytes()
    truth = ask(bundle, probe)
    assert truth is not None
    kinds: collections.Counter[str] = collections.Counter()
    silent = []
    try:
        for number, (what, changed) in enumerate(mutants(json.loads(original))):
            if number % every:
                continue
            path.write_text(json.dumps(changed))
            got = ask(bundle, probe)
            kind = REFUSED if got is None else SAME if _equal(got, truth) else SILENT
            kinds[kind] += 1
            if kind == SILENT:
                silent.append(what)
    finally:
        path.write_bytes(original)
    return kinds, silent


def _equal(got: Answers, truth: Answers) -> bool:
    return list(got) == list(truth) and all(
        got[name].dtype == array.dtype and got[name].tobytes() == array.tobytes() and got[name].shape == array.shape
        for name, array in truth.items()
    )
