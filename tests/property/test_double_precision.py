"""What double precision answers is what the runtime answers, up to rounding."""

import numpy as np
import pytest

from tests.kit.graphs import parse, random_weights
from tests.kit.offline import difference_of, in_session
from tests.property.double_precision import InDouble

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_recurrences_go_over_the_frames_of_each_row(op: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    model = parse(
        f"""(float[5,3,4] x, int32[3] n, float[{ways},3,4] start, float[{ways},{4 * GATES[op]},4] w,
            float[{ways},{4 * GATES[op]},4] r) => (float[a,b,c,d] y, float[e,f,g] last)
        {{ y, last = {op}<hidden_size = 4, direction = "{direction}">(x, w, r, , n, start) }}""",
        random_weights(dict.fromkeys("wr", (ways, 4 * GATES[op], 4))),
    )
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (5, 3, 4)), ("start", (ways, 3, 4)))
    }
    feeds["n"] = np.array([2, 5, 1], np.int32)
    for single, double in zip(in_session(model).run(None, feeds), InDouble(model).run(None, feeds), strict=True):
        assert difference_of(single, double) < 1e-5


@pytest.mark.parametrize(
    ("mode", "amounts"),
    [("constant", (0, -1, 0, 2)), ("constant", (0, 2, 0, -3)), ("constant", (1, -2, 0, -1)), ("reflect", (0, 2, 0, 1)),
     ("edge", (0, 1, 0, 3))],
)  # fmt: skip
def test_padding_adds_entries_or_cuts_them_off(mode: str, amounts: tuple[int, ...]) -> None:
    model = parse(
        f"""(float[2,5] x) => (float[a,b] y)
        <int64[4] amounts = {{{", ".join(map(str, amounts))}}}, float filler = {{1.5}}>
        {{ y = Pad<mode = "{mode}">(x, amounts{", filler" if mode == "constant" else ""}) }}"""
    )
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    (single,), (double,) = in_session(model).run(None, feeds), InDouble(model).run(None, feeds)
    np.testing.assert_array_equal(single, double)
