"""No feed has two roles: what passes are calibrated with or choose on serves no gate, and not each other."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.build.capture import calibration_data
from compiler.build.capture.calibration_data import RecipeCalibration, check_disjoint
from compiler.errors import DataError
from compiler.graph.stages import Array, Feed
from compiler.recipe.gates import TaskGate
from compiler.recipe.load import RecipeLocation

ROLES = ("a.yaml:3: data.calibration", "a.yaml:5: data.development", "a.yaml:7: data.verification")


def stream(*seeds: int) -> list[Feed]:
    return [{"x": np.random.default_rng(seed).random((1, 4), np.float32)} for seed in seeds]


def test_streams_of_their_own_are_fine() -> None:
    check_disjoint(dict(zip(ROLES, ([stream(0, 1), stream(2)], [stream(3)], [stream(4, 5)]), strict=True)))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(ROLES, 2)))
def test_a_feed_of_two_roles_is_refused_with_both_places(first: str, second: str) -> None:
    own = {role: [stream(10 + index)] for index, role in enumerate(ROLES)}
    shared = {first: [stream(0, 1), stream(2)], second: [stream(3), stream(1, 5)]}
    with pytest.raises(DataError) as caught:
        check_disjoint(own | shared)
    assert f"{second}: expected data that no other role has" in str(caught.value)
    assert f"got feed 1 of stream 0 of {first} again as feed 0 of stream 1" in str(caught.value)


def test_a_role_may_repeat_a_feed_of_its_own() -> None:
    check_disjoint({ROLES[0]: [stream(1), stream(1)], ROLES[1]: [stream(2)]})


def test_silence_may_have_several_roles() -> None:
    silence: list[Feed] = [{"x": np.full((1, 4), -15.9, np.float32)}]
    check_disjoint({role: [silence] for role in ROLES})


class Echo:
    """Answers with what it is fed."""

    def step(self, feed: Feed) -> Feed:
        return feed


def original(feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    return ((dict(feed), {}) for feed in feeds)


def test_the_task_is_measured_on_the_development_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    calibration, development = [stream(1, 2)], [stream(3), stream(4, 5)]
    task = TaskGate(recordings="a:b", decode="a:decode", metric="a:metric", max_increase=0.0)
    functions = {
        "decode": lambda outputs: " ".join(f"{float(each['x'][0, 0]):.6f}" for each in outputs),
        "metric": lambda references, texts: float(len(" ".join(references).split())) if references == texts else 0.0,
    }
    monkeypatch.setattr(calibration_data, "task_functions", lambda location, task: functions)
    monkeypatch.setattr(calibration_data, "runners_of", lambda lowered: Echo)
    monkeypatch.setattr(RecipeLocation, "where", lambda location, *keys: "a.yaml")
    nothing: Any = None
    found = RecipeCalibration(RecipeLocation(Path("a.yaml"), nothing), task, calibration, development, lambda: original)
    assert found.streams is calibration
    assert found.task_distance(nothing) == 3.0, "three feeds are for choosing"
