"""The garbage collector comes back as it was."""

import gc

import pytest

from compiler.base.garbage_collection import SELDOM, paused, seldom


def test_it_is_off_in_between_and_back_afterwards() -> None:
    with paused():
        assert not gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_comes_back_after_an_error_and_stays_off_where_it_was_off() -> None:
    with pytest.raises(ValueError, match="broken"), paused():
        raise ValueError("broken")
    assert gc.isenabled()
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_functions_are_decorated() -> None:
    @paused()
    def is_on() -> bool:
        return gc.isenabled()

    assert not is_on() and not is_on() and gc.isenabled()


def test_it_comes_seldom_in_between_and_as_often_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with seldom():
        assert gc.isenabled()
        assert gc.get_threshold() == SELDOM != before
    assert gc.get_threshold() == before


def test_it_comes_as_often_as_before_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="broken"), seldom():
        raise ValueError("broken")
    assert gc.get_threshold() == before
