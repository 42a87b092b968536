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
        (
            TAKEN.replace('"constant"', '"edge"'),
            r"node .*, op Pad, .*expected what the HTP computes in float16 as it is written, got Pad with mode=edge, "
            r"which the vendor computes otherwise than it is written",
        ),
        (TAKEN.replace("int64[1] n", "uint8[1] n"), "op Cast, .*got Cast with type=UINT8, .*otherwise"),
        (TAKEN.replace("Add(x, x)", "Erf(x)"), "op Erf, .*got Erf, which the vendor leaves to the CPU"),
        (
            "(float[1,4] x, float s) => (float[1,4] y) { q = QuantizeLinear(x, s)  y = DequantizeLinear(q, s) }",
            "QuantizeLinear, written for a CPU; a precision of the target rounds the whole graph",
        ),
        ("(double[1,4] x) => (double[1,4] y) { y = Add(x, x) }", "Add with type=DOUBLE, which the vendor leaves"),
        (
            "(float[1,1,1,1,1,4] x) => (float[1,1,1,1,1,4] y) { y = Add(x, x) }",
            "Add with rank=6, which the vendor leaves",
        ),
    ],
)
def test_what_is_computed_otherwise_is_refused_with_its_node(text: str, sentence: str) -> None:
    model = parse(text, {})
    graphs.infer_shapes(model)
    with pytest.raises(Refused, match=sentence):
        require_taken(model, "net", "float16")


def test_the_same_operators_in_forms_that_it_computes_are_taken() -> None:
    model = parse(TAKEN, {})
    graphs.infer_shapes(model)
    require_taken(model, "net", "float16")


def test_what_is_computed_depends_on_the_precision() -> None:
    model = parse("(float[1,4] x) => (float[1,4] y) { a = Exp(x)  y = Log(a) }", {})
    require_taken(model, "net", "float16")
    with pytest.raises(Refused, match=r"in a16w8 as it is written, got Log, which the vendor computes otherwise .* dB"):
        require_taken(model, "net", "a16w8")
