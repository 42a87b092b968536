"""Explains the exporter's error about inconsistent sizes: a table too short, or frames grouped without padding."""

import re
from collections.abc import Iterator, Mapping, Sequence

from compiler.errors import Refused
from compiler.recipe.graph_parts import Axis

_AT_MOST = re.compile(r"Eq\((\w+), Min\((\d+), \1\)\)|Eq\(Min\((\d+), (\w+)\), \4\)")
"""What the exporter finds inconsistent: a length that must not exceed a constant."""

_IN_GROUPS = re.compile(r"inconsistencies were found:.*\(\w+//(\d+)\)", re.DOTALL)
"""What it finds inconsistent where a Reshape splits a length into groups of constant size."""

MOST_NAMED = 3


def inconsistent_sizes(
    error: BaseException, shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Axis]
) -> Refused | None:
    """Return the refusal of a model that accepts some lengths of an axis only; None for other errors.

    Args:
        error: the exporter's error.
        shapes: shapes of parameters and buffers, by name.
        axes: axes of the recipe.
    """
    return _short_table(error, shapes, axes) or _groups(error, axes)


def _short_table(error: BaseException, shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Axis]) -> Refused | None:
    """Return the refusal of a model that slices more entries out of a table than it has; else None."""
    limits = next((match for text in _told(error) if (match := _AT_MOST.search(text))), None)
    if limits is None:
        return None
    entries = int(limits[2] or limits[3])
    longer = {name: max(axis.buckets) for name, axis in axes.items() if axis.buckets and max(axis.buckets) > entries}
    if not longer:
        return None
    tables = [f"{name} {list(shape)}" for name, shape in shapes.items() if entries in shape]
    named = f" ({', '.join(tables[:MOST_NAMED])})" if tables else ""
    axis, bucket = max(longer.items(), key=lambda entry: entry[1])
    return Refused(
        f"expected a table of at least {bucket} entries for the buckets of {axis}, got one of {entries}{named}",
        cure=f"give the model a larger table, or build no bucket of {axis} beyond {entries}",
    )


def _groups(error: BaseException, axes: Mapping[str, Axis]) -> Refused | None:
    """Return the refusal of a model that groups neighbouring frames without padding the last group; else None."""
    found = next((match for text in _told(error) if (match := _IN_GROUPS.search(text))), None)
    lengths = [name for name, axis in axes.items() if axis.length_input is not None]
    if found is None or not lengths:
        return None
    return Refused(
        f"expected a model that takes any length along {' and '.join(lengths)}, got one that takes multiples of "
        f"{found[1]}, as it joins neighbouring frames to groups of {found[1]}",
        cure=f"fill the last group inside forward, as in F.pad(x, (0, 0, 0, -x.shape[1] % {found[1]})) of "
        "[batch, frames, channels]; or join frames with a convolution of that stride",
    )


def _told(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    while cause is not None:
        yield str(cause)
        cause = cause.__cause__ or cause.__context__
