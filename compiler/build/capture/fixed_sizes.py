"""Finds the line of a model at which torch's exporter fixes a dynamic size to a constant."""

import contextlib
import logging
import re
from collections.abc import Callable

from compiler.recipe.user_code.callables import running_line

NOTES = "torch.fx.experimental.symbolic_shapes"
"""The logger that hears of every size that is compared with a number."""

FIXED = re.compile(r"eval Eq\(\w+, (\d+)\)|set_replacement \w+ = (\d+)\b")


def fixing_line(export: Callable[[], object], size: int | None = None) -> str:
    """Trace a model again, and return the line that first fixes a size; empty where none does.

    Args:
        export: traces the model; it may raise.
        size: the size it is fixed to; None for any size.
    """
    notes, logger = _Notes(size), logging.getLogger(NOTES)
    settings = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [notes], False
    vars(logger)["isEnabledFor"] = lambda level: level >= logging.INFO  # whatever else is silenced meanwhile
    try:
        with contextlib.suppress(Exception):
            export()
    finally:
        del vars(logger)["isEnabledFor"]
        logger.handlers[:], logger.propagate = settings
    return notes.line


class _Notes(logging.Handler):
    """Keeps the user's line that runs when the first note of a fixed size comes.

    Attributes:
        line: of the model.
    """

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size, self.line = size, ""

    def emit(self, record: logging.LogRecord) -> None:
        found = FIXED.search(record.getMessage())
        if found and not self.line and self.size in (None, int(found[1] or found[2])):
            self.line = running_line()
