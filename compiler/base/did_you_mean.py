"""Answers a wrong name with the nearest right one, and with all that are known."""

import difflib
from collections.abc import Iterable


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return the cure for a wrong name: the most similar known name, and the list of known names.

    Args:
        got: the name as written.
        known: the right names.
    """
    names = sorted(known)
    near = difflib.get_close_matches(got, names, n=1)
    listed = f"known: {', '.join(names)}" if names else "none is known here"
    return f"did you mean {near[0]!r}? {listed}" if near else listed
