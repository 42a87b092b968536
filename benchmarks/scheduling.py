"""Simulates mixed traffic on the scheduler's own code and on plain schedulers, on a virtual clock.

    python -m benchmarks.scheduling [--quick] [--only mixed,policies,overload,costs,decide]

    mixed      chunks, voices and utterances together, against first in first out, round robin and strict priority, the
               last tuned by a sweep of 32 settings for each load
    policies   the same loads with one choice of the scheduler changed at a time
    overload   utterances from 0.5 to 3 times what the device carries, and back; with clients that retry, too
    costs      the same device 0.7 to 2 times as slow as its table says
    decide     microseconds of a decision on this machine; the only part that measures real time

All but `decide` is exact: seeds are fixed, and a run takes what the table says. Costs and traffic: `mixed_traffic.py`.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.mixed_traffic import (
    CHUNK_PERIOD,
    CHUNKS,
    OFFLINE,
    Load,
    MixedTraffic,
    Outcome,
    S,
    mixed_costs,
    real_costs,
)
from benchmarks.plain_schedulers import SWEEP, Fifo, RoundRobin, Strict, Windows
from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.scheduling.cost_table import CostTable, Spread
from runtime_lite.scheduling.decision import SETTLED, Policy
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.simulation import Decides, simulate
from runtime_lite.scheduling.task import CHUNK, INTERACTIVE, UTTERANCE, Key, ServiceClass, task_at

LOADS = ((400, 240.0), (400, 480.0), (400, 960.0), (800, 240.0))
"""Live streams and utterances per second; a voice begins every 0.33 s besides."""

Make = Callable[[CostTable], Decides]

POLICIES: tuple[tuple[str, Policy], ...] = (
    ("as settled", SETTLED),
    ("floor for all, not only in debt", replace(SETTLED, floor_always=True)),
    ("no floor", replace(SETTLED, floor_ms=0.0)),
    ("no cap", replace(SETTLED, cap=False)),
    ("guard 0 ms", replace(SETTLED, guard_ms=0.0)),
    ("guard 5 ms", replace(SETTLED, guard_ms=5.0)),
    ("ripe never: chunks always wait for slack", replace(SETTLED, ripe=0.0)),
    ("ripe 1.25", replace(SETTLED, ripe=1.25)),
    ("ripe 1.5", replace(SETTLED, ripe=1.5)),
    ("ripe always: chunks first", replace(SETTLED, ripe=1e9)),
    ("wait on purpose", replace(SETTLED, wait=not SETTLED.wait)),
    ("no share per bucket", replace(SETTLED, bucket_share=0.0)),
    ("share per bucket 0.5", replace(SETTLED, bucket_share=0.5)),
)


def main() -> None:
    """Print the requested tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 6 s of traffic, 4 settings of strict priority")
    parser.add_argument("--seconds", type=float, help="of traffic")
    parser.add_argument("--only", default="mixed,policies,overload,costs,decide", help="parts, separated by commas")
    options = parser.parse_args()
    seeds, seconds = ((1,), 6.0) if options.quick else ((1, 2, 3), 20.0)
    seconds = options.seconds or seconds
    parts = {
        "mixed": lambda: mixed_table(seeds, seconds, SWEEP[::8] if options.quick else SWEEP),
        "policies": lambda: policy_table(seeds[:1], seconds),
        "overload": lambda: overload_table(seeds, seconds),
        "costs": lambda: cost_table(seeds[:1], seconds),
        "decide": lambda: decide_table(2_000 if options.quick else 20_000),
    }
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in parts]:
        parser.error(f"--only: expected of {', '.join(parts)}, got {', '.join(map(repr, unknown))}")
    console = Console(width=150)
    print(f"seeds {seeds}, {seconds:g} s of traffic")
    for name in chosen:
        console.print(parts[name]())


def play(
    make: Make, load: Load, seed: int, *, factor: float = 1.0, retries: int = 0, costs: CostTable | None = None
) -> Outcome:
    """Run a load through a scheduler; runs take the time of the table times a factor."""
    costs = mixed_costs() if costs is None else costs
    real = real_costs(mixed_costs(), factor)
    traffic = MixedTraffic(load, seed, retries)
    scheduler = make(costs)
    if isinstance(scheduler, Scheduler):
        for stream in range(load.streams):
            scheduler.open_stream(stream, CHUNKS, traffic.chunk, CHUNK_PERIOD)
    simulate(scheduler, traffic, lambda run: real[run.key, run.rows], int((load.seconds + 4) * S), VirtualClock())
    return traffic.outcome


def ours(policy: Policy = SETTLED) -> Make:
    """Return a function that makes the scheduler with a policy."""
    return lambda costs: Scheduler(costs, policy=policy)


