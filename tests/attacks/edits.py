"""What an attacker does to a manifest, and the sentence that stops a bundle."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_lite import BundleRefused, read_bundle

Edit = Callable[[dict[str, Any]], object]


def stopped(path: Path) -> str:
    """Return the sentence that stops a bundle."""
    with pytest.raises(BundleRefused) as refusal:
        read_bundle(path)
    message = str(refusal.value)
    assert message.isprintable(), "one line, no control characters"
    assert re.fullmatch(r".*: expected .*, got .*; .*[^.]", message), message
    assert len(message) < 1000
    return message


def graph_of(plain: dict[str, Any]) -> Any:
    """Return the record of the only graph."""
    (graph,) = plain["graphs"].values()
    return graph


def set_at(*path: Any, to: Any) -> Edit:
    """Return an edit that sets one value of the graph."""

    def edit(plain: dict[str, Any]) -> None:
        place = graph_of(plain)
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return edit


def drop_at(*path: Any) -> Edit:
    """Return an edit that removes one value of the graph."""

    def edit(plain: dict[str, Any]) -> None:
        place = graph_of(plain)
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return edit


def exact_axis(*buckets: int) -> dict[str, Any]:
    """Return the record of an axis without a length input."""
    return {"buckets": list(buckets), "length_input": None, "minimum": 1}
