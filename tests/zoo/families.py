"""All families."""

from tests.zoo import (
    families_causal,
    families_decoder,
    families_mel,
    families_raw,
    families_synthesis,
    families_text,
)
from tests.zoo.family import GROUPS, Family

FAMILIES: tuple[Family, ...] = tuple(
    sorted(
        (
            *families_raw.FAMILIES,
            *families_mel.FAMILIES,
            *families_text.FAMILIES,
            *families_causal.FAMILIES,
            *families_decoder.FAMILIES,
            *families_synthesis.FAMILIES,
        ),
        key=lambda family: list(GROUPS).index(family.group),
    )
)
