"""Installs the Python environment of a vendor's toolchain: makes it in a scratch folder, tries it, and moves it.

Whatever fails or interrupts it, the environment is the one before, or none, or the complete new one.
"""

import collections
import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from compiler.base.interruption import shielded
from compiler.errors import SlipwayError, ToolchainAbsent
from compiler.targets.environment import INSTALLED, Environment
from compiler.targets.toolchain import Toolchain
from runtime_lite.executors.toolchain_folder import interpreter_in

TRIAL_S = 300.0
"""Seconds in which the vendor's library must have been loaded once; it takes about one."""

KEPT_LINES = 5
"""Last lines of pip's output that are looked at for the reason of a failure."""

PIP = (
    "install",
    "--no-deps",  # the lock lists everything
    "--only-binary=:all:",  # nothing is compiled, and no code of a package runs
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--requirement",
)

Tell = Callable[[str], None]
"""Shows a line to the user."""


def install(environment: Environment, tell: Tell) -> None:
    """Install a vendor's toolchain on this machine, or say that it is installed.

    Licence and size are told before anything is fetched. Packages come from where pip is configured to look.

    Args:
        environment: what to install.
        tell: shows what is done.

    Raises:
        ToolchainAbsent: the Python version is not here, a package cannot be had, or what was installed does not start.
        OSError: the disk is full, or the folder is not writable.
    """
    if not environment.fault():
        tell(f"{environment.name}: {environment.version} is installed in {environment.folder}")
        return
    tell(f"{environment.name}: {environment.version} and {len(environment.requirements) - 1} packages that it needs")
    tell(f"licence: {environment.licence}")
    tell(f"size: {environment.size}, in {environment.folder}")
    python = python_of(environment)
    with (
        _alone(environment, tell),
        tempfile.TemporaryDirectory(prefix=_prefix(environment), dir=_place(environment)) as scratch,
    ):
        made = Path(scratch) / "made"
        _run([str(python), "-m", "venv", "--without-pip", str(made)], environment, hear=lambda line: None)
        _fetch(environment, made, tell)
        tell("starting it once")
        version = _tried(environment, made, Path(scratch) / "trial")
        shutil.copyfile(environment.lock, made / INSTALLED)
        with shielded():
            if environment.folder.exists():
                environment.folder.rename(Path(scratch) / "before")
            made.rename(environment.folder)
    tell(f"{environment.name}: {version} is installed in {environment.folder}; it {environment.verifies}")


def _place(environment: Environment) -> Path:
    """Return the folder of all environments, which is made first where it is not there."""
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    return environment.folder.parent


def _prefix(environment: Environment) -> str:
    """Return how the names of the folders begin in which an environment is made."""
    return f".{environment.name}-"


@contextlib.contextmanager
def _alone(environment: Environment, tell: Tell) -> Iterator[None]:
    """Wait for other installations on this machine, and remove what one that was killed has left behind."""
    place = _place(environment)
    handle = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another installation")
            fcntl.flock(handle, fcntl.LOCK_EX)
        for left in place.glob(f"{_prefix(environment)}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def python_of(environment: Environment) -> Path:
    """Return an interpreter of the version that a toolchain needs.

    Raises:
        ToolchainAbsent: there is none on this machine.
    """
    wanted = environment.python
    if wanted == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise ToolchainAbsent(
            f"{environment.name}: expected Python {wanted} as python{wanted}, got none",
            cure="install it with its venv module, and repeat the command",
        )
    return Path(found)


def _fetch(environment: Environment, made: Path, tell: Tell) -> None:
    """Install the packages with this interpreter's pip, and tell of each."""
    command = [sys.executable, "-m", "pip", "--python", str(interpreter_in(made)), *PIP, str(environment.lock)]
    total, collected = len(environment.requirements), list[str]()

    def hear(line: str) -> None:
        package = re.match(r"(?:Collecting|Processing) (?:\S*/)?(\S+)", line)
        if package:
            collected.append(package[1])
            tell(f"fetching {package[1]} ({len(collected)} of {total})")
        elif line.startswith("Installing"):
            tell("installing what was fetched")

    _run(command, environment, hear)


def _run(command: Sequence[str], environment: Environment, hear: Tell) -> None:
    """Run a command; when this ends, so have all its processes.

    Args:
        command: the command.
        environment: what it is run for.
        hear: is given each line that the command prints, while it runs.

    Raises:
        ToolchainAbsent: it fails; the message has its reason.
        OSError: the disk is full.
    """
    process, last = None, collections.deque[str](maxlen=KEPT_LINES)
    try:
        with shielded():  # a signal on the way would leave a process that nobody knows
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.strip())
            hear(line.strip())
        code = process.wait()
    finally:
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    if code:
        _fail(environment, last)


def _fail(environment: Environment, last: Iterable[str]) -> None:
    """Raise for a command that failed.

    Raises:
        ToolchainAbsent: with the last reason that it printed.
        OSError: the disk is full.
    """
    lines = list(last)
    if any("No space left on device" in line for line in lines):
        raise OSError(errno.ENOSPC, "No space left on device", str(environment.folder))
    reasons = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason"]
    raise ToolchainAbsent(
        f"{environment.name}: expected its packages to be installed, got {reasons[-1].removeprefix('ERROR: ')}",
        cure="nothing was left behind; make the packages available to pip, and repeat the command",
    )


def _tried(environment: Environment, made: Path, out: Path) -> str:
    """Start the toolchain of a new environment, and return what it says of its version.

    Raises:
        ToolchainAbsent: it does not start.
    """
    try:
        Toolchain(interpreter_in(made), environment.worker, TRIAL_S).run({"task": "version"}, out)
    except SlipwayError as error:
        raise ToolchainAbsent(
            f"{environment.name}: expected a toolchain that starts, got: {error.message}",
            cure="nothing was left behind; its page says which machines it is for",
        ) from None
    return (out / "version.txt").read_text(encoding="utf-8")
