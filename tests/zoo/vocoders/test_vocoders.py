"""Streamed sound of vocoders is that of the whole; what reads later frames is refused as the page says."""

import pytest

from compiler.errors import Refused
from tests.zoo.derived.__main__ import rows_of
from tests.zoo.vocoders.__main__ import PAGE, page
from tests.zoo.vocoders.families import FAMILIES
from tests.zoo.vocoders.family import WHOLE
from tests.zoo.vocoders.prove import splits, stream, stream_later

BY_NAME = {family.name: family for family in FAMILIES}


def test_pushes_are_whole_sequences() -> None:
    assert [(sum(lengths), max(lengths)) for lengths in splits()] == [
        (WHOLE, 1), (WHOLE, 2), (WHOLE, 3), (WHOLE, 11), (WHOLE, 8), (WHOLE, WHOLE),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_every_vocoder_is_what_the_page_says(name: str) -> None:
    row = rows_of(PAGE.read_text(encoding="utf-8"))[name]
    if "| built |" in row:
        assert stream(BY_NAME[name]).error <= 1e-5
    else:
        with pytest.raises(Refused):
            stream(BY_NAME[name])
        if "; derived " in row:
            later = stream_later(BY_NAME[name])
            assert later.error <= 1e-5
            assert f"derived {later.delay} frames later" in row


def test_the_page_has_every_vocoder_and_at_least_twelve_are_built() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = rows_of(text)
    assert list(rows) == list(BY_NAME)
    assert sum("| built |" in row for row in rows.values()) >= 12
    assert text == page(rows)
