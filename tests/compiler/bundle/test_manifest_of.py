"""What the manifest says of a graph."""

import pytest

from compiler.bundle import manifest_of
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.quantize_static import QuantizeStatic
from compiler.runners.choose import runner_of
from runtime_lite.format.manifest import Tensor
from tests.kit.quantization import speech


@pytest.mark.parametrize(("dtype", "zero"), [("float32", 0.0), ("float16", 0.0), ("int64", 0), ("bool", False)])
def test_a_state_starts_with_the_zero_of_its_own_type(dtype: str, zero: bool | int | float) -> None:
    initial = manifest_of._initial(0, dtype)
    assert (initial, type(initial)) == (zero, type(zero))


def test_numbers_that_differ_are_rounded_to_the_type() -> None:
    assert manifest_of._initial((((0.1,), (2.5,)),), "float16") == (((0.0999755859375,), (2.5,)),)


def test_a_state_of_codes_starts_with_the_code_of_0() -> None:
    lowered = CarryCodes().apply(QuantizeStatic(pins=()).apply(speech()).lowered).lowered
    first = {state.input: state.initial for state in lowered.states}
    begun = runner_of(lowered).states["context"]
    assert begun.dtype == "uint8"
    assert set(begun.ravel().tolist()) == {first["context"]} != {0}
    assert first["past"] == 0


@pytest.mark.parametrize(
    ("comes", "goes"),
    [
        (("batch", "min(16, chunk + 12)", 8), ("batch", 16, 8)),
        (("batch", 16, 8), ("batch", 16, 8)),
        (("batch", "chunk", 8), ("batch", "chunk", 8)),
        (("batch", 1, 8), ("batch", 1, 8)),
    ],
    ids=["a formula", "a number", "the frames of a call", "a number of them"],
)
def test_a_state_leaves_with_the_sizes_it_goes_in_with(
    comes: tuple[int | str, ...], goes: tuple[int | str, ...]
) -> None:
    given, output = (Tensor("state", shape, "float32", "state") for shape in (("batch", 16, 8), comes))
    assert manifest_of._as_fed(output, given).shape == goes
