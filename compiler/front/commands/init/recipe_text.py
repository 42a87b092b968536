"""Writes a drafted recipe as YAML, and the module with its feeds as Python; every guess is marked."""

import json
import re
from collections.abc import Mapping, Sequence

import yaml

from compiler.front.commands.init.recipe_draft import Draft, DraftInput
from compiler.recipe.graph_parts import Source
from compiler.recipe.tree.keys import TODO

STREAMS = 2

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Lengths of the feeds of whole utterances, as shares of the largest bucket."""

RECIPE = """\
# A recipe to start from. What says "guessed" follows from names and sizes, not from knowledge: read it, and change it
# where it is wrong. `check` points at each TODO.
name: {name}
graphs:
  {graph}:
    source: {source}
    inputs:{inputs}
    outputs: {outputs}
    axes:{axes}
data:
  # guessed: random numbers show how far rounding goes, and nothing else; yield recordings of your own
  verification: {{feeds: {feeds}, count: {count}}}
targets:
  - kind: onnx_static  # guessed: runs wherever ONNX Runtime does
gates:
  parity:
    # guessed: what float32 rounding takes; a build says how much it was
    {graph}: {{max_abs: 1.0e-5, chained_steps: {steps}}}
"""

FEEDS = '''\
"""Feeds to verify {recipe} with: random numbers. Yield recordings of your own instead."""

import numpy as np


def verification():
    """Streams of feeds: {what}."""
    random = np.random.default_rng(0)
    for sizes in {sizes}:
        yield [
            {{
{arrays}
            }}
            for _ in range({calls})
        ]
'''


def recipe_text(draft: Draft, name: str, source: Source, feeds: str) -> str:
    """Return the recipe's text.

    Args:
        draft: the graph.
        name: name of the recipe and its graph.
        source: source of the graph.
        feeds: reference to the generator of feeds, or TODO.
    """
    count = len(_sizes(draft))
    return RECIPE.format(
        name=name,
        graph=re.sub(r"\W", "_", name, flags=re.ASCII),
        source=_flow({key: value for key, value in source if value}),
        inputs="".join(_input_lines(draft.inputs)) or " {}",
        outputs=TODO if not draft.outputs else _flow(draft.outputs),
        axes="".join(
            f"\n      {_word(axis.name)}: {_flow(axis.settings)}{_comment(axis.reason)}" for axis in draft.axes
        )
        or " {}",
        feeds=_word(feeds),
        count=count,
        steps=draft.steps,
    )


def _input_lines(inputs: Sequence[DraftInput]) -> list[str]:
    return [
        f"\n      {_word(each.tensor.name)}: "
        + _flow({"shape": each.shape or [], "dtype": each.tensor.dtype, **dict([each.role] if each.role else [])})
        + _comment(each.reason)
        for each in inputs
    ]


def _comment(reason: str) -> str:
    """Return a reason as a YAML comment; unprintable characters in names are replaced."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(reason.split()))
    return f"  # {plain}" if plain else ""


def _flow(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_word(str(key))}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return _word(value) if isinstance(value, str) else str(value)


def _word(text: str) -> str:
    """Return a text in a form that YAML reads as that text."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w./-]*", text, flags=re.ASCII) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text)


def feeds_text(draft: Draft, recipe: str) -> str:
    """Return the text of a module that yields random feeds.

    Args:
        draft: draft of the recipe's graph, without TODO.
        recipe: the recipe's file name.
    """
    data = [draft_input for draft_input in draft.inputs if draft_input.role is None]
    what = "one feed each, of any length" if draft.ragged else "their calls, without the states"
    return FEEDS.format(
        recipe=_comment(recipe).removeprefix("  # ").replace('"', "'").replace("\\", "/"),
        what=what if draft.is_stream or draft.ragged else "calls that stand alone",
        sizes=repr(_sizes(draft)),
        arrays="\n".join(
            f"                {json.dumps(draft_input.tensor.name)}: {_array(draft_input, draft)},"
            for draft_input in data
        ),
        calls=1 if draft.ragged else draft.steps,
    )


def _sizes(draft: Draft) -> tuple[dict[str, int], ...]:
    """Return the sizes of the ragged axes, stream by stream."""
    if not draft.ragged:
        return ({},) * STREAMS
    shares = SHARES * (draft.steps // len(SHARES))
    return tuple({name: max(int(share * buckets[-1]), 1) for name, buckets in draft.ragged.items()} for share in shares)


def _array(given: DraftInput, draft: Draft) -> str:
    """Return a Python expression for one array of one row."""
    dims = (
        str(dim) if isinstance(dim, int) else str(draft.fixed[dim]) if dim in draft.fixed else f"sizes[{dim!r}]"
        for dim in given.shape
    )
    shape = f"({''.join(f'{dim}, ' for dim in dims).rstrip() if given.shape else ''})"
    dtype = given.tensor.dtype
    made = f"random.standard_normal({shape})" if "float" in dtype else f"random.integers(0, 2, {shape})"
    return f'np.asarray({made}).astype("{dtype}")'
