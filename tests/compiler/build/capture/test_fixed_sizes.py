"""fixed_sizes: the line that compares a size with a number is named."""

import logging

import pytest

from compiler.build.capture.fixed_sizes import NOTES, fixing_line


def traced() -> None:
    """As torch's exporter notes it, in the middle of the model's code."""
    log = logging.getLogger(NOTES)
    log.info("create_symbol s77 = 2 for L['x'].size()[0] [2, int_oo]")
    log.info("eval Eq(s77, 5) [guard added] (mp/net.py:7 in forward)")
    log.info("set_replacement s12 = 2 (range_refined_to_singleton) VR[2, 2]")
    raise RuntimeError("Constraints violated")


@pytest.mark.parametrize(("size", "code"), [(None, "Eq(s77, 5)"), (5, "Eq(s77, 5)"), (2, "set_replacement"), (3, "")])
def test_the_line_of_the_first_note_of_that_size(size: int | None, code: str) -> None:
    line = fixing_line(traced, size)
    assert line == "" if not code else ("test_fixed_sizes.py:" in line and "in traced" in line and code in line)


def test_logging_is_left_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger(NOTES)
    before = log.handlers[:], log.propagate, log.isEnabledFor(logging.INFO)
    fixing_line(traced)
    assert (log.handlers[:], log.propagate, log.isEnabledFor(logging.INFO)) == before
    assert not caplog.records
