"""Time as the scheduler sees it: whole nanoseconds that only grow."""

from collections.abc import Callable

Clock = Callable[[], int]
"""Returns monotonic nanoseconds, as `time.monotonic_ns` does; jumps of the wall clock do not show in it."""

NS_PER_MS = 1_000_000


class VirtualClock:
    """A clock that moves when told: for tests, simulation and planner.

    Args:
        now: where it starts, in nanoseconds.
    """

    def __init__(self, now: int = 0) -> None:
        """Start."""
        self._now = now

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self._now

    def advance_to(self, now: int) -> None:
        """Move forward.

        Raises:
            ValueError: the time lies in the past.
        """
        if now < self._now:
            raise ValueError(
                f"clock: expected a time from {self._now} on, got {now}; a monotonic clock never goes back"
            )
        self._now = now
