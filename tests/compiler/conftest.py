"""One tiny project, built once for all tests of whole builds."""

from pathlib import Path

import pytest

from tests.kit.models.project import Project
from tests.kit.models.shared import shared_project


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Built once; not to be changed."""
    return shared_project(tmp_path_factory)


@pytest.fixture
def project(shared: Project, tmp_path: Path) -> Project:
    """A copy to change, with the same cache."""
    return shared.copy_to(tmp_path / "project")
