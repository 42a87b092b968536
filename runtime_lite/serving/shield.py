"""Delays signal handlers while the main thread is in a protected section, and calls them at its end.

    with Shield():              # changes shared records: handlers wait
        with Window():          # within it, a wait or a run: handlers may raise again
            ...

Python calls signal handlers in the main thread, between any two instructions; a handler that raises there, for Ctrl-C
or an alarm, would leave a section half done. Within a shield each handler is replaced by one that only records the
signal. The handlers are called at the end of the shield, or when a window opens. In other threads shields and windows
do nothing.

Handlers are set by the C function behind `signal.signal`, which skips the conversion of numbers to names: this takes
0.3 instead of 3 microseconds.
"""

import _signal  # type: ignore[import-not-found]
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_set: Callable[[int, Any], Any] = _signal.signal
_get: Callable[[int], Any] = _signal.getsignal
_NUMBERS = sorted(int(number) for number in signal.valid_signals())

_main = threading.main_thread().ident
"""Identifier of the main thread; in a forked child, of the thread that forked. A call of `threading` takes 1 us."""

_held: list[tuple[int, Any]] | None = None
"""Signals and their handlers while a shield has replaced these; None otherwise. Used by the main thread alone."""

_inner: dict[int, Any] = {}
"""Handlers by signal while a window is open."""

_raised = 0
"""The `id` of the last error that a handler raised in a window; the error itself would keep its frames alive."""

_noted: list[int] = []
"""Signals that came while handlers were replaced."""


class Shield:
    """Delays signal handlers until the body has ended; a shield within another one does nothing."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        """Replace the handlers; an error of a handler that is called at this moment is raised before the body."""
        self._mine = threading.get_ident() == _main and _held is None
        if self._mine:
            _put_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call the delayed handlers, which may raise."""
        if self._mine and _held is not None:
            _call_noted(_put_back())


class Window:
    """Within a shield, lets handlers be called while the body waits or runs a graph."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        """Call the delayed handlers; if one raises, the shield is closed again."""
        self._mine = threading.get_ident() == _main and _held is not None
        if self._mine:
            global _raised
            _raised = 0
            try:
                _call_noted(_open())
            except BaseException:
                close_window()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the shield again."""
        if self._mine:
            close_window()


def shielded(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a function whose whole body runs within a shield."""

    @functools.wraps(function)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Result:
        with Shield():
            return function(*arguments, **options)

    return call


def close_window() -> None:
    """Within a shield, close an open window; a second signal may have interrupted its closing."""
    while threading.get_ident() == _main and _held is None:
        _put_off()


class Torn(BaseException):
    """Raised if the exception of a signal handler, of any type, interrupts a run in a window; the run has no fault.

    Attributes:
        error: the exception of the handler.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error


def raised_by_handler(error: BaseException | None) -> BaseException | None:
    """Return the exception of a handler in the last window, if it is `error` or one of its causes; else None."""
    while error is not None and threading.get_ident() == _main:
        if id(error) == _raised:
            return error
        error = error.__cause__ or error.__context__
    return None


def _is_main_now() -> None:
    global _main
    _main = threading.get_ident()


os.register_at_fork(after_in_child=_is_main_now)


def _put_off() -> None:
    """Replace each handler that could raise by one that records its signal; all of them, or none."""
    global _held
    found = [(number, handler) for number in _NUMBERS if callable(handler := _get(number))]
    found = [(number, _inner[number] if handler is _through else handler) for number, handler in found]
    try:
        for number, _ in found:
            _set(number, _note)
    except BaseException:  # the handler of one that came before its turn
        _restore(found)
        raise
    _held = found


def _put_back() -> BaseException | None:
    """Restore the handlers; return the exception of the first one that was called and raised at this moment."""
    global _held
    found, _held = _held or [], None
    return _restore(found)


def _open() -> BaseException | None:
    """Set handlers that record their exceptions; return the first one that was raised at this moment."""
    global _held
    found, _held = _held or [], None
    _inner.update(found)
    return _restore([(number, _through) for number, _ in found])


def _through(number: int, frame: FrameType | None) -> None:
    global _raised
    try:
        _inner[number](number, frame)
    except BaseException as error:
        _raised = id(error)
        raise


def _restore(found: list[tuple[int, Any]]) -> BaseException | None:
    first: BaseException | None = None
    for number, handler in found:
        while _get(number) is not handler:
            try:
                _set(number, handler)
            except BaseException as error:  # noqa: BLE001 - raised by its caller, when all are in place
                first = first or error
    try:
        return first
    finally:
        del first  # its traceback holds this frame: no circle, or what it holds would wait for the collector


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)


def _call_noted(first: BaseException | None) -> None:
    """Call the handlers of all recorded signals, then raise.

    Raises:
        BaseException: `first`, or else the exception of the first handler that raised.
    """
    while _noted:
        number = _noted.pop(0)
        handler = _get(number)
        try:
            if callable(handler):
                handler(number, sys._getframe(1))
        except BaseException as error:  # noqa: BLE001 - raised when all have been called
            first = first or error
    try:
        if first is not None:
            raise first
    finally:
        del first  # no circle here either
