"""Compares two bundles: manifests, file hashes, parity receipts and times, one row per difference."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from runtime_lite.format.reader import Bundle, read_bundle

ABSENT = "-"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One value that is not the same in both bundles.

    Attributes:
        where: part of the bundle and key, e.g. `manifest: graphs.encoder.opset`.
        first: the value in the first bundle, `-` where it has none.
        second: the value in the second bundle.
    """

    where: str
    first: str
    second: str


def compare_bundles(first: Path, second: Path) -> tuple[Difference, ...]:
    """Compare all metadata of two bundles.

    Args:
        first: a bundle directory or `.tar` file.
        second: the other one.

    Raises:
        RuntimeLiteError: a bundle cannot be read or is refused.
    """
    with read_bundle(first) as one, read_bundle(second) as other:
        left, right = dict(_values(one)), dict(_values(other))
    return tuple(
        Difference(key, left.get(key, ABSENT), right.get(key, ABSENT))
        for key in sorted(left.keys() | right.keys())
        if left.get(key, ABSENT) != right.get(key, ABSENT)
    )


def is_measured(difference: Difference) -> bool:
    """Whether a difference is one of measured times, which vary between builds."""
    return difference.where.startswith(("costs: ", "manifest: files.costs.json."))


def difference_table(differences: tuple[Difference, ...], first: Path, second: Path) -> Table:
    """Return the differences as a table for the terminal."""
    table = Table(box=None, pad_edge=False)
    for title in ("", str(first), str(second)):
        table.add_column(escape(title), overflow="fold")
    for row in differences:
        table.add_row(escape(row.where), escape(row.first), escape(row.second))
    return table


def _values(bundle: Bundle) -> Iterator[tuple[str, str]]:
    yield from _flat("manifest", dataclasses.asdict(bundle.manifest))
    yield from _flat("receipts", json.loads(bundle.read_file(bundle.manifest.receipts)))
    costs = {
        graph: {sizes: dataclasses.asdict(cost) for sizes, cost in table.items()}
        for graph, table in bundle.costs.items()
    }
    yield from _flat("costs", costs)


def _flat(part: str, value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings and lists, as `part: key.key` and text."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _flat(part, child, (*keys, str(key)))
    elif isinstance(value, list | tuple) and any(isinstance(child, dict) for child in value):
        for index, child in enumerate(value):
            yield from _flat(part, child, (*keys, _label(child, index)))
    else:
        text = json.dumps(value)
        yield f"{part}: {'.'.join(keys)}", text


def _label(entry: Any, index: int) -> str:
    """Return the label of a list entry: its name where it has one, so that an insertion does not shift the others."""
    named = [
        str(entry[key])
        for key in ("graph", "name", "stage", "tensor", "sizes")
        if isinstance(entry, dict) and key in entry
    ]
    return "/".join(named) or str(index)
