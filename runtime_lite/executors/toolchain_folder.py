"""Locates the Python environments of vendors' toolchains on this machine, one per vendor.

`build.py doctor --install NAME` makes them, in `$SLIPWAY_TOOLCHAINS` or `.cache/toolchains` of the current folder.
"""

import os
from pathlib import Path

FOLDER_VARIABLE = "SLIPWAY_TOOLCHAINS"

DEFAULT_FOLDER = Path(".cache") / "toolchains"


def toolchains_folder() -> Path:
    """Return the absolute path of the folder of all environments, which may not exist."""
    return Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).absolute()


def interpreter_in(environment: Path) -> Path:
    """Return the path of the Python interpreter of an environment.

    Args:
        environment: its folder.
    """
    return environment / "bin" / "python"
