"""Defines the scheduler's time, monotonic integer nanoseconds, and a virtual clock for simulations."""

from collections.abc import Callable

Clock = Callable[[], int]
"""Returns monotonic nanoseconds, as `time.monotonic_ns` does; it is independent of changes of the wall clock."""

NS_PER_MS = 1_000_000


class VirtualClock:
    """A clock that its owner advances, for tests, simulation and planner.

    Args:
        now: time at the start, in nanoseconds.
    """

    def __init__(self, now: int = 0) -> None:
        """Set the first time."""
        self._now = now

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self._now

    def advance_to(self, now: int) -> None:
        """Set a later time.

        Raises:
            ValueError: the time is before the current one.
        """
        if now < self._now:
            raise ValueError(
                f"clock: expected a time from {self._now} on, got {now}; a monotonic clock never goes back"
            )
        self._now = now
