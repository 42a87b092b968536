"""Records what the compiler says and makes of some 2 300 graphs, and compares with a record of another state.

    python -m tests.replay record FOLDER            before a change that is to change nothing
    python -m tests.replay compare FOLDER           after it: 0 when no part of any graph differs

A difference is a defect of before, which gets a test, or one of now, which is undone.
"""

import argparse
import difflib
import json
import lzma
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.replay.corpora import CORPORA, record_of
from tests.replay.trace import Record

Records = dict[str, Record]
"""By graph."""

SHOWN = 12
"""Lines of a difference that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare; the exit status is 1 if something differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="all by default")
    parser.add_argument("--first", type=int, help="graphs of each corpus that are taken; all by default")
    given = parser.parse_args(arguments)
    different = 0
    for corpus in given.corpus or CORPORA:
        began, file = time.monotonic(), given.folder / f"{corpus}.json.xz"
        records = dict(_records(corpus, given.first))
        if given.command == "record":
            given.folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lzma.compress(json.dumps(records).encode(), preset=1))
        else:
            before = json.loads(lzma.decompress(file.read_bytes()))
            different += _compared(corpus, before, records)
        parts, lines = _counted(records)
        print(f"{corpus}: {len(records)} graphs, {parts} parts, {lines} lines, {time.monotonic() - began:.0f} s")
    if given.command == "compare":
        print(f"{different} graphs differ")
    return int(different > 0)


def _records(corpus: str, first: int | None) -> Iterator[tuple[str, Record]]:
    for count, (name, trace) in enumerate(CORPORA[corpus]()):
        if first is not None and count >= first:
            return
        if count and not count % 100:
            print(f"  {corpus}: {count} graphs", flush=True)
        try:
            yield name, record_of(trace)
        except ModuleNotFoundError as error:
            print(f"  {corpus} {name}: left out, needs {error.name}")


def _compared(corpus: str, before: Records, after: Records) -> int:
    """How many graphs differ; prints the first lines of each difference."""
    different = 0
    for name, record in after.items():
        lines = list(differences(before.get(name, {}), record))
        different += bool(lines)
        for line in lines[:SHOWN]:
            print(f"  {corpus} {name}: {line}", flush=True)
    return different


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """The lines that differ, with the part that each belongs to."""
    for part in dict.fromkeys([*before, *after]):
        old, new = (each.get(part, "").splitlines() for each in (before, after))
        if old != new:
            for line in difflib.unified_diff(old, new, lineterm="", n=0):
                if not line.startswith(("---", "+++", "@@")):
                    yield f"{part} {line}"


def _counted(records: Records) -> tuple[int, int]:
    texts = [text for record in records.values() for text in record.values()]
    return len(texts), sum(text.count("\n") + 1 for text in texts)


if __name__ == "__main__":
    sys.exit(main())
