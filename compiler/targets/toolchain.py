"""Runs a vendor's script in the vendor's Python environment: passes it a JSON request, and collects its files.

    python SCRIPT FOLDER < request.json

The script reads one JSON object from standard input and writes into the folder, which is empty. It ends with 0; or with
3, the vendor refuses the graph, or 5, something of the toolchain is not there, and says why in the last line that it
writes to standard error. It imports nothing of ours: the other interpreter may be of another version.
"""

import contextlib
import dataclasses
import enum
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from compiler.base.interruption import shielded
from compiler.errors import InternalError, Location, Refused, ToolchainAbsent
from compiler.graph import model as graphs
from runtime_lite.errors import FRONT_DOOR

TAIL_BYTES = 4096
TAIL_LINES = 5
"""Characters of a script's output that a message shows when the script fails."""

LOOK_S = 0.1
"""How often the memory of a script is looked at."""


class _Limit(enum.Enum):
    TIME = "time"
    MEMORY = "memory"


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """How a toolchain that needs a process or an environment of its own is started.

    Attributes:
        python: the interpreter of that environment.
        script: a file in the vendor's folder.
        limit_s: seconds after which it is ended, with every process that it has started.
        limit_bytes: the same where its own process holds more memory than that; None for no limit. Only Linux says how
            much a process holds; elsewhere nothing is limited.
    """

    python: Path
    script: Path
    limit_s: float
    limit_bytes: int | None = None

    def run(self, request: Mapping[str, Any], out: Path) -> None:
        """Run the script; afterwards all its files are in `out`, or none.

        Args:
            request: input of the script; its paths are absolute.
            out: a folder that is empty or does not exist, in one that does.

        Raises:
            Refused: the vendor's tools refuse, crash, or do not end.
            ToolchainAbsent: the interpreter does not start, or the script lacks a module.
            InternalError: the script itself failed.
        """
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            made_folder, log = Path(scratch) / "made", Path(scratch) / "stderr"
            made_folder.mkdir()
            (Path(scratch) / "request.json").write_text(json.dumps(request), encoding="utf-8")
            self._judge(self._ended(Path(scratch), made_folder), log)
            made_folder.rename(out)

    def _ended(self, scratch: Path, made: Path) -> int | _Limit:
        """Return the exit code, or the limit that was reached; all processes of the script have ended."""
        command = [str(self.python), "-E", "-s", str(self.script), str(made)]
        with (
            (scratch / "request.json").open("rb") as request,
            (scratch / "stdout").open("wb") as out,
            (scratch / "stderr").open("wb") as err,
        ):  # files, not pipes: a child that outlives the script may hold a pipe open for ever
            process = None
            try:
                with shielded():  # a signal on the way would leave a process that nobody knows
                    process = subprocess.Popen(
                        command, stdin=request, stdout=out, stderr=err, cwd=scratch, start_new_session=True
                    )
                return self._watched(process)
            except OSError as error:
                raise ToolchainAbsent(
                    f"expected the interpreter {self.python}, got {error.strerror}",
                    cure=f"`{FRONT_DOOR} doctor` lists what is missing here",
                ) from None
            finally:
                if process is not None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _watched(self, process: "subprocess.Popen[bytes]") -> int | _Limit:
        """Wait for the end of the process, or for the first limit."""
        end_s = time.monotonic() + self.limit_s
        while True:
            left_s = end_s - time.monotonic()
            try:
                return process.wait(left_s if self.limit_bytes is None else min(left_s, LOOK_S))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end_s:
                    return _Limit.TIME
            if self.limit_bytes is not None and _bytes_held(process.pid) > self.limit_bytes:
                return _Limit.MEMORY

    def _judge(self, code: int | _Limit, log: Path) -> None:
        """Raise unless the script ended successfully."""
        name, said = self.script.name, _last_lines(log)
        last = said[-1].removeprefix("error: ") if said else "no reason"
        wrote = f" (it wrote: {' | '.join(said)})" if said else ""
        if code is _Limit.TIME:
            raise Refused(
                f"expected {name} to end within {self.limit_s:g} s, got no end{wrote}",
                cure="take a smaller graph, or a faster machine",
            )
        if isinstance(code, _Limit):
            raise Refused(
                f"expected {name} to hold at most {self.limit_bytes or 0:,} bytes of memory, got more{wrote}",
                cure="take a smaller graph",
            )
        if code == Refused.exit_code:
            raise Refused(last, cure="change the graph or the options of the target")
        if code == ToolchainAbsent.exit_code:
            raise ToolchainAbsent(last, cure=f"`{FRONT_DOOR} doctor` lists what is missing here")
        if code < 0:
            raise Refused(
                f"expected {name} to end by itself, got a process ended by {_signal_name(-code)}{wrote}",
                cure=f"check the toolchain with `{FRONT_DOOR} doctor`",
            )
        if code:
            raise InternalError(f"{name} ended with {code}{wrote}")


def _bytes_held(process: int) -> int:
    """Return the resident memory of a process in bytes; 0 where it has ended or the system does not report it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _last_lines(log: Path) -> list[str]:
    """Return the last lines of a log, without empty lines and unprintable characters."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - TAIL_BYTES, 0))
        text = file.read().decode(errors="replace")
    lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
    return [line for line in lines if line][-TAIL_LINES:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def build_plans(bundle: Path, folder: str) -> dict[str, dict[str, Any]]:
    """Return the plans of a bundle's engines, by file relative to the bundle, in the order of their names.

    Args:
        bundle: folder of the bundle.
        folder: the vendor's folder in it.
    """
    files = sorted((bundle / folder).glob("*.build_plan.json"))
    return {f"{folder}/{file.name}": json.loads(file.read_text(encoding="utf-8")) for file in files}


def answer_of(file: Path, worker: Path) -> dict[str, Any]:
    """Return what a vendor's script has written of its task.

    Raises:
        Refused: it is not JSON.
    """
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(
            f"expected an answer in JSON of {worker.name}, got {error}", cure="install the toolchain again"
        ) from None
    return told


def refusal_of(told: Mapping[str, Any], bundle: Path, device: str, place: Location, otherwise: str) -> Refused:
    """Return the refusal of a graph file that a vendor's compiler does not take as a whole.

    Args:
        told: entry of `refused` in the script's answer: `graph`, the file; `nodes`, name and operator of each that
            stays outside of the engine; `reason`, where there are none.
        bundle: the bundle's folder.
        device: what the engine is for.
        place: the target; the first node is added.
        otherwise: what to build for where the graph cannot be changed.
    """
    file, named = told["graph"], told["nodes"]
    where = f"{file}: expected a graph that {device} computes as a whole"
    if not named:
        return Refused(f"{where}, got: {told['reason']}", cure=f"change the graph, or build for {otherwise}")
    name, op = named[0]
    node = next((each for each in ir.load(bundle / file).graph if each.name == name), None)
    listed = ", ".join(f"{name} ({op})" for name, op in named)
    return Refused(
        f"{where}, got {len(named)} that the vendor leaves to the CPU: {listed}",
        cure="write them with other operators in the model, or build for another target",
        place=dataclasses.replace(
            place, node=name, op=op if node is None else node.op_type, source=graphs.source_of(node)
        ),
    )
