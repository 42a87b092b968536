"""The gate on an artefact in its vendor's simulator: every chunk beside the original, and poison where it is hidden."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from compiler.base.records.findings import Finding
from compiler.build.verify.gates.closed_loop import (
    CLOSED_LOOP,
    ExecutorSession,
    TensorInLoop,
    chunks_needed,
    run_loop,
)
from compiler.errors import GateFailed
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import OriginalCall, Runner
from compiler.graph.stages import Array, Lowered
from compiler.recipe.gates import LossyTolerance
from runtime_lite.format.manifest import Artifact, Graph, Tensor
from tests.kit.growing_stream import padded
from tests.kit.models.tiny_task import one_recording

LIMITS = LossyTolerance(max_abs=0.1, sqnr_db=30.0)


@dataclasses.dataclass
class Simulator:
    """A session that computes as it is told."""

    lowered: Lowered
    error: float = 0.0
    leaks: bool = False

    def __post_init__(self) -> None:
        self.inner = open_session(graphs.serialized(self.lowered.model))
        self.chunks: list[bytes] = []

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """One call, with an error that grows from chunk to chunk, the same where a chunk runs again."""
        chunk = feeds["features"].tobytes()
        self.chunks += [chunk] if chunk not in self.chunks else []
        found: list[Array] = self.inner.run(names, feeds)
        poison = self.leaks and any(np.isnan(each).any() for each in feeds.values() if each.dtype.kind == "f")
        return [each + np.float32(np.nan if poison else self.error * len(self.chunks)) for each in found]


def calls_of(lowered: Lowered, count: int) -> list[OriginalCall]:
    """What the graph itself answers, as if it were the original."""
    runner = Runner(lowered, open_session(graphs.serialized(lowered.model)), 1)
    states = {state.output for state in lowered.states}
    found = []
    for feed in one_recording(count, 4):
        outputs = {name: array for name, array in runner.step(feed).items() if name not in states}
        found.append(OriginalCall(feed, outputs, dict(runner.states)))
    return found


def loop_of(lowered: Lowered, simulator: Simulator, count: int = 8) -> tuple[Mapping[str, TensorInLoop], int]:
    record = dataclasses.replace(lowered, state_maps=())
    return run_loop(Runner(lowered, simulator, 1), record, calls_of(lowered, count), lambda done, total: None)


def findings_of(tensors: Iterable[TensorInLoop]) -> dict[tuple[str, str], Finding]:
    return {(each.gate, each.subject): each for one in tensors for each in one.findings("net", LIMITS)}


def test_first_and_last_chunk_of_every_output_and_state_are_measured() -> None:
    lowered = padded()
    tensors, poisoned_calls = loop_of(lowered, Simulator(lowered, error=1e-4))
    assert {state.input for state in lowered.states} < set(tensors)
    found = findings_of(tensors.values())
    for name, tensor in tensors.items():
        first, last = tensor.sqnr_db[0], tensor.sqnr_db[-1]
        assert first is not None and last is not None and first > last > 30
        finding = found["simulator.sqnr_db", name]
        assert (finding.measured, finding.limit, finding.holds) == (last, 30.0, True)
        assert f"first chunk {first:.1f} dB, of the last {last:.1f} dB" in finding.detail
        assert found["simulator.max_abs", name].holds
    assert 0 < poisoned_calls < 8, "full caches hide nothing"


def test_an_error_that_grows_is_found_at_the_last_chunk() -> None:
    lowered = padded()
    tensors, _ = loop_of(lowered, Simulator(lowered, error=0.1))
    found = findings_of(tensors.values()).values()
    assert any(each.gate == "simulator.sqnr_db" and not each.holds for each in found)
    assert any(each.gate == "simulator.max_abs" and not each.holds for each in found)


def test_a_simulator_that_sees_what_is_hidden_is_named() -> None:
    lowered = padded()
    with pytest.raises(GateFailed, match="unchanged by NaN in hidden places, got other values at chunk 0"):
        loop_of(lowered, Simulator(lowered, leaks=True))


def test_agreement_of_the_largest_entries_is_counted_row_by_row() -> None:
    tensor = TensorInLoop("logits")
    expected = np.eye(4, dtype=np.float32)[None]
    tensor.add(expected, expected, has_classes=True)
    tensor.add(expected[:, ::-1], expected, has_classes=True)
    (agreement,) = [each for each in tensor.findings("net", LIMITS) if each.gate == "simulator.argmax"]
    assert (agreement.measured, agreement.detail[:6]) == (0.5, "4 of 8")


def test_numbers_that_are_not_finite_hold_no_limit() -> None:
    tensor = TensorInLoop("y")
    tensor.add(np.full((1, 2), np.nan, np.float32), np.ones((1, 2), np.float32), has_classes=False)
    assert [each.holds for each in tensor.findings("net", LIMITS)] == [False, False]


def test_a_stream_is_run_past_its_caches_and_eight_chunks_at_least() -> None:
    lowered = padded()
    (cache,) = lowered.caches
    assert chunks_needed(lowered) == max(8, cache.calls_to_fill + 4)
    wider = dataclasses.replace(lowered, caches=(dataclasses.replace(cache, slots=40 * cache.step),))
    assert chunks_needed(wider) == 44
    assert chunks_needed(dataclasses.replace(lowered, caches=())) == 8


def test_an_executor_is_called_as_gates_call_graphs() -> None:
    class Doubling:
        def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
            outputs["y"][...] = 2 * inputs["x"]
            outputs["n"][...] = sizes["batch"]

        def close(self) -> None: ...

    outputs = (Tensor("y", ("batch", 2), "float32", "data"), Tensor("n", (1,), "int64", "data"))
    graph = Graph("null", 20, 10, (), outputs, {}, (), (), (), "", True, "", None)
    session = ExecutorSession(Doubling(), graph, Artifact({"batch": 3}, "", ()))
    number, doubled = session.run(["n", "y"], {"x": np.ones((3, 2), np.float32)})
    assert (number.tolist(), doubled.tolist()) == ([3], [[2.0, 2.0]] * 3)
    assert [each.dtype.name for each in session.run(None, {"x": np.ones((3, 2), np.float32)})] == ["float32", "int64"]


def test_it_runs_where_a_simulator_has_executed_engines() -> None:
    assert CLOSED_LOOP.phases == ("engines",)


def shifted_at_the_edge(lowered: Lowered, mode: str) -> Lowered:
    """The graph with its features one frame later, the first of them twice, or a 0 before it."""
    model = graphs.clone(lowered.model)
    features = graphs.inputs_named(model)["features"]
    readers = {use.node for use in features.uses()}
    insert = graphs.Inserter.behind(model, "test", features)
    in_front = insert.op(
        "Pad", [features, insert.int64s(0, 1, 0, 0, 0, 0)], {"mode": mode}, name="in_front", shape=(1, 5, 8)
    )
    operands = [in_front, insert.int64s(0), insert.int64s(4), insert.int64s(1)]
    shifted = insert.op("Slice", operands, name="shifted", shape=features.shape)
    graphs.take_over(model, features, shifted, except_in={use.node for use in features.uses()} - readers)
    return dataclasses.replace(lowered, model=model)


def test_edges_that_a_vendor_pads_with_zeros_are_seen() -> None:
    """An operator that the vendor compiles without a word and computes otherwise."""
    written, compiled = (shifted_at_the_edge(padded(), mode) for mode in ("edge", "constant"))
    for of, holds in ((written, True), (compiled, False)):
        record = dataclasses.replace(written, state_maps=())
        runner = Runner(written, Simulator(of), 1)
        tensors, _ = run_loop(runner, record, calls_of(written, 8), lambda done, total: None)
        found = findings_of(tensors.values())
        assert all(each.holds for each in found.values()) == holds
    logits = found["simulator.sqnr_db", "logits"]
    assert logits.measured is not None and logits.measured < 30
