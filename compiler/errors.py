"""Defines the errors of the toolchain: whose fault each is, and its exit code.

    yours        RecipeError, CheckpointError, DataError   2   the recipe, the checkpoint or the data is wrong
    unsupported  Refused                                   3   cannot be proved, or no rule exists
    numerics     GateFailed                                4   a promise of the build does not hold
    toolchain    ToolchainAbsent                           5   a target's compiler is not here (`--strict`, `finish`)
    the machine  MachineError                              2   the disk is full, a place is not writable, no memory
    ours         InternalError                             1   a bug of Slipway

Messages read `<where>: expected <E>, got <G>; <what to do>`.
"""

import dataclasses
import errno
from collections.abc import Iterable
from typing import ClassVar

from compiler.base.records.findings import Finding
from runtime_lite.errors import RuntimeLiteError

BUG = "this is a bug of Slipway, please report it with the output of -v"
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
NOT_WRITABLE = frozenset({errno.ENAMETOOLONG, errno.EFBIG})


@dataclasses.dataclass(frozen=True)
class Location:
    """Where in the build something happened; unknown parts stay empty.

    Attributes:
        stage: build stage, e.g. `capture` or `pad_axes`.
        graph: graph name in the recipe.
        node: node name in the graph.
        op: operator of the node, e.g. `Softmax`.
        tensor: value name.
        axis: axis name from the recipe.
        source: the model's source line, `path/to/model.py:120 in forward`.
    """

    stage: str = ""
    graph: str = ""
    node: str = ""
    op: str = ""
    tensor: str = ""
    axis: str = ""
    source: str = ""

    def __str__(self) -> str:
        known = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return ", ".join(f"{name} {value}" for name, value in known if value)


class SlipwayError(Exception):
    """An error with a place, a sentence and a cure.

    Args:
        message: one sentence, `expected <E>, got <G>` where both exist.
        cure: what the user can do about it.
        place: where it happened.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, cure: str = "", place: Location | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure
        self.place = place or Location()

    def at(self, **known: str) -> "SlipwayError":
        """Fill in the missing parts of the error's location, and return self."""
        missing = {name: value for name, value in known.items() if not getattr(self.place, name)}
        self.place = dataclasses.replace(self.place, **missing)
        return self

    def __str__(self) -> str:
        where = str(self.place)
        return (f"{where}: " if where else "") + self.message + (f"; {self.cure}" if self.cure else "")


class RecipeError(SlipwayError):
    """The recipe cannot be read or contradicts itself."""

    exit_code = 2


class CheckpointError(SlipwayError):
    """The checkpoint is missing, unreadable, or does not fit the model."""

    exit_code = 2


class DataError(SlipwayError):
    """A data generator or feed is wrong."""

    exit_code = 2


class Refused(SlipwayError):
    """The build stops because something cannot be proved or has no rule."""

    exit_code = 3


class GateFailed(SlipwayError):
    """A parity, task or budget gate does not hold.

    Args:
        message: one sentence, `expected <E>, got <G>`.
        cure: what the user can do about it.
        place: where it happened.
        findings: the measurements of this gate, with its limits.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, cure: str = "", place: Location | None = None, findings: Iterable[Finding] = ()
    ) -> None:
        super().__init__(message, cure=cure, place=place)
        self.findings = tuple(findings)


class ToolchainAbsent(SlipwayError):
    """A target's toolchain is not on this machine, and it was asked for by `--strict` or `finish`."""

    exit_code = 5


class InternalError(SlipwayError):
    """A bug of Slipway."""

    exit_code = 1


class MachineError(SlipwayError):
    """The machine has no room, no memory, or does not let us write."""

    exit_code = 2


def blamed(error: Exception) -> SlipwayError:
    """Return any error as a SlipwayError with a cure and an exit code; unexpected errors are bugs of Slipway."""
    if isinstance(error, InternalError):
        cure = f"{error.cure}; {BUG}" if error.cure else BUG
        return InternalError(error.message, cure=cure, place=error.place)
    if isinstance(error, SlipwayError):
        return error
    if isinstance(error, RuntimeLiteError):
        kinds: dict[int, type[SlipwayError]] = {2: DataError, 4: GateFailed, 5: ToolchainAbsent}
        return kinds.get(error.exit_code, InternalError)(str(error))
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        place = error.filename2 or error.filename or "disk"  # of two, the second is what was written
        return MachineError(
            f"{place}: expected free space, got a full disk", cure="free some, or choose --out elsewhere"
        )
    if isinstance(error, OSError) and error.errno in NOT_ALLOWED | NOT_WRITABLE and error.filename:
        return MachineError(
            f"{error.filename}: expected access, got {error.strerror!r}", cure="check the path and its permissions"
        )
    if isinstance(error, MemoryError):
        return MachineError(
            "expected enough memory, got none", cure="close other programs, or build with smaller buckets"
        )
    return InternalError(f"{type(error).__name__}: {error}".removesuffix(": "), cure=BUG)
