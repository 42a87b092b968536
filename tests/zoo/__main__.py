"""`python -m tests.zoo export [family ...]` makes the graphs, `python -m tests.zoo table [family ...]` the results."""

import argparse
import sys
from collections.abc import Sequence

from tests.zoo import verdicts
from tests.zoo.export import NotExported, export
from tests.zoo.families import FAMILIES
from tests.zoo.family import Family
from tests.zoo.store import GRAPHS, path_of
from tests.zoo.table import PAGE, page


def main(arguments: list[str]) -> int:
    """Run a command; the number of families that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, told in (("export", "make the graphs"), ("table", "prove, attack and write docs/generated/zoo.md")):
        commands.add_parser(name, help=told).add_argument("families", nargs="*", help="all by default")
    given = parser.parse_args(arguments)
    chosen = [family for family in FAMILIES if not given.families or family.name in given.families]
    return _export(chosen) if given.command == "export" else _table(chosen)


def _export(families: Sequence[Family]) -> int:
    GRAPHS.mkdir(exist_ok=True)
    failed = 0
    for family in families:
        if family.stuck:
            continue
        try:
            content = export(family)
        except NotExported as error:
            failed += 1
            print(f"{family.name}: {error}", flush=True)
        else:
            path_of(family.name).write_bytes(content)
            print(f"{family.name}: {len(content)} bytes", flush=True)
    return failed


def _table(families: Sequence[Family]) -> int:
    found = verdicts.recorded()
    failed = 0
    for family in families:
        try:
            verdict = found[family.name] = verdicts.judge(family)
        except Exception as error:  # noqa: BLE001 - a family that breaks must not hide the others
            failed += 1
            print(f"{family.name}: FAILED {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{family.name}: {verdict.result} {verdict.reason or verdict.error}", flush=True)
    known = {family.name: found[family.name] for family in FAMILIES if family.name in found}
    verdicts.record(known)
    PAGE.write_text(page([family for family in FAMILIES if family.name in known], known), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
