"""The virtual device."""

from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.scheduling.decision import Decision
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import simulate
from runtime_lite.scheduling.task import CHUNK, UTTERANCE, task_at
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, Script, table


def test_every_task_ends_once_and_time_goes_by_as_runs_take_it() -> None:
    costs = table({CHUNKS: {1: 10 * MS}})
    tasks = [task_at(CHUNKS, CHUNK, at * MS) for at in (0, 0, 100)]
    late = task_at(CHUNKS, UTTERANCE._replace(hard_ms=15), 0)
    script = Script([*tasks, late]).play(Scheduler(costs), costs, factor=2.0)
    assert [script.answered[task] for task in tasks] == [20 * MS, 40 * MS, 120 * MS]
    assert set(script.ended) == {late} and len(script.runs) == 3


def test_stops_at_the_end() -> None:
    costs = table({CHUNKS: {1: 10 * MS}})
    script = Script([task_at(CHUNKS, CHUNK, 0), task_at(CHUNKS, CHUNK, 30 * MS)]).play(
        Scheduler(costs), costs, end_ms=35
    )
    assert len(script.answered) == 1


def test_asks_again_when_told_and_moves_the_callers_clock() -> None:
    class Waits(Scheduler):
        asked: list[int]

        def decide(self, now: int) -> Decision:
            self.asked.append(now)
            return Decision(None, [], now + 7) if now < 20 else Decision(None, [], None)

    scheduler, clock = Waits(table()), VirtualClock()
    scheduler.asked = []
    simulate(scheduler, Script([task_at(CHUNKS, CHUNK, 0)]), lambda run: 0, 100, clock)
    assert scheduler.asked == [0, 7, 14, 21] and clock() == 21