def strict(windows: Windows) -> Make:
    """Return a function that makes strict priority with some windows."""
    return lambda costs: Strict(costs, windows)


def mean(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float]) -> float:
    """Return the mean of a figure over seeds."""
    return sum(map(figure, outcomes)) / len(outcomes)


def tune(load: Load, seeds: Sequence[int], sweep: Sequence[Windows]) -> tuple[Windows, list[Outcome]]:
    """Return the strict-priority setting with the most audio in time among those without late chunks and voices."""

    def quality(found: tuple[Windows, list[Outcome]]) -> tuple[bool, float]:
        well = mean(found[1], lambda o: o.late) < 0.005 and mean(found[1], lambda o: o.gaps) < 0.005
        return well, mean(found[1], lambda o: o.audio_in_time())

    tried = [(windows, [play(strict(windows), load, seed) for seed in seeds]) for windows in sweep]
    return max(tried, key=quality)


COLUMNS = (
    "load",
    "rule",
    "late",
    "chunk p50/p99",
    "gaps",
    "first p95",
    "in time",
    "audio s/s",
    "2-4 s in time",
    "12-15 s",
)


def _row(load: Load, rule: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    return (
        f"{load.streams} + {load.utterances_per_s[0]:g}/s",
        rule,
        f"{mean(outcomes, lambda o: o.late):.1%}",
        "/".join(f"{np.mean([o.chunk_percentile_ms(percent) for o in outcomes]):.0f}" for percent in (50, 99)),
        f"{mean(outcomes, lambda o: o.gaps):.1%}",
        f"{mean(outcomes, lambda o: float(np.percentile(o.first_ms, 95))):.0f}",
        f"{mean(outcomes, lambda o: o.share_in_time()):.0%}",
        f"{mean(outcomes, lambda o: o.audio_in_time()) / load.seconds:.0f}",
        f"{mean(outcomes, lambda o: _in_time_of(o, 0, 4)):.0%}",
        f"{mean(outcomes, lambda o: _in_time_of(o, 10, 15)):.0%}",
    )


def _in_time_of(outcome: Outcome, above: float, upto: float) -> float:
    offered = sum(above < seconds <= upto for _, seconds in outcome.offered)
    return sum(above < seconds <= upto for _, seconds in outcome.in_time) / max(offered, 1)


def mixed_table(seeds: Sequence[int], seconds: float, sweep: Sequence[Windows]) -> Table:
    """Return a table of all rules on all loads."""
    table = Table(*COLUMNS, title="mixed traffic")
    for streams, rate in LOADS:
        load = Load(streams, (rate,), seconds)
        rules: list[tuple[str, Make]] = [
            ("FIFO", Fifo),
            ("round robin", RoundRobin),
            ("strict, one 100 ms window", strict(Windows(100, 100, 100))),
            ("strict, AR 0, chunk 80 ms", strict(Windows(0, 80))),
        ]
        for name, make in rules:
            table.add_row(*_row(load, name, [play(make, load, seed) for seed in seeds]))
        best, outcomes = tune(load, seeds, sweep)
        setting = f"AR {best.steps_ms:g}, chunk {best.chunks_ms:g}, cap {best.offline_cap}"
        table.add_row(*_row(load, f"tuned strict ({setting})", outcomes))
        for soft_ms in (160.0, 80.0):
            soft = replace(load, soft_ms=soft_ms)
            table.add_row(*_row(soft, f"ours, soft target {soft_ms:g} ms", [play(ours(), soft, s) for s in seeds]))
        table.add_section()
    return table


def policy_table(seeds: Sequence[int], seconds: float) -> Table:
    """Return a table with one setting of the scheduler changed at a time."""
    table = Table(*COLUMNS, title="choices")
    for streams, rate in LOADS:
        load = Load(streams, (rate,), seconds)
        for name, policy in POLICIES:
            table.add_row(*_row(load, name, [play(ours(policy), load, seed) for seed in seeds]))
        table.add_section()
    return table


FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0, 0.8)
FULL_PER_S = 340.0
"""Utterances per second that the device just carries beside 400 streams and the voices."""


