"""A short deterministic draw of the fuzzer of exact passes, and what it found once."""

import pytest

from tests.property.edges import attack

FOUND = {
    1098: "a Relu behind a Clip whose bounds cross",
    1181: "two Clips whose bounds do not meet",
    1260: "the same, and a subtraction from 1e-9",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_the_fuzzer_found_stays_mended(seed: int) -> None:
    assert attack(seed) == "agrees"


def test_exact_passes_answer_edge_feeds_as_before() -> None:
    results = [attack(seed) for seed in range(20)]
    assert results.count("agrees") > 16, "the fuzzer draws what runs"
