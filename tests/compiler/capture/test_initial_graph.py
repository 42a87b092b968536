"""The graph as capture hands it on."""

from compiler.capture.initial_graph import states_of
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from compiler.stages import State
from tests.kit.models.project import Project


def test_states_of_a_recipe_know_their_frames_axis() -> None:
    spec = Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", 2), dtype="float32"),
            "cache": Input(shape=("batch", 4, "frames"), dtype="float32", state="next_cache"),
            "context": Input(shape=("batch", 4, 2), dtype="float32", state="next_context"),
        },
        outputs=("y", "next_cache", "next_context"),
        axes={"batch": Axis(buckets=(1,)), "frames": Axis(window=6)},
        passes=(),
    )
    assert states_of(spec) == (State("cache", "next_cache", 2, "frames"), State("context", "next_context", None))


def test_parity_that_never_sees_the_window_overflow_is_a_wrong_recipe(project: Project) -> None:
    ended = project.build("--set", "gates.parity.net.chained_steps=3")
    assert ended.code == 2
    assert "chained_steps: expected at least 4 steps, so that a window of 8 frames overflows at 4 per call" in ended.err
