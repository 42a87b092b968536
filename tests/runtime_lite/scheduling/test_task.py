"""Tasks, classes and what may share a run."""

from typing import Any

import pytest

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, UTTERANCE, Key, task_at

LONG = Key("asr", "encoder", (("mels", 80), ("time", 1024)), ("time",))


def test_a_task_has_the_targets_of_its_class() -> None:
    task = task_at(LONG, UTTERANCE, 7, rows=2, worth=4.5)
    assert (task.soft, task.hard) == (7 + 1000 * NS_PER_MS, 7 + 2000 * NS_PER_MS)
    assert task_at(LONG, CHUNK, 7, stream=3).hard is None


def test_tasks_are_told_apart_by_identity() -> None:
    assert task_at(LONG, CHUNK, 0) != task_at(LONG, CHUNK, 0)


@pytest.mark.parametrize(
    ("other", "held"),
    [
        (LONG, True),
        (LONG._replace(sizes=(("mels", 80), ("time", 512))), True),
        (LONG._replace(sizes=(("mels", 80), ("time", 2048))), False),
        (LONG._replace(sizes=(("mels", 40), ("time", 512))), False),
        (LONG._replace(sizes=(("mels", 80),)), False),
        (LONG._replace(sizes=(("bands", 80), ("time", 512))), False),
        (LONG._replace(model="other"), False),
        (LONG._replace(graph="other"), False),
        (LONG._replace(padded=()), False),
        (LONG._replace(alone=True), False),
    ],
)
def test_free_rows_are_filled_by_the_family_only(other: Key, held: bool) -> None:
    assert LONG.holds(other) is held


def test_a_key_whose_rows_depend_on_each_other_holds_nobody() -> None:
    alone = LONG._replace(alone=True)
    assert not alone.holds(alone)


@pytest.mark.parametrize(
    "service", [BULK, CHUNK, INTERACTIVE, UTTERANCE, CHUNK._replace(name="captions", soft_ms=0, share=1)]
)
def test_a_class_of_ones_own_is_as_good(service: Any) -> None:
    assert service.fault() is None


ODD: dict[str, tuple[Any, ...]] = {
    "name": (None, "", "a\nb", 3),
    "soft_ms": (None, -1, float("nan"), float("inf"), True, "1"),
    "hard_ms": (0, -5, float("nan"), 10**30, []),
    "real_time": (None, 1),
    "patient": (None, 0),
    "share": (-0.1, 2.0, float("nan"), None),
    "priority": ("x", 1.5, None),
}


@pytest.mark.parametrize(("field", "odd"), [(field, odd) for field, values in ODD.items() for odd in values])
def test_a_field_of_a_class_that_can_mean_nothing_is_named(field: str, odd: Any) -> None:
    assert CHUNK._replace(**{field: odd}).fault() == field
