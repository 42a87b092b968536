"""Protects sections of the main thread from signal handlers: their exceptions are raised when a section has ended.

    with Shield():              # changes shared records: handlers wait
        with Window():          # within it, a wait or a run: handlers may raise again
            ...

Python calls signal handlers in the main thread, between any two of its instructions: Ctrl-C, alarms and time-outs that
raise there would leave a section half done. Within a shield another handler is in their place, which notes that the
signal came; at its end, or when a window opens, they are called. In every other thread none of this does anything.

Handlers are put in place by the function behind `signal.signal`, which does not turn numbers into names first: that
takes three microseconds, and this three tenths of one.
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
"""The main thread, which is in a fork the one that forked; asking `threading` each time would take a microsecond."""

_held: list[tuple[int, Any]] | None = None
"""Signals and their handlers, while these wait; None while they are in place. Of the main thread alone."""

_inner: dict[int, Any] = {}
"""Handlers by signal, while a window is open."""

_raised = 0
"""The `id` of what a handler raised last in a window: the error itself would keep its frames alive."""

_noted: list[int] = []
"""Signals that came meanwhile."""


class Shield:
    """Lets handlers wait until the body has ended; one within another does nothing more."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        """Put handlers off; whatever one raises that is called at this moment comes before the body."""
        self._mine = threading.get_ident() == _main and _held is None
        if self._mine:
            _put_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call what has waited, which may raise."""
        if self._mine and _held is not None:
            _call_noted(_put_back())


class Window:
    """Within a shield, lets handlers be called while the body waits or runs something."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        """Call what has waited, which may raise; the shield is closed again then."""
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
    """Return a function whose whole body is within a shield."""

    @functools.wraps(function)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Result:
        with Shield():
            return function(*arguments, **options)

    return call


def close_window() -> None:
    """Within a shield, see that it is closed: a second signal may have come while a window closed for the first."""
    while threading.get_ident() == _main and _held is None:
        _put_off()


class Torn(BaseException):
    """A run in a window that a signal handler has cut in two: no fault of what runs, whatever kind of error it is.

    Attributes:
        error: what the handler raised.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error


def raised_by_handler(error: BaseException | None) -> BaseException | None:
    """What a handler raised in the last window, if an error that came out of it is that, or was made of it."""
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
    """Put a handler that takes notes in the place of each that could raise; all of them, or none."""
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
    """Put the handlers back; return what the first of them raised that was called at this moment."""
    global _held
    found, _held = _held or [], None
    return _restore(found)


def _open() -> BaseException | None:
    """Put handlers in place that tell of what they raise; return what the first of them raised at this moment."""
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
    """Call the handlers of what was noted, all of them.

    Raises:
        BaseException: what the first of them raised, or was raised before.
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
