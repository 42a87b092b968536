"""Seeds and markers; fixtures with logic live beside the tests that use them."""

import gc
import os
import random
import signal
import sys
from collections.abc import Iterator
from unittest import mock

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("search", deadline=None, print_blob=True, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("SLIPWAY_FUZZ", "quick"))

SEED = 20_261_120


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start every test from the same random state; say why a device test is skipped."""
    random.seed(SEED)
    np.random.seed(SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)
    if item.get_closest_marker("device") and "SLIPWAY_DEVICE" not in os.environ:
        pytest.skip("needs an accelerator; set SLIPWAY_DEVICE=1 on a machine that has one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Undo what libraries have set: torch names a folder to its processes, which later tests would take as told."""
    with mock.patch.dict(os.environ):
        yield


def pytest_configure() -> None:
    """Let Ctrl-C work in the processes that tests start: a shell that runs the suite in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Collect without the garbage collector: it would look at the growing heap of tests again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector work again."""
    gc.enable()