def overload_table(seeds: Sequence[int], seconds: float) -> Table:
    """Return a table of rising and falling loads, and of the time until answers are in time again.

    The parts of a seed are compared with its own best one; their audio is the mean over seeds.
    """
    table = Table("rule", *(f"{factor:g}x" for factor in FACTORS), "2x / best", "3x / best", "normal after, s", "late")
    table.title = f"audio s/s in time; 1x is {FULL_PER_S:g} utterances/s beside 400 streams"
    load = Load(400, tuple(FULL_PER_S * factor for factor in FACTORS), seconds * len(FACTORS))
    rules = [
        ("ours", ours(), 0),
        ("ours, each drop retried 3 times", ours(), 3),
        ("strict, AR 75, chunk 160, cap 64", strict(SWEEP[-1]), 0),
    ]
    for name, make, retries in rules:
        outcomes = [play(make, load, seed, retries=retries) for seed in seeds]
        parts = [
            [o.audio_in_time(at * seconds, (at + 1) * seconds) / seconds for at in range(len(FACTORS))]
            for o in outcomes
        ]
        table.add_row(
            name,
            *(f"{sum(of_seeds) / len(of_seeds):.0f}" for of_seeds in zip(*parts, strict=True)),
            *(f"{min(each[at] / max(each) for each in parts):.1%}" for at in (3, 4)),
            f"{max(_normal_after_s(o, seconds * (len(FACTORS) - 1)) for o in outcomes):.2f}",
            f"{max(o.late for o in outcomes):.1%}",
        )
    return table


def _normal_after_s(outcome: Outcome, since_s: float) -> float:
    """Return how long after a time the last utterance came that was not answered in time."""
    answered = set(outcome.in_time)
    missed = [at for one in outcome.offered for at in one[:1] if at >= since_s * S and one not in answered]
    return max((at / S - since_s for at in missed), default=0.0)


def cost_table(seeds: Sequence[int], seconds: float) -> Table:
    """Return a table of real costs that differ from the table and are learnt while running."""
    table = Table("load", "real / table", "table", "late", "in time", "audio s/s", "answered too late")
    for streams, rate in ((400, 240.0), (200, 300.0)):
        for factor in (0.7, 1.0, 1.5, 2.0):
            for name, right in (("wrong, corrected", False), ("right", True)):
                load = Load(streams, (rate,), seconds)
                outcomes = [play(ours(), load, s, factor=factor, costs=_scaled(factor if right else 1)) for s in seeds]
                table.add_row(
                    f"{streams} + {rate:g}/s",
                    f"{factor:g}",
                    name,
                    f"{mean(outcomes, lambda o: o.late):.1%}",
                    f"{mean(outcomes, lambda o: o.share_in_time()):.1%}",
                    f"{mean(outcomes, lambda o: o.audio_in_time()) / load.seconds:.0f}",
                    f"{mean(outcomes, lambda o: o.after_deadline):.0f}",
                )
    return table


def _scaled(factor: float) -> CostTable:
    costs, real = CostTable(), real_costs(mixed_costs(), factor)
    for key in {key for key, _ in real}:
        costs.add(key, {rows: Spread.always(real[key, rows]) for rows in mixed_costs().row_buckets(key)})
    return costs


def decide_table(rounds: int) -> Table:
    """Return a table of microseconds of submit, decide and finished: median and 90th percentile."""
    table = Table("queued besides", "submit", "decide", "finished", "sum p50", "sum p90", title="microseconds")
    cases: list[tuple[str, ServiceClass, int | None, int]] = [
        ("nothing; a single request", INTERACTIVE, None, 0),
        ("nothing; a chunk of a stream", CHUNK, 1, 0),
        ("nothing; an utterance with a deadline", UTTERANCE, None, 0),
        ("10 utterances in each of 9 buckets", CHUNK, 1, 10),
        ("1000 utterances in each of 9 buckets", CHUNK, 1, 1000),
    ]
    for name, service, stream, others in cases:
        times = np.array(_times_of_decisions(service, stream, others, rounds)) / 1e3
        p50, total = np.median(times, 0), times.sum(1)
        table.add_row(
            name, *(f"{value:.1f}" for value in p50), f"{np.median(total):.1f}", f"{np.percentile(total, 90):.1f}"
        )
    return table


def _times_of_decisions(
    service: ServiceClass, stream: int | None, others: int, rounds: int
) -> list[tuple[int, int, int]]:
    scheduler = Scheduler(mixed_costs())
    patient = UTTERANCE._replace(name="patient", hard_ms=None, share=0.0, soft_ms=1e9)
    keys: list[Key] = [key for key in OFFLINE.values() for _ in range(others)]
    for key in keys:
        scheduler.submit(task_at(key, patient, 0), 0)
    found, clock = [], time.perf_counter_ns
    now = 0
    for _ in range(rounds):
        now += 10 * 1_000_000
        task = task_at(CHUNKS, service, now, stream=stream)
        begin = clock()
        scheduler.submit(task, now)
        submitted = clock()
        run = scheduler.decide(now).run
        decided = clock()
        assert run is not None
        before_end = clock()
        scheduler.finished(run, now)
        found.append((submitted - begin, decided - submitted, clock() - before_end))
        for done in run.tasks:
            if done is not task:
                scheduler.submit(task_at(done.key, patient, now), now)
        scheduler.cancel(task)
    return found


if __name__ == "__main__":
    command.run(main)
