"""Writes JSON in the canonical form of bundles, so that equal content gives equal bytes."""

import json
from typing import Any


def canonical_json(content: Any) -> bytes:
    """Return JSON with sorted keys, an indent of one space and a newline at the end.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"
