"""The floor: work that is counted by hand, the larger of two times, and rates that are measured."""

import numpy as np
import pytest

from benchmarks import floor
from benchmarks.floor import Machine, Work, engine_of, product, to_floor, work_of
from compiler.graph.runners.session import Session
from compiler.graph.stages import Array
from compiler.targets import TARGETS
from tests.kit.graphs import parse


def test_products_count_by_precision_and_weights_once() -> None:
    text = """(float[n,8] x, int64[n] token, float[100,8] table, float[8,6] w, int8[6,4] v, float step, uint8 middle,
      int8 nil) => (float[n,4] y, float[n,8] looked_up) {
      looked_up = Gather(table, token)
      h = MatMul(x, w)
      coded = QuantizeLinear(h, step, middle)  real = DequantizeLinear(coded, step, middle)
      weights = DequantizeLinear(v, step, nil)  y = MatMul(real, weights) }"""
    weights: dict[str, Array] = {
        "table": np.zeros((100, 8), np.float32),  # rows are looked up: it is not read whole
        "w": np.zeros((8, 6), np.float32),
        "v": np.zeros((6, 4), np.int8),
        "step": np.array(0.1, np.float32),
        "middle": np.array(128, np.uint8),
        "nil": np.array(0, np.int8),
    }
    assert work_of(parse(text, weights), {"n": 3}) == Work(
        {"float32": 3 * 8 * 6, "int8": 3 * 6 * 4}, 4 * 48 + 24 + 4 + 1 + 1
    )


def test_of_two_branches_the_one_with_less_to_do_counts() -> None:
    text = """(float[2,8] x, bool c, float[8,8] w) => (float[2,8] y) {
      y = If (c) <then_branch = less () => (float[2,8] a) { a = Neg(x) },
                 else_branch = more () => (float[2,8] b) { b = MatMul(x, w) }> }"""
    found = work_of(parse(text, {"w": np.zeros((8, 8), np.float32)}), {})
    assert found == Work({"float32": 0, "int8": 0}, 4 * 64)


@pytest.fixture
def machine() -> Machine:
    """Of known rates."""
    machine = Machine()
    machine._peaks = {"float32": 100.0, "int8": 400.0}
    machine.bytes_per_s = 10.0
    return machine


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work({"float32": 200, "int8": 400}, 5), 3.0),
        (Work({"float32": 200, "int8": 400}, 50), 5.0),
        (Work({"float32": 0, "int8": 0}, 50), 5.0),
    ],
)
def test_the_larger_of_arithmetic_and_reading_is_the_floor(machine: Machine, work: Work, seconds: float) -> None:
    assert machine.floor_s(work) == seconds
    assert machine.told(work).startswith(f"{1e3 * seconds:.3g} ms: the larger of ")


def test_rates_are_measured_in_the_engine_that_runs_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "SIDES", (16, 32))
    monkeypatch.setattr(floor, "LEAST_BUFFER", 2**16)
    monkeypatch.setattr(floor, "CACHES", 0)
    opened = []

    def opens(model: bytes, threads: int) -> Session:
        opened.append(threads)
        return floor.onnx_runtime(model, threads)

    machine = Machine(2, opens)
    assert machine.peak("float32") > 0 and machine.peak("int8") > 0 and machine.bytes_per_s > 0
    assert opened == [2] * 4, "each is measured once"
    assert machine.peak("int8") and opened == [2] * 4


def test_the_product_of_integers_is_that_of_the_numbers() -> None:
    x = np.random.default_rng(1).standard_normal((64, 64), dtype=np.float32)
    sessions = [engine_of(TARGETS["onnx_static"]())(product(kind, 64), 1) for kind in ("float32", "int8")]
    exact, rounded = (session.run(None, {"x": x})[0] for session in sessions)
    assert np.corrcoef(exact.ravel(), rounded.ravel())[0, 1] > 0.99


def test_times_are_told_as_multiples() -> None:
    assert to_floor([2.0, 3.0, 4.0], 2.0) == "1.50 (1.10..1.90)"
