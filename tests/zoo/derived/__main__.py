"""`python -m tests.zoo.derived [decoder ...]` derives the steps of decoders, and writes their rows of the page."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from compiler.errors import SlipwayError
from tests.zoo.derived.families import FAMILIES
from tests.zoo.derived.family import WholeFamily
from tests.zoo.derived.prove import follow
from tests.zoo.derived.refused import NO_STREAMS, refusal_of
from tests.zoo.families import FAMILIES as ALL_FAMILIES
from tests.zoo.family import Family

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "derived_zoo.md"
STEPS = 500
ENCODERS = {family.name: family for family in ALL_FAMILIES}

HEAD = """# The zoo of derived steps

Decoders of transformers (`pip install transformers==5.23.0`) in tiny configurations with random weights, exported as
they are trained, and at the end some that are written with torch alone: whole sequences in, no cache. The recipe lists
the inputs, two axes and `derive_steps`, as [derived steps](../derived_steps.md) says, and nothing
knows a family.

**Built** means: steps were derived and the passes of a build went through; the checker replayed every step of every
certificate; three rows decoded greedily from prompts of their own lengths, one token per *step*, and all tokens and
scores equal those of the module, asked once about every whole sequence (within 1e-4 of the largest score; *ties* are
tokens that differ where the module's two best scores are nearer than the error); the same sequences went through in
chunks of 1 to 8 frames, other lengths in every row. Other frames behind the end of a chunk, and NaN, infinities and
1e30 in free slots and free rows, change no bit. *Error* is the largest difference, relative to the largest score.
**Refused** gives the reason: a build stops there.

`python -m tests.zoo.derived [decoder ...]` writes these rows.

Of {all} decoders {built} are built.
"""

NO_STREAMS_HEAD = """## No streams

Encoders of the [zoo](zoo.md) read later frames. No steps are derived of them: the build stops at the first node that
does, and says how far it reads around its own frame.

| model | first node | what it does |
|---|---|---|"""

COLUMNS = (
    "| decoder | positions | attention | result | caches | nodes | steps proved | steps | tokens | ties | error |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: list[str]) -> int:
    """Follow the chosen decoders and write their rows of the page; the others stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.derived", description=__doc__)
    parser.add_argument("decoders", nargs="*", help="all by default")
    parser.add_argument("--steps", type=int, default=STEPS, help="of every row")
    options = parser.parse_args(arguments)
    refused = {name: refused_row(ENCODERS[name]) for name in NO_STREAMS}
    for family in FAMILIES:
        if not options.decoders or family.name in options.decoders:
            row = _row(family, options.steps)
            print(row, flush=True)
            known = rows_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
            PAGE.write_text(page({**known, **refused, family.name: row}), encoding="utf-8")
    return 0


def _row(family: WholeFamily, steps: int) -> str:
    begun = f"| {family.name} | {family.positions} | {family.attention} |"
    try:
        found = follow(family, steps)
    except SlipwayError as error:
        told = f"{error.place.op or error.place.stage}: {error.message}".replace("\n", " ")
        return f"{begun} refused: {told} | | | | | | | |"
    figures = f"{found.caches} | {found.nodes} | {found.replayed} | {steps} | {found.tokens} | {found.ties}"
    return f"{begun} built | {figures} | {found.error:.0e} |"


def refused_row(family: Family) -> str:
    """The row of a model of which no steps are derived."""
    refused = refusal_of(family)
    told = refused.message.removeprefix("no steps can be derived: ").split(" at ")[0]
    return f"| {family.name} | `{refused.place.node}` | {told.removeprefix(f'{refused.place.node} ')} |"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a page by decoder or model."""
    heads = ("| decoder ", "| model ")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(heads)]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def page(rows: Mapping[str, str]) -> str:
    """The page of all decoders that have a row, and of what is refused."""
    ordered = [rows[family.name] for family in FAMILIES if family.name in rows]
    built = sum("| built |" in row for row in ordered)
    refused = [rows[name] for name in NO_STREAMS]
    return "\n".join([HEAD.format(all=len(ordered), built=built), COLUMNS, *ordered, "", NO_STREAMS_HEAD, *refused, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
