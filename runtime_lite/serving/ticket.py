"""Defines the caller's handle of a request: waits for it, reads its responses, or cancels it.

The server ends tickets and adds responses under its lock, and then wakes the waiting threads. This module runs no
graph; it only waits. A request ends exactly once.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runtime_lite.errors import BadInput, show
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.refusals import check_seconds
from runtime_lite.serving.request import Answer, LiveRequest, Outputs, Owner
from runtime_lite.serving.shield import Shield

if TYPE_CHECKING:
    from asyncio import Future

Item = TypeVar("Item")
"""A response."""


class Ticket(LiveRequest[Answer]):
    """A request that may still be queued; `submit` returns one."""

    def cancel(self) -> bool:
        """Cancel the request: its answer is not delivered, and parts that do not run yet never run.

        Returns:
            Whether it had not ended yet; a request that has ended does not change.
        """
        return self._owner.cancel(self)

    def when_done(self, call: Callable[[], object]) -> None:
        """Call a function once the request has ended, or at once if it has ended already.

        Args:
            call: a quick function; it is called by the thread that ends the request. An error that it raises affects no
                request; the runtime's health reports it as `observer_fault`.

        Raises:
            BadInput: `call` is not callable.
        """
        if not callable(call):
            raise BadInput(f"{self.where}: expected something to call, got {show(call)}; pass a function")
        with self._owner.lock:
            if not self.done():
                self.wakers.append(lambda: self.when_done(call))  # one that is full wakes, too
                return
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it would end the thread that serves others, or their wait
            self._owner.note_fault("when_done", error)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the answer.

        Args:
            timeout: seconds to wait; None waits without a limit.

        Raises:
            BadInput: the timeout is no number from 0 on.
            TimeoutError: there is no answer yet; the request goes on.
            Cancelled: the request was cancelled.
            Dropped: the runtime dropped the request; the error has the reason.
            RuntimeLiteError: a run of the request failed.
        """
        if self.outcome is None or timeout is not None:
            self._wait(self.done, self.wakers, timeout)
        return self.answer()

    def __await__(self) -> Generator[Any, None, Answer]:
        """Wait for the answer in a coroutine; if the coroutine is cancelled, the request is cancelled, too.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: as `result` does.
        """
        yield from self._wait_in_loop(self.done, self.wakers)
        return self.answer()

    def _wait(self, ready: Callable[[], bool], wakers: list[Callable[[], object]], timeout: float | None) -> None:
        """Wait until `ready`, which is asked again after each call of a function in `wakers`."""
        if timeout is not None:
            check_seconds(self.where, "timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        answered = threading.Lock()
        answered.acquire()
        while True:
            with self._owner.lock:
                if ready():
                    return
                wakers.append(answered.release)
            left = -1.0 if until is None else max(0.0, until - time.monotonic())
            if not answered.acquire(timeout=left):
                with self._owner.lock:
                    if ready():
                        return
                    wakers[:] = [waker for waker in wakers if waker != answered.release]
                raise TimeoutError(f"{self.where}: not ready after {timeout} s; wait longer, or cancel it")

    def _wait_in_loop(
        self, ready: Callable[[], bool], wakers: list[Callable[[], object]]
    ) -> Generator[Any, None, None]:
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
                wakers.append(wake)
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                raise


def deadline_at(where: str, now: int, deadline_ms: float | None) -> int | None:
    """Return the time of the server's clock that is `deadline_ms` from `now`; None without a deadline.

    Raises:
        BadInput: it is not a positive number.
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


class ResponseQueue(Ticket[list[Item]], Generic[Item]):
    """A request with several responses, in order; it pauses while `room` responses are unread.

    Each response is delivered to one reader. After the last one iteration ends, or raises the error of the request.
    """

    def __init__(self, owner: Owner, where: str, service: str, parts: int, room: int) -> None:
        """Start without responses."""
        super().__init__(owner, where, service, lambda outputs: [], parts)
        if type(room) is not int or room < 1:
            raise BadInput(f"{where}: expected room for at least 1 response, got {show(room)}; leave it out")
        self._room = room
        self._ring: deque[Item] = deque()

    def end(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        """End the request; called by the server. Unread responses stay readable unless the caller cancels."""
        super().end(outcome, reason, error)
        if outcome == "cancelled":
            self._ring.clear()

    def is_response(self, index: int) -> bool:
        """Return True: every answer is a response."""
        return True

    @property
    def is_full(self) -> bool:
        """Whether the caller must read a response before the next one is made."""
        return len(self._ring) >= self._room

    def result(self, timeout: float | None = None) -> list[Item]:
        """Read all unread responses; the timeout applies to each of them."""
        found: list[Item] = []
        while True:
            if timeout is None and not self._ring:  # nobody looks at one before the last: wake once for many
                self._wait(self._is_for_all, self.wakers, None)
            if (response := self._next(timeout)) is None:
                return found
            found.append(response)

    def __iter__(self) -> Iterator[Item]:
        """Yield the responses as they come."""
        while (response := self._next(None)) is not None:
            yield response

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yield the responses as they come; if the coroutine is cancelled, the request is cancelled, too."""
        while (response := await _Next(self)) is not None:
            yield response

    def __await__(self) -> Generator[Any, None, list[Item]]:
        """Wait for all unread responses."""
        found: list[Item] = []
        while True:
            if not self._ring:
                yield from self._wait_in_loop(self._is_for_all, self.wakers)
            if (response := (yield from _Next(self).__await__())) is None:
                return found
            found.append(response)

    def _ready(self) -> bool:
        return bool(self._ring) or self.done()

    def _is_for_all(self) -> bool:
        """Whether who reads all responses has something to do."""
        return self.is_full or self.done() or (self.holds_back and bool(self._ring))

    def _next(self, timeout: float | None) -> Item | None:
        """Wait for the next response and return it; None after the last."""
        while True:
            self._wait(self._ready, self.readers, timeout)
            taken = None
            try:
                with Shield():
                    taken = self._take()
            except BaseException:
                if taken is not None and taken[0] is not None:  # interrupted behind it: the next reader has it
                    self._put_back(taken[0])
                raise
            if taken is not None:
                return taken[0]

    def _pop(self) -> Item:
        """Remove and return the next response; called under the lock."""
        return self._ring.popleft()

    def _put_back(self, response: Item) -> None:
        """Undo the last `_pop`."""
        self._ring.appendleft(response)

    def _take(self) -> tuple[Item | None] | None:
        """Take the next response, as a tuple; `(None,)` after the last, None if another reader was quicker.

        Raises:
            Cancelled, Dropped, RuntimeLiteError: the request ended with this error, and all responses before it were
                read.
        """
        with self._owner.lock:
            was_held, ended = self.holds_back, self.done()
            response = self._pop() if self._ring else None
        if response is None:
            self.check()
        elif was_held and not ended:
            self._owner.response_taken(self)
        return None if response is None and not ended else (response,)


class Responses(ResponseQueue[Outputs]):
    """A request with one response per part: the outputs of a chunk."""

    def put(self, index: int, outputs: list[Outputs]) -> bool:
        """Append a response; called by the server, but not while `is_full`."""
        self._ring += outputs
        self.missing -= 1
        return self.missing == 0


class _Next(Generic[Item]):
    """Awaits the next response of a request."""

    def __init__(self, responses: ResponseQueue[Item]) -> None:
        self._responses = responses

    def __await__(self) -> Generator[Any, None, Item | None]:
        while True:
            yield from self._responses._wait_in_loop(self._responses._ready, self._responses.readers)
            if taken := self._responses._take():
                return taken[0]
