"""The caller's handle of one request: wait, await, read responses, cancel; it ends exactly once.

The server ends tickets and puts responses under its own lock; whoever waits is woken after that. Nothing here runs
anything but the caller's wait.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from runtime_lite.errors import BadInput, show
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.refusals import check_seconds
from runtime_lite.serving.request import Answer, LiveRequest, Outputs, Owner
from runtime_lite.serving.shield import Shield

if TYPE_CHECKING:
    from asyncio import Future


class Ticket(LiveRequest[Answer]):
    """A request that may still be queued; made by `submit`."""

    def cancel(self) -> bool:
        """Take the request back; its answer is not delivered, and what is not running yet never runs.

        Returns:
            Whether it was alive; one that has ended stays as it is.
        """
        return self._owner.cancel(self)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have something called once the request has ended, at once if it has.

        Args:
            call: quick: it is called by the thread that ends the request. What it raises reaches nobody's request, and
                is the `observer_fault` of the runtime's health.

        Raises:
            BadInput: it cannot be called.
        """
        if not callable(call):
            raise BadInput(f"{self.where}: expected something to call, got {show(call)}; pass a function")
        with self._owner.lock:
            if not self.done():
                self.wakers.append(lambda: self.when_done(call))  # a response wakes too
                return
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it would end the thread that serves others, or their wait
            self._owner.note_fault("when_done", error)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the answer.

        Args:
            timeout: seconds; None waits until the end.

        Raises:
            BadInput: the timeout is no number from 0 on.
            TimeoutError: it is not there yet; the request goes on.
            Cancelled: it was taken back.
            Dropped: the runtime let go of it, for a reason.
            RuntimeLiteError: it failed.
        """
        if self.outcome is None or timeout is not None:
            self._wait(self.done, timeout)
        return self.answer()

    def __await__(self) -> Generator[Any, None, Answer]:
        """Wait for the answer in a coroutine; one that is cancelled takes the request back.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: as `result` does.
        """
        yield from self._wait_in_loop(self.done)
        return self.answer()

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        if timeout is not None:
            check_seconds(self.where, "timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        answered = threading.Lock()
        answered.acquire()
        while True:
            with self._owner.lock:
                if ready():
                    return
                self.wakers.append(answered.release)
            left = -1.0 if until is None else max(0.0, until - time.monotonic())
            if not answered.acquire(timeout=left):
                with self._owner.lock:
                    if ready():
                        return
                    self.wakers = [waker for waker in self.wakers if waker != answered.release]
                raise TimeoutError(f"{self.where}: not ready after {timeout} s; wait longer, or cancel it")

    def _wait_in_loop(self, ready: Callable[[], bool]) -> Generator[Any, None, None]:
        import asyncio  # a third of the time of importing everything else, and most callers use threads

        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()

            def wake(future: "Future[None]" = future) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                    loop.call_soon_threadsafe(_set, future)

            with self._owner.lock:
                if ready():
                    return
                self.wakers.append(wake)
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                raise


def deadline_at(where: str, now: int, deadline_ms: float | None) -> int | None:
    """Return when an answer is worthless, by a caller's deadline from now on.

    Raises:
        BadInput: it is no positive number.
    """
    if deadline_ms is None:
        return None
    if type(deadline_ms) not in (int, float) or not 0 < deadline_ms < math.inf:
        raise BadInput(
            f"{where}: expected deadline_ms as positive milliseconds, got {show(deadline_ms)}; leave it out for none"
        )
    return now + int(deadline_ms * NS_PER_MS)


def _set(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Responses(Ticket[list[Outputs]]):
    """A request with one response per part, in order; at most `room` of them lie unread, then the request pauses.

    Each response is delivered once, whoever reads; behind the last one iteration ends, or raises what went wrong.
    """

    has_responses = True

    def __init__(self, owner: Owner, where: str, service: str, parts: int, room: int) -> None:
        """Start without a response."""
        super().__init__(owner, where, service, lambda outputs: [each for part in outputs for each in part], parts)
        if type(room) is not int or room < 1:
            raise BadInput(f"{where}: expected room for at least 1 response, got {show(room)}; leave it out")
        self._room = room
        self._ring: deque[Outputs] = deque()

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """For the server: append a response; it puts none while the ring is full."""
        self._ring += outputs
        self.missing -= 1
        return self.missing == 0

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """For the server: end; what lies in the ring stays readable, unless the caller takes the request back."""
        super().end(outcome, reason, error)
        if outcome == "cancelled":
            self._ring.clear()

    @property
    def is_full(self) -> bool:
        """Whether the reader must take a response before the next one is made."""
        return len(self._ring) >= self._room

    def result(self, timeout: float | None = None) -> list[Outputs]:
        """Read all responses that are not read yet; the timeout holds for each."""
        found = []
        while (response := self._next(timeout)) is not None:
            found.append(response)
        return found

    def __iter__(self) -> Iterator[Outputs]:
        """Yield the responses as they come."""
        while (response := self._next(None)) is not None:
            yield response

    async def __aiter__(self) -> AsyncIterator[Outputs]:
        """Yield the responses as they come; a loop that is cancelled takes the request back."""
        while (response := await _Next(self)) is not None:
            yield response

    def __await__(self) -> Generator[Any, None, list[Outputs]]:
        """Wait for all responses that are not read yet."""
        found = []
        while (response := (yield from _Next(self).__await__())) is not None:
            found.append(response)
        return found

    def _ready(self) -> bool:
        return bool(self._ring) or self.done()

    def _next(self, timeout: float | None) -> Outputs | None:
        """The next response; None behind the last."""
        while True:
            self._wait(self._ready, timeout)
            taken = None
            try:
                with Shield():
                    taken = self._take()
            except BaseException:
                if taken is not None and taken[0] is not None:  # interrupted behind it: the next reader has it
                    self._ring.appendleft(taken[0])
                raise
            if taken is not None:
                return taken[0]

    def _take(self) -> tuple[Outputs | None] | None:
        """The next response, or None behind the last; nothing at all if another reader was quicker.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: what the request ended with, behind the responses before it.
        """
        with self._owner.lock:
            response, ended = (self._ring.popleft() if self._ring else None), self.done()
        if response is None:
            self.check()
        elif not ended:
            self._owner.response_taken(self)
        return None if response is None and not ended else (response,)


class _Next:
    """Awaits the next response of a request."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    def __await__(self) -> Generator[Any, None, Outputs | None]:
        while True:
            yield from self._responses._wait_in_loop(self._responses._ready)
            if taken := self._responses._take():
                return taken[0]
