"""The virtual clock."""

import pytest

from runtime_lite.scheduling.clock import VirtualClock


def test_moves_when_told_and_never_back() -> None:
    clock = VirtualClock(5)
    assert clock() == 5
    clock.advance_to(9)
    clock.advance_to(9)
    assert clock() == 9
    with pytest.raises(ValueError, match="from 9 on, got 8"):
        clock.advance_to(8)
    assert clock() == 9
