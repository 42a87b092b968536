"""Errors say whose fault it is by their exit code, and untrusted values are shown short and harmless."""

import copy

import pytest

from runtime_lite import (
    BadInput,
    BundleRefused,
    Cancelled,
    Dropped,
    ExecutorFailed,
    GateFailed,
    InternalError,
    Overloaded,
    RuntimeLiteError,
    StreamLost,
)
from runtime_lite.errors import show


def test_exit_codes_are_those_of_the_command_line() -> None:
    codes = {BadInput: 2, BundleRefused: 2, Cancelled: 2, GateFailed: 4, InternalError: 1}
    for error, code in codes.items():
        assert issubclass(error, RuntimeLiteError)
        assert error.exit_code == code
    for kind in (ExecutorFailed, Overloaded, Dropped):
        assert (kind("why", "hang").exit_code, kind("why", "hang").reason) == (5, "hang")


@pytest.mark.parametrize("value", ["\x1b[2J", "a\nb", "\ud800", "x" * 10**6, {"a": ["\u202e"] * 1000}, b"\xff" * 500])
def test_untrusted_values_are_shown_short_and_printable(value: object) -> None:
    text = show(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 100


@pytest.mark.parametrize("kind", [Dropped, ExecutorFailed, Overloaded])
def test_a_copy_has_the_reason_as_one_for_another_process_needs(
    kind: type[Dropped | ExecutorFailed | Overloaded],
) -> None:
    for error in (copy.copy(kind("why", "hang")), copy.deepcopy(kind("why", "hang"))):
        assert (type(error), str(error), error.reason) == (kind, "why", "hang")


def test_a_lost_stream_says_which_chunk_counted_last_also_to_another_process() -> None:
    lost = copy.copy(StreamLost("why", "moved", 7))
    assert (str(lost), lost.reason, lost.last_counted, lost.exit_code) == ("why", "moved", 7, 5)
    assert StreamLost("why", "unknown").last_counted is None
