"""Tasks, classes and what may share a run."""

import pytest

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, Key, task_at

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
