"""reexpressed_values: scales that move into weights are another form, a defect that reaches the result is none."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.culprits.reexpressed_values import reexpressed
from compiler.build.culprits.search import find_culprits
from compiler.graph import model as graphs
from compiler.graph.runners.forced_values import TeacherForcedRun, TeacherForcedRuns, common_values
from compiler.graph.stages import Lowered
from compiler.recipe.gates import Tolerance
from tests.kit.deep_stream import change_axis, change_weight, deep_stream, steps_of
from tests.kit.graphs import node_named

LAYERS = 4
BEFORE = deep_stream(LAYERS)
STEPS = steps_of(BEFORE, 3)


def divide_up(model: ir.Model, layer: int, factor: float = 4.0) -> None:
    """The hidden values of a layer are held smaller: exact, as relu is homogeneous."""
    change_weight(model, f"wu_{layer}", 1 / factor)
    change_weight(model, f"wd_{layer}", factor)


def other_forms(after: Lowered) -> set[str]:
    def forced_run_of(names: Sequence[str]) -> TeacherForcedRun | None:
        return next(TeacherForcedRuns(BEFORE, after, names).run(STEPS[:1]), None)

    return reexpressed(after, common_values(BEFORE, after), forced_run_of)


def test_values_between_two_weights_are_found() -> None:
    after = deep_stream(LAYERS)
    divide_up(after.model, 1)
    assert other_forms(after) == {"up_1", "active_1"}
    assert other_forms(deep_stream(LAYERS)) == set()


def test_a_defect_is_no_other_form() -> None:
    after = deep_stream(LAYERS)
    change_axis(after.model, "weights_2", 1)
    change_axis(after.model, "weights_1", 1)
    change_weight(after.model, "wu_0", 2.0)
    change_weight(after.model, "wd_0", 2.0)
    assert other_forms(after) == set()


def test_a_value_that_is_not_finite_is_broken() -> None:
    after = deep_stream(LAYERS)
    node = node_named(after.model, "up_1")
    weight = graphs.array_of(node.inputs[1])
    assert weight is not None
    node.replace_input_with(
        1, graphs.Inserter(after.model, "t", before=node).constant(weight * np.float32(np.inf), "w")
    )
    assert other_forms(after) == set()


@pytest.mark.parametrize("spoil", [lambda model: change_weight(model, "wk_2", 1.5), lambda model: None])
def test_culprits_beside_other_forms_are_named_alone(spoil: object) -> None:
    after = deep_stream(LAYERS)
    for layer in range(LAYERS):
        divide_up(after.model, layer)
    spoil(after.model)  # type: ignore[operator]
    found = find_culprits(BEFORE, after, STEPS, Tolerance(max_abs=1e-4))
    assert (None if found is None else [each.node.name for each in found.culprits]) in (["key_2_matmul"], None)
    assert found is None or found.left <= 1.0


def test_a_weight_that_takes_a_scale_in_wrongly_is_named() -> None:
    after = deep_stream(LAYERS)
    for layer in range(LAYERS):
        divide_up(after.model, layer)
    change_weight(after.model, "wd_1", 1.3)
    found = find_culprits(BEFORE, after, STEPS, Tolerance(max_abs=1e-4))
    assert found is not None
    assert [each.local.tensor for each in found.culprits] == ["down_1"]
    assert {node.name for node in found.culprits[0].nodes} == {"up_1_matmul", "active_1_relu", "down_1_matmul"}
