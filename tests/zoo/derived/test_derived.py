"""Steps that are derived of decoders answer as the decoders do; what is no stream is refused where it looks ahead."""

import re

import pytest

from compiler.errors import Refused
from examples.derived_steps.whole_decoder import LABELS, WholeDecoder
from tests.zoo.derived.__main__ import ENCODERS, PAGE, STEPS, refused_row, rows_of
from tests.zoo.derived.families import FAMILIES
from tests.zoo.derived.family import BATCH, TIME, Given, WholeFamily
from tests.zoo.derived.prove import follow
from tests.zoo.derived.refused import NO_STREAMS

BY_NAME = {family.name: family for family in FAMILIES}
WITHOUT_LIBRARY = WholeFamily(
    "whole_decoder",
    WholeDecoder,
    {"tokens": Given((BATCH, TIME), "int64", LABELS)},
    "rotary",
    "grouped heads",
    window=24,
)


@pytest.mark.slow
def test_a_decoder_decodes_what_the_whole_one_does() -> None:
    found = follow(WITHOUT_LIBRARY, 12)
    assert found.error <= 1e-5
    assert (found.caches, found.ties) == (4, 0)


@pytest.mark.parametrize("name", NO_STREAMS)
def test_what_looks_ahead_is_refused_as_the_page_says(name: str) -> None:
    row = refused_row(ENCODERS[name])
    assert row == rows_of(PAGE.read_text(encoding="utf-8"))[name]
    assert re.search(r"reads (all frames of the sequence|frames), \[-|reads frames \[-", row)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_every_decoder_is_what_the_page_says(name: str) -> None:
    pytest.importorskip("transformers", reason="the extra zoo is not installed")
    row = rows_of(PAGE.read_text(encoding="utf-8"))[name]
    if "| built |" in row:
        follow(BY_NAME[name], STEPS)
    else:
        with pytest.raises(Refused):
            follow(BY_NAME[name], STEPS)


def test_the_page_has_every_decoder_and_most_are_built() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert list(rows) == [*BY_NAME, *NO_STREAMS]
    assert sum("| built |" in row for row in rows.values()) >= 0.9 * len(BY_NAME)
