"""What the HTP computes otherwise than it is written is refused by name."""

import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.targets.qnn.lint import require_taken
from tests.kit.graphs import parse

TAKEN = """(float[1,4] x, int64[1] n) => (float[1,6] y) {
    pads = Constant<value = int64[4] {0, 1, 0, 1}>()
    shifted = Add(x, x)
    number = Cast<to = 1>(n)
    scaled = Mul(shifted, number)
    y = Pad<mode = "constant">(scaled, pads)
}"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TAKEN.replace('"constant"', '"edge"'), "node .*, op Pad, .*expected what the HTP .*, got Pad with mode edge"),
        (TAKEN.replace("int64[1] n", "uint8[1] n"), "op Cast, .*Cast from UINT8, whose numbers come back as 0 and 1"),
        (TAKEN.replace("Add(x, x)", "Round(x)"), "op Round, .*another neighbour"),
        (TAKEN.replace("Add(x, x)", "Erf(x)"), "op Erf, .*got Erf, which the vendor leaves to the CPU"),
        (
            "(float[1,4] x, float s) => (float[1,4] y) { q = QuantizeLinear(x, s)  y = DequantizeLinear(q, s) }",
            "QuantizeLinear: 8-bit integers are not written for this target",
        ),
        ("(double[1,4] x) => (double[1,4] y) { y = Add(x, x) }", "float64 in "),
        ("(float[1,1,1,1,1,4] x) => (float[1,1,1,1,1,4] y) { y = Add(x, x) }", "6 axes of .*, where it has 5"),
    ],
)
def test_what_is_computed_otherwise_is_refused_with_its_node(text: str, sentence: str) -> None:
    model = parse(text, {})
    graphs.infer_shapes(model)
    with pytest.raises(Refused, match=sentence):
        require_taken(model, "net")


def test_the_same_operators_in_forms_that_it_computes_are_taken() -> None:
    model = parse(TAKEN, {})
    graphs.infer_shapes(model)
    require_taken(model, "net")
