"""Patterns of recipes find nodes, and one that finds none is answered."""

import onnx_ir as ir
import pytest

from compiler.errors import RecipeError
from compiler.numerics.precision.pin_patterns import pinned_by
from tests.kit.graphs import parse


def chain() -> ir.Model:
    return parse("(float[4] x) => (float[4] y) { a = Mul(x, x) b = Sqrt(a) c = Exp(b) d = Neg(c) y = Tanh(d) }")


def test_the_users_pins_by_name_operator_and_module() -> None:
    model = chain()
    nodes = list(model.graph)
    nodes[0].metadata_props["slipway.source"] = "m.py:3 in forward of layers.0.norm: x * x"
    assert pinned_by(nodes, ["op:Exp"], "kept") == {"c_exp": "op:Exp"}
    assert pinned_by(nodes, ["scope:layers.0"], "kept") == {"a_mul": "scope:layers.0"}
    assert set(pinned_by(nodes, ["*_t*", "b_sqrt"], "kept")) == {"y_tanh", "b_sqrt"}


@pytest.mark.parametrize("pattern", ["op:Sinh", "scope:layers.7", "nothing_*", "kind:Exp"])
def test_a_pin_that_fits_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(RecipeError, match="kept: expected"):
        pinned_by(list(chain().graph), [pattern], "kept")
