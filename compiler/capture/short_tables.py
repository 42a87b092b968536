"""Names the table of a model that has fewer entries than a bucket: the exporter says that sizes are inconsistent."""

import re
from collections.abc import Iterator, Mapping, Sequence

from compiler.errors import Refused
from compiler.recipe.graph_parts import Axis

_AT_MOST = re.compile(r"Eq\((\w+), Min\((\d+), \1\)\)|Eq\(Min\((\d+), (\w+)\), \4\)")
"""What the exporter finds inconsistent: a length that is to be no longer than so many entries."""

MOST_NAMED = 3


def short_table(error: BaseException, shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Axis]) -> Refused | None:
    """The refusal of a model that cuts as many entries as an input has out of a table of fewer; None of other errors.

    Args:
        error: what the exporter raised.
        shapes: those of parameters and buffers, by name.
        axes: those of the recipe.
    """
    found = next((match for text in _told(error) if (match := _AT_MOST.search(text))), None)
    if found is None:
        return None
    entries = int(found[2] or found[3])
    longer = {name: max(axis.buckets) for name, axis in axes.items() if axis.buckets and max(axis.buckets) > entries}
    if not longer:
        return None
    tables = [f"{name} {list(shape)}" for name, shape in shapes.items() if entries in shape]
    named = f" ({', '.join(tables[:MOST_NAMED])})" if tables else ""
    axis, bucket = max(longer.items(), key=lambda each: each[1])
    return Refused(
        f"expected a table of at least {bucket} entries for the buckets of {axis}, got one of {entries}{named}",
        cure=f"give the model a larger table, or build no bucket of {axis} beyond {entries}",
    )


def _told(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    while cause is not None:
        yield str(cause)
        cause = cause.__cause__ or cause.__context__
