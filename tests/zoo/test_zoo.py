"""Every family of the zoo keeps its verdict, and what is proved withstands the attack."""

import pytest

from tests.zoo.families import FAMILIES
from tests.zoo.family import GROUPS, Family
from tests.zoo.table import PAGE, page
from tests.zoo.verdicts import PROVED, is_exported, judge, recorded

EXPORTED = [family for family in FAMILIES if not family.stuck]

QUICK = frozenset(
    {
        "bart_decoder",
        "bert",
        "blstm_ctc",
        "citrinet",
        "conv_tasnet",
        "gpt2_maskless",
        "hazard_batch_mean",
        "lengths_as_input",
        "mistral_sliding",
        "sentence_last_pooling",
        "speecht5_hifigan",
        "t5_encoder",
        "transducer_joint",
        "whisper_encoder",
    }
)
"""One family of every kind; the others are for `make test-slow`."""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, id=family.name, marks=[] if family.name in QUICK else [pytest.mark.slow])
        for family in EXPORTED
    ],
)
def test_a_family_keeps_its_verdict(family: Family) -> None:
    got, expected = judge(family), recorded()[family.name]
    assert (got.result, got.reason) == (expected.result, expected.reason), "after a gain: python -m tests.zoo table"
    assert got.lengths == expected.lengths


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.group == "hazard"], ids=lambda f: f.name)
def test_a_hazard_is_never_proved(family: Family) -> None:
    assert recorded()[family.name].result != PROVED


def test_the_page_shows_the_verdicts() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(FAMILIES, recorded())


def test_families_have_a_name_of_their_own_a_group_and_a_graph() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert {family.group for family in FAMILIES} == set(GROUPS)
    assert [family.name for family in FAMILIES if is_exported(family) == bool(family.stuck)] == []
    assert set(names) >= QUICK
