"""What became of every family, as committed: proved with these limits, refused for this reason, or not exported."""

import dataclasses
import json
from pathlib import Path

from compiler.errors import Refused
from tests.zoo.family import Family
from tests.zoo.prove import Proved, prove
from tests.zoo.store import path_of

FILE = Path(__file__).parent / "verdicts.json"

PROVED, REFUSED, STUCK = "proved", "refused", "not exported"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One line of the table.

    Attributes:
        result: PROVED, REFUSED or STUCK.
        reason: why not, or an empty string.
        nodes: of the graph before padding.
        inserted: nodes that padding added.
        lengths: what is allowed, e.g. `time 30..`.
        error: largest relative difference to the original, one digit.
    """

    result: str
    reason: str = ""
    nodes: int = 0
    inserted: int = 0
    lengths: str = ""
    error: str = ""


def judge(family: Family) -> Verdict:
    """The verdict of today.

    Raises:
        AssertionError: a proof does not hold: the attack sees the padding or the other rows.
    """
    if family.stuck:
        return Verdict(STUCK, family.stuck)
    try:
        proved = prove(family)
    except Refused as refused:
        op = f"{refused.place.op}: " if refused.place.op else ""
        return Verdict(REFUSED, op + refused.message)
    assert proved.measured.is_sound, f"{family.name}: proved, but the attack found {proved.measured}"
    return Verdict(
        PROVED,
        nodes=proved.nodes,
        inserted=proved.inserted,
        lengths=_lengths(proved),
        error=f"{max(proved.measured.error, proved.measured.together):.0e}",
    )


def _lengths(proved: Proved) -> str:
    limits = ((each.axis, each.minimum, each.maximum) for each in proved.axes)
    return ", ".join(f"{axis} {least}..{'' if most is None else most}" for axis, least, most in limits)


def recorded() -> dict[str, Verdict]:
    """The committed verdicts, by family."""
    return {name: Verdict(**found) for name, found in json.loads(FILE.read_text(encoding="utf-8")).items()}


def record(verdicts: dict[str, Verdict]) -> None:
    """Write the verdicts down."""
    plain = {name: {k: v for k, v in dataclasses.asdict(found).items() if v} for name, found in verdicts.items()}
    FILE.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def is_exported(family: Family) -> bool:
    """Whether the family's graph is there."""
    return path_of(family.name).is_file()
