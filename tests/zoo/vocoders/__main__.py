"""`python -m tests.zoo.vocoders [vocoder ...]` derives the steps of vocoders, and writes their rows of the page."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from compiler.errors import SlipwayError
from tests.zoo.derived.__main__ import rows_of
from tests.zoo.vocoders.families import FAMILIES
from tests.zoo.vocoders.family import Vocoder
from tests.zoo.vocoders.prove import Streamed, stream, stream_later

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "vocoder_zoo.md"

HEAD = """# The zoo of vocoders and codec decoders

Vocoders and decoders of codecs in tiny configurations with random weights, written with torch alone from their papers:
whole sequences of frames in, the whole waveform out. The recipe lists the inputs, two axes and `derive_steps`, as
[derived steps](../derived_steps.md#several-entries-per-frame) says, and nothing knows a family.

**Built** means: steps were derived and the passes of a build went through; the checker replayed every step of every
certificate; three rows of 31 frames were streamed in pushes of 1, of 2, of 3, of prime and of random numbers of
frames, and whole. After every push there were exactly as many samples as frames had come, times the samples of a
frame, and the joined sound equals the module's over the whole sequence. *Error* is the largest difference, relative to
the largest sample; *kept* are the numbers that a stream of one row keeps from push to push, however long it is.
**Refused** gives the reason: a build stops there. What reads a bounded number of frames ahead is *derived later*: the
graph of a call answers as many frames later as it must, and as many are fed behind the end. Certificates of both are
replayed, and the sound of the same pushes is compared as above: the delay's zeros, then the module's samples to the
last. No recipe asks for that yet, as no runtime feeds the marks by which such a graph knows the frames behind the end.

`python -m tests.zoo.vocoders [vocoder ...]` writes these rows.

Of {all} {built} are built, and {later} more are derived later.

| decoder | layers | result | samples per frame | states | kept | steps proved | error |
|---|---|---|---|---|---|---|---|"""


def main(arguments: list[str]) -> int:
    """Stream the chosen vocoders and write their rows of the page; the others stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.vocoders", description=__doc__)
    parser.add_argument("vocoders", nargs="*", help="all by default")
    options = parser.parse_args(arguments)
    for family in FAMILIES:
        if not options.vocoders or family.name in options.vocoders:
            row = row_of(family)
            print(row, flush=True)
            known = rows_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
            PAGE.write_text(page({**known, family.name: row}), encoding="utf-8")
    return 0


def row_of(family: Vocoder) -> str:
    """The row of a vocoder."""
    begun = f"| {family.name} | {family.layers} |"
    try:
        return f"{begun} built | {_figures(stream(family))} |"
    except SlipwayError as error:
        told = error.message.removeprefix("no steps can be derived: ").split(";")[0].split(" at tests/")[0]
    try:
        later = stream_later(family)
    except SlipwayError:
        return f"{begun} refused: {told} | | | | | |"
    return f"{begun} refused: {told}; derived {later.delay} frames later | {_figures(later)} |"


def _figures(found: Streamed) -> str:
    return f"{found.per_frame} | {found.caches} | {found.kept} | {found.replayed} | {found.error:.0e}"


def page(rows: Mapping[str, str]) -> str:
    """The page of all vocoders that have a row."""
    ordered = [rows[family.name] for family in FAMILIES if family.name in rows]
    built, later = (sum(told in row for row in ordered) for told in ("| built |", "; derived "))
    return "\n".join([HEAD.format(all=len(ordered), built=built, later=later), *ordered, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
