"""Element types and profiles that the TensorRT linter accepts, next to what the planted graphs show."""

import dataclasses

import onnx_ir as ir
import pytest

from compiler.targets.tensorrt.lint import lint
from tests.compiler.targets.tensorrt.planted import BFLOAT16, BOTH, T4, Case

DYNAMIC = "(float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }"


@pytest.mark.parametrize(("capability", "count"), [((7, 5), 1), ((8, 0), 0), ((8, 6), 0)])
def test_bfloat16_needs_a_device_that_has_it(capability: tuple[int, int], count: int) -> None:
    found = lint(BFLOAT16.model(), dataclasses.replace(T4, capability=capability))
    assert [violation.rule for violation in found] == ["element-type"] * count
    assert [violation.place.tensor for violation in found] == ["h"] * count


@pytest.mark.parametrize("kind", ["INT16", "UINT16", "UINT32", "UINT64", "COMPLEX64", "DOUBLE", "FLOAT8E4M3FN", "INT4"])
def test_other_types_are_refused(kind: str) -> None:
    case = Case(f"{BOTH} {{ u = Identity(x)  y = Relu(u) }}", types={"u": ir.DataType[kind]})
    assert "element-type" in {violation.rule for violation in case.found()}


def test_strings_are_refused() -> None:
    case = Case("(string[2] t, float[2] x) => (float[2] y) { y = Relu(x)  u = Identity(t) }")
    assert {violation.place.tensor for violation in case.found() if violation.rule == "element-type"} == {"t", "u"}


def test_profiles_fix_one_axis() -> None:
    case = Case("(float[batch,4] x, float[batch,n] z) => (float[batch,4] y) { y = Add(x, z) }", open_axis="batch")
    assert [violation.place.tensor for violation in case.found()] == ["z"]
