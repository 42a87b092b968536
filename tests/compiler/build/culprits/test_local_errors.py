"""local_errors: one section per common value, each with its own error and what explains it."""

import numpy as np

from compiler.build.culprits.local_errors import local_errors, with_usual
from compiler.build.culprits.records import LocalError
from compiler.build.verify.explained_rounding import Rounding
from compiler.graph.runners.forced_values import TeacherForcedRuns, common_values
from tests.kit.deep_stream import change_weight, deep_stream, steps_of


def test_errors_of_all_regions_over_all_calls() -> None:
    before, after = deep_stream(2), deep_stream(2)
    change_weight(after.model, "wd_0", 1.25)
    names = common_values(before, after)
    calls: list[None] = []
    found = local_errors(
        TeacherForcedRuns(before, after, names),
        steps_of(before, 3),
        dict.fromkeys(names, Rounding.FLOAT32),
        lambda: calls.append(None),
    )
    assert [each.tensor for each in found] == names
    assert [each.tensor for each in found if each.error] == ["down_0"]
    (down,) = (each for each in found if each.error)
    assert np.isclose(down.relative, 0.25, atol=0.1)
    assert down.beyond > 1e4
    assert len(calls) == 3


def test_what_is_usual_explains_an_error() -> None:
    many = [LocalError(str(at), 0.01, 1.0, 1e-6, 0) for at in range(8)] + [LocalError("worse", 0.5, 1.0, 1e-6, 0)]
    roundings = {each.tensor: Rounding.INT8 for each in many}
    beyond = {each.tensor: each.beyond for each in with_usual(many, roundings)}
    assert beyond["0"] == 1.0
    assert beyond["worse"] == 50.0
    assert with_usual(many[:7], roundings)[0].beyond > 1e3, "too few to say what is usual"
