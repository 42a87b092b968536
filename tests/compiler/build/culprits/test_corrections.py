"""error_injection: the error of a section goes, and nothing else with it."""

import numpy as np

from compiler.build.culprits.corrections import Injection, corrections
from compiler.graph.runners.forced_values import TeacherForcedRuns, common_values
from compiler.recipe.gates import Tolerance
from tests.kit.deep_stream import behind, change_weight, deep_stream, in_half, steps_of

LIMITS = Tolerance(max_abs=1e-4)


def injection_for(*names: str, half: bool = False, infinite: bool = False) -> Injection:
    before, after = deep_stream(3), deep_stream(3)
    change_weight(after.model, "wk_1", 1.5)
    if infinite:
        behind(after.model, "active_0", "Div", np.array(0, np.float32), "infinite")
    if half:
        in_half(after.model)
    steps = steps_of(before, 4)
    forced_runs = TeacherForcedRuns(before, after, common_values(before, after)).run(steps)
    return Injection(
        after, names, steps, {forced_run.step: corrections(forced_run, names) for forced_run in forced_runs}, LIMITS
    )


def test_the_culprits_error_goes_and_values_behind_it_do_not_cancel_it() -> None:
    injection = injection_for("key_1", "mixed_1", "y_1", "logits")
    assert injection.without(()).used > 1.0
    assert injection.without(("key_1",)).used < 1e-3
    for name in ("mixed_1", "y_1", "logits"):
        assert injection.without((name,)) == injection.without(()), "right on right inputs: nothing to take away"


def test_a_set_is_run_once() -> None:
    injection = injection_for("key_1", "y_1")
    assert injection.without(("key_1", "y_1")) is injection.without(["y_1", "key_1"])


def test_what_is_not_finite_is_replaced() -> None:
    injection = injection_for("key_1", "down_0", infinite=True)
    assert np.isinf(injection.without(("key_1",)).used)
    assert injection.without(("key_1", "down_0")).used < 1e-3


def test_half_precision_takes_corrections_too() -> None:
    injection = injection_for("key_1", half=True)
    assert injection.without(("key_1",)).power < 1e-3 * injection.without(()).power
