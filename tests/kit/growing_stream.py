"""The graph of one screen as a stream: with a cache that grows, and with one of fixed slots."""

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.stream import OriginalCall, chained_steps
from compiler.graph.stages import Array, Feed, Lowered, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.models.tiny_graph import stream_model


def growing(model: ir.Model | None = None) -> Lowered:
    """The graph of one screen with a cache that grows, before any pass."""
    captured = model or stream_model()
    graphs.infer_shapes(captured)
    cache = CacheAxis("cache", 8, 4, "real_length", None)
    return Lowered("net", captured, None, (State("keys", "next_keys", 1, "cache"),), (cache,), "batch")


def padded() -> Lowered:
    """The same after the passes that make it static."""
    return WindowStates().apply(PadAxes().apply(growing()).lowered).lowered


def steps_of(feeds: Sequence[Feed]) -> list[OriginalCall]:
    runner = runner_of(growing())

    def run(chunks: Sequence[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for chunk in chunks:
            outputs = runner.step(chunk)
            yield outputs, dict(runner.states)

    return chained_steps(run, feeds, len(feeds))  # type: ignore[arg-type]
