"""Suggests the known name that is nearest to a wrong one, and lists all known names."""

import difflib
from collections.abc import Iterable

MOST_MEANT = 3
"""Names that may be offered together: those that begin as the wrong one."""


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return the cure for a wrong name: the names that it begins, or the most similar one, and all known names.

    Args:
        got: the name as written.
        known: the right names.
    """
    names = sorted(known)
    begun = [name for name in names if name.startswith(got)] if got else []
    near = begun if 0 < len(begun) <= MOST_MEANT else difflib.get_close_matches(got, names, n=1)
    listed = f"known: {', '.join(names)}" if names else "none is known here"
    return f"did you mean {' or '.join(map(repr, near))}? {listed}" if near else listed
