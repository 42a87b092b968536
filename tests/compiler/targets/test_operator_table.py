"""What a table of single operators says of a node: by operator and case, whole forms alone."""

import json
import re
from pathlib import Path

import pytest

from compiler.targets.operator_table import Row, read_rows, why_not
from tests.kit.graphs import node_named, parse

ROWS = (
    Row("plain", "Pad", "", "taken", 60.0),
    Row("edge", "Pad", "mode=edge", "wrong", -3.5),
    Row("erf", "Erf", "", "refused", why="left to the CPU"),
    Row("stft", "Neg", "", "refused", why="MEM_ALLOC"),
    Row("one", "Exp", "", "wrong", 3.0),
    Row("two", "Exp", "", "taken", 50.0),
    Row("plain", "Conv", "", "refused"),
    Row("computed", "Conv", "computed=1", "taken"),
    Row("cut", "Cast", "type=FLOAT to=6", "wrong", 10.0),
    Row("many", "*", "rank=6", "refused", why="left to the CPU"),
)


def said(body: str, inputs: str = "float[1,4,8] x, float[4,4,3] k, int32[1,4,8] n") -> str:
    model = parse(f"({inputs}) => (float[a] y) {{ {body} }}", {})
    return why_not(node_named(model, "y"), ROWS)


PADS = "pads = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{PADS} y = Pad(x, pads)", ""),
        (
            f'{PADS} y = Pad<mode = "edge">(x, pads)',
            "Pad with mode=edge, .* computes otherwise than it is written .-3.5 dB",
        ),
        ("y = Erf(x)", "Erf, which the vendor leaves to the CPU"),
        ("y = Neg(x)", "Neg, which the vendor does not take"),
        ("y = Exp(x)", ""),
        ("y = Conv(x, k)", ""),
        ("y = Cast<to = 6>(x)", "Cast with type=FLOAT and to=6, .* .10 dB"),
        ("y = Cast<to = 6>(n)", ""),
        ("y = Sqrt(x)", ""),
    ],
)
def test_a_form_is_refused_where_no_idiom_of_it_is_taken(body: str, words: str) -> None:
    assert re.fullmatch(words, said(body).rstrip(")")) is not None


def test_every_operator_has_at_most_as_many_axes() -> None:
    assert said("y = Sqrt(x)", "float[1,1,1,1,1,1,2] x").startswith("Sqrt with rank=6")


def test_a_table_is_read_by_precision(tmp_path: Path) -> None:
    row = {
        "idiom": "erf",
        "op": "Erf",
        "case": "",
        "a8": {"verdict": "taken", "sqnr_db": 30.0},
        "f": {"verdict": "wrong"},
    }
    (tmp_path / "table.json").write_text(json.dumps({"toolchain": "vendor 1.0", "rows": [row]}))
    assert read_rows(tmp_path / "table.json", "a8") == (Row("erf", "Erf", "", "taken", 30.0),)
    assert read_rows(tmp_path / "table.json", "f")[0].verdict == "wrong"
