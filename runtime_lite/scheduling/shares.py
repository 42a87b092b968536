"""Guarantees shares of device time: to a class in each second, and to a bucket in the time of its class.

A class has an account of time. Its share of the lanes' time is added to it, up to that of one second, and the cost of
its runs is subtracted. While the account can pay for a run, the class is entitled to it, whatever else is queued. Runs
in time that no other class needs are subtracted, too, but make no debt.

This module also measures how much of the lanes' time is left for efficient work: how much real-time runs took lately,
and how much longer efficient runs took than their rows would take in the best bucket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import ServiceClass

WINDOW_NS = 1_000_000_000
"""Time in nanoseconds over which shares are guaranteed."""

LEAST_LEFT = 0.05
"""Part of the lanes' time that efficient work is assumed to get at least."""

RUNS_REMEMBERED = 20
"""Number of efficient runs over which their efficiency is averaged, with weights that fall with age."""


@dataclass(slots=True)
class Account:
    """Device time in ns that a class may claim at a time."""

    credit: float
    at: int


class Shares:
    """The accounts of all classes of one device.

    Args:
        lanes: runs that may be in flight at once.
        bucket_share: part of the time of a class that is divided equally among its buckets.

    Attributes:
        real_time_ns: nanoseconds that real-time runs took within the current window; real-time classes have no
            accounts.
    """

    def __init__(self, lanes: int, bucket_share: float) -> None:
        """Start without accounts."""
        self._lanes = lanes
        self._bucket_share = bucket_share
        self._accounts: dict[str, Account] = {}
        self._since = 0
        self.real_time_ns = self._real_time_before = 0
        self._efficiency = 1.0

    def resize(self, lanes: int) -> None:
        """Set the number of lanes whose time is shared from now on."""
        self._lanes = lanes

    def entitled_at(self, service: ServiceClass, cost: int, now: int) -> int | None:
        """Return the time at which the account of a class can pay for a run, now or later; None for never.

        A full account pays for a run that costs more than it can hold, and then has a debt.
        """
        if not service.share:
            return None
        per_ns = service.share * self._lanes
        most = per_ns * WINDOW_NS
        account = self._accounts.get(service.name)
        if account is None:
            account = self._accounts[service.name] = Account(most, now)
        account.credit = min(most, account.credit + per_ns * (now - account.at))
        account.at = now
        lacking = min(cost, most) - account.credit
        return now if lacking <= 0 else now + ceil(lacking / per_ns)

    def spend(self, queue: TaskQueue, cost: int, entitled: bool, queues: Iterable[TaskQueue]) -> None:
        """Subtract the cost of an efficient run from the account of its class and from its queue's part.

        Args:
            queue: the queue of its tasks.
            cost: expected nanoseconds.
            entitled: whether the class claimed the run; otherwise it ran in time that no other class needed.
            queues: the queues that are not empty.
        """
        account = self._accounts.get(queue.service.name)
        if account is not None:
            account.credit = _after(account.credit, cost, entitled)
        same = [other for other in queues if other.service.name == queue.service.name]
        claimed = queue.owed >= cost
        for other in same:
            other.owed += self._bucket_share * cost / len(same)
        queue.owed = _after(queue.owed, cost, claimed) if queue.rows else 0.0

    def note_efficiency(self, least_ns: float, cost: int) -> None:
        """Record the cost of an efficient run, and the cost that its rows would have at the best bucket.

        Pass equal costs for a run that leaves its queue empty, as a larger one was not possible.
        """
        self._efficiency += (least_ns / cost - self._efficiency) / RUNS_REMEMBERED

    def left_for(self, service: ServiceClass, now: int) -> float:
        """Return the part of the lanes' time that is left for a class, measured at the best bucket."""
        if service.real_time:
            return 1.0
        return max((1.0 - self._real_time_part(now)) * self._efficiency, LEAST_LEFT)

    def _real_time_part(self, now: int) -> float:
        """Return the part of the lanes' time that real-time runs took lately."""
        since = now - self._since
        if since >= WINDOW_NS:
            self._real_time_before = self.real_time_ns if since < 2 * WINDOW_NS else 0
            self.real_time_ns = 0
            self._since = now - since % WINDOW_NS
            since = now - self._since
        lately = self._real_time_before * (1 - since / WINDOW_NS) + self.real_time_ns
        return min(lately / (self._lanes * WINDOW_NS), 1.0)


def _after(credit: float, cost: int, claimed: bool) -> float:
    """Return the credit after a run; a run that was not claimed makes no debt."""
    left = credit - cost
    return left if claimed else max(left, min(credit, 0.0))
