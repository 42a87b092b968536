"""Why the server lets go of what it was asked for: short constant texts, which are counted."""

from runtime_lite.errors import Overloaded

MODEL_CLOSED = "model closed"
LOST = "a chunk before it was lost"
LATE = "late"
SLOW = "slow reader"
IDLE = "idle"


class RetiredError(Exception):
    """A version was swapped or unloaded between the caller's look at it and the queue."""


def overloaded(where: str, reason: str) -> Overloaded:
    """Return what a caller gets who is refused for want of room."""
    return Overloaded(
        f"{where}: expected a runtime with room, got one without: {reason}; try again later, or use another runtime",
        reason,
    )
