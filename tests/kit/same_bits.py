"""Simplified graphs against their originals, bit by bit, through ONNX Runtime without optimisation."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array
from compiler.passes.simplify import simplify_model


def agree(model: ir.Model, feeds: dict[str, Array]) -> ir.Model:
    """Simplify a copy, run both, and compare every bit but those of a NaN; the copy."""
    simple = graphs.clone(model)
    simplify_model(simple)
    before, after = run_model(model, feeds), run_model(simple, feeds)
    assert before.keys() == after.keys()
    for name, array in before.items():
        same_bits(after[name], array, name)
    return simple


def same_bits(got: Array, expected: Array, name: str) -> None:
    """Type, shape and bits; NaN is NaN."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    if expected.dtype.kind == "f":
        assert np.array_equal(np.isnan(got), np.isnan(expected)), f"{name}: {got} instead of {expected}"
        got, expected = (np.where(np.isnan(array), np.zeros_like(array), array) for array in (got, expected))
    assert got.tobytes() == expected.tobytes(), f"{name}: {got} instead of {expected}"
