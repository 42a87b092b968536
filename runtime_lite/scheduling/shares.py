"""Guaranteed shares of device time: a class by its share of a second, a bucket by its part of its class.

A class has an account that fills with its share of the lanes' time, up to what that makes in one second, and that its
runs empty. While the account can pay for a run, the class is entitled to it, whatever else is queued. Runs in slack
that nobody else needs empty the account, too, but make no debt.

What of the lanes' time is left for efficient work is measured here, too: how much real-time runs took lately, and how
much longer efficient runs took than their rows would at the best bucket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import ServiceClass

WINDOW_NS = 1_000_000_000
"""Time over which shares hold."""

LEAST_LEFT = 0.05
"""Of the lanes' time, what efficient work is taken to get at least."""

RUNS_REMEMBERED = 20
"""Efficient runs over which their efficiency is averaged, the older the less."""


@dataclass(slots=True)
class Account:
    """Device time that a class may claim, in ns, as of a time."""

    credit: float
    at: int


class Shares:
    """The accounts of all classes of one device.

    Args:
        lanes: runs that may be in flight at once.
        bucket_share: part of the time of a class that is divided equally among its buckets.

    Attributes:
        real_time_ns: what real-time runs took within the current window; they claim nothing, and are owed nothing.
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
        """Return when the account of a class pays for a run, now or later, or None for never.

        A run that costs more than the account ever holds is paid by a full account, which then owes the rest.
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
        """Charge an efficient run.

        Args:
            queue: where its tasks came from.
            cost: what it is expected to take.
            entitled: the class claimed it; else it ran in slack.
            queues: those that are not empty.
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
        """Note that an efficient run costs so much, and what its rows would have cost at the best bucket.

        For a run that leaves nothing in its queue these are to be the same: it was as large as it had to be.
        """
        self._efficiency += (least_ns / cost - self._efficiency) / RUNS_REMEMBERED

    def left_for(self, service: ServiceClass, now: int) -> float:
        """Return the share of the lanes' time that is left for a class, at the best bucket."""
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
    """Return what is left; a run that was not claimed makes no debt."""
    left = credit - cost
    return left if claimed else max(left, min(credit, 0.0))
