"""counts: the same numbers, where a fixed number of them is counted."""

import numpy as np
import pytest

from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

RANGE = """(float[n] x) => (int64[c] y) <int64 none = {0}, int64 by = {STEP}, int64 few = {3}, int64[1] front = {0}>
    { s = Shape(x)  n = Gather(s, none)  low = LOW  y = Range(low, n, by) }"""

CASES = {
    "the last three": ("Sub(n, few)", "1", False),
    "in steps of two": ("Sub(n, few)", "2", True),
    "from the first": ("Sub(few, few)", "1", True),
    "from the third": ("Identity(few)", "1", True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [3, 5])
def test_fixed_numbers_of_integers(name: str, length: int) -> None:
    low, step, stays = CASES[name]
    simple = agree(parse(RANGE.replace("LOW", low).replace("STEP", step)), {"x": np.zeros(length, np.float32)})
    assert ("Range" in ops_of(simple)) == stays
