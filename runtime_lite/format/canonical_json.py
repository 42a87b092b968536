"""Writes JSON in the one spelling of bundles, so that equal content is equal bytes."""

import json
from typing import Any


def canonical_json(content: Any) -> bytes:
    """Sorted keys, one space of indent, a newline at the end.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"
