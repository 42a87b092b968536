"""A runtime that tests of serving hold by its parts; a file whose place is another has a `bundle` of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime_lite.bundles import write_double_bundle
from tests.runtime_lite.serving.served import Place, serve


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double_bundle(tmp_path_factory.mktemp("double"))


@pytest.fixture
def place(bundle: Path) -> Iterator[Place]:
    with serve(bundle) as opened:
        yield opened
