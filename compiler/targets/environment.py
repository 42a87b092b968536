"""Describes the Python environment that holds a vendor's toolchain, and checks whether this machine has it.

The packages of vendors exclude each other, and those of this project: each vendor has an environment of its own, made
from a lock file in the vendor's folder. `install.py` makes it.
"""

import dataclasses
from pathlib import Path

from runtime_lite.errors import FRONT_DOOR
from runtime_lite.executors.toolchain_folder import interpreter_in, toolchains_folder

INSTALLED = "installed.lock"
"""In a complete environment a copy of the lock file that it was made from."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """What a vendor's toolchain consists of, and what is to be known before it is installed.

    Attributes:
        name: name of its folder.
        python: version of Python that its packages are for, as `3.11`.
        lock: file of exact requirements, one a line, the vendor's own package first.
        worker: script that speaks for the toolchain, see `toolchain.py`; asked for `{"task": "version"}`, it loads the
            vendor's library and writes `version.txt`.
        licence: under which terms the vendor's files are used, in one sentence.
        fetched_mb: megabytes that are fetched to install it.
        installed_mb: megabytes that it takes on disk.
        verifies: what it can show of a bundle on a machine without the device.
    """

    name: str
    python: str
    lock: Path
    worker: Path
    licence: str
    fetched_mb: int
    installed_mb: int
    verifies: str

    @property
    def folder(self) -> Path:
        """Return the absolute path of the environment on this machine."""
        return toolchains_folder() / self.name

    @property
    def interpreter(self) -> Path:
        """Return the path of its Python interpreter."""
        return interpreter_in(self.folder)

    @property
    def requirements(self) -> tuple[str, ...]:
        """Return its packages with their versions, as `name==version`."""
        lines = (line.strip() for line in self.lock.read_text(encoding="utf-8").splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))

    @property
    def version(self) -> str:
        """Return the vendor's own package with its version, as `name 1.0`."""
        return self.requirements[0].replace("==", " ")

    @property
    def size(self) -> str:
        """Return in words what it takes."""
        return f"{self.fetched_mb} MB to fetch, {self.installed_mb} MB on disk"

    @property
    def install(self) -> str:
        """Return the command that installs it."""
        return f"{FRONT_DOOR} doctor --install {self.name}"

    def fault(self) -> str:
        """Return why the environment cannot be used on this machine; an empty text where it can."""
        if not self.folder.is_dir():
            return f"expected the environment {self.folder}, got none"
        try:
            made_from = (self.folder / INSTALLED).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return f"expected a complete environment in {self.folder}, got one without {INSTALLED}"
        if made_from != self.lock.read_text(encoding="utf-8"):
            return f"expected {self.version} as it is locked in {self.folder}, got another installation"
        if not self.interpreter.exists():
            return f"expected Python {self.python} in {self.folder}, got none: it was moved or removed"
        return ""
