"""Where environments of toolchains lie."""

from pathlib import Path

import pytest

from runtime_lite.executors.toolchain_folder import interpreter_in, toolchains_folder


def test_the_folder_is_that_of_the_variable_or_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLIPWAY_TOOLCHAINS", raising=False)
    assert toolchains_folder() == tmp_path / ".cache/toolchains"
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", "elsewhere")
    assert toolchains_folder() == tmp_path / "elsewhere"
    assert interpreter_in(toolchains_folder() / "x") == tmp_path / "elsewhere/x/bin/python"
