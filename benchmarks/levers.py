"""Times the variants of a target on a recipe's graph, one by one, in the smallest and the largest bucket.

    python -m benchmarks.levers --recipe full_edge.yaml --runs 5
    python -m benchmarks.levers --recipe full_edge.yaml --passes --search --target onnx_static openvino

The graph goes through the recipe's passes once. Then it is written as it would ship with every plan of the table:
without forms, each form alone, all but it, all up to it in the order of the target, and with `--search` what a search
on this machine chose. With `--passes` the graph is made once more without each of the recipe's passes that serve speed
alone, and once with its states packed, and written with the target's own plan. All run in turns in one process, on full
windows and one thread, round after round; a time is that of the process while it computes. Ratios are per round, to the
graph before the first pass that rounds, without forms, on the first target (without such a pass to the graph without
forms): median (10th..90th percentile). Beside each stands the median time as a multiple of the floor of its own graph
(`floor.py`). With `--runs` above 1 each run is a process of its own, and figures are the median of their medians
(smallest..largest).
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.floor import Machine, Work, engine_of, work_of
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.pieces import write_files
from compiler.base.records.searches import pinned
from compiler.build.capture.original import original_of
from compiler.build.lowering.lowering import Lowering, lower
from compiler.build.lowering.plan import plan_lowering
from compiler.build.pipeline import check
from compiler.build.report.progress import Progress
from compiler.build.search.greedy import Plan
from compiler.build.verify.speed import full_feeds
from compiler.errors import DataError
from compiler.graph.runners.paired_rounds import Call, Rounds, ratio_of
from compiler.graph.runners.session import Session
from compiler.recipe.graph_parts import PassSpec
from compiler.recipe.load import load_recipe
from compiler.targets import TARGETS
from compiler.targets.base import Built, Target
from compiler.targets.static_graphs import prepare_static, write_prepared
from runtime_lite.format.manifest import bucket_name

CONTENDERS = "contenders.json"

SERVE_SPEED = (
    "unstack_states", "fold_factors", "carry_contexts", "lower_pointwise_convolutions", "sink_transposes",
    "quantize_attention", "carry_codes",
)  # fmt: skip
"""Passes that a recipe may leave out: the same model is said without them."""

NONE, ALL = "without forms", "all forms"

BEFORE, BEFORE_FORMED = "before rounding, without forms", "before rounding, with the forms that do not round"


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to write the graph, as files in a folder.

    Attributes:
        labels: the rows of the table that show it.
        target: kind of target.
        folder: folder of its files.
        files: its main file by bucket; beside each the feed of the bucket.
        works: multiply-adds by precision and bytes of weights, by bucket.
    """

    labels: tuple[str, ...]
    target: str
    folder: str
    files: Mapping[str, str]
    works: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Figures:
    """Results of one contender in one bucket and one run.

    Attributes:
        ratios: of its time to that of the first contender, round by round.
        to_floor: its median time as a multiple of the floor of its graph.
    """

    ratios: Sequence[float]
    to_floor: float


Run = Mapping[str, Sequence[Figures]]
"""By bucket, of every contender."""


def main() -> None:
    """Write all contenders, measure them, and print the table."""
    options = _parse()
    if options.measure is not None:
        print(json.dumps(_measured(options.measure, options.rounds)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        contenders, notes = _written(options, folder)
        found = [_run(folder, options.rounds) for _ in range(options.runs)]
    print("\n".join([*_table(contenders, found), "", *notes]))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="full_edge.yaml")
    parser.add_argument("--graph", help="the recipe's first by default")
    parser.add_argument("--target", nargs="+", default=["onnx_static"], choices=sorted(TARGETS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for a build")
    parser.add_argument("--passes", action="store_true", help="leave out passes one by one, too")
    parser.add_argument("--search", action="store_true", help="search for the fastest plan, too")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=1, help="separate processes")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _written(options: argparse.Namespace, folder: Path) -> tuple[list[Contender], list[str]]:
    """Return all contenders, the first one being the reference, and notes on targets and searches."""
    contenders, notes = list[Contender](), list[str]()
    for kind in options.target:
        absent = TARGETS[kind]().absent()
        if absent is not None:
            notes.append(f"{kind}: {absent}")
            continue
        lowering = _lowering(options, kind)
        plans = _plans(lowering.plan.target)
        if lowering.plan.searched is not None:
            plans["what the search chose"] = lowering.plan.searched.plan
            notes.append(f"{kind}: {lowering.plan.searched.machine}; {pinned([lowering.plan.searched])}")
        for labels, built in _built(lowering, plans):
            contenders.append(_write(built, labels, kind, folder / f"{len(contenders)}"))
        for label, passes in _variants(lowering.plan.original.passes) if options.passes else ():
            other = _lowering(options, kind, passes)
            built = other.plan.target.emit(other.graph.final, _ends(other.plan.buckets))
            contenders.append(_write(built, (label,), kind, folder / f"{len(contenders)}"))
    if not contenders:
        raise DataError(f"expected a target that runs here, got {', '.join(notes)}", cure="name another one")
    content = [dataclasses.asdict(each) for each in contenders]
    (folder / CONTENDERS).write_text(json.dumps(content))
    return contenders, notes


def _variants(passes: Sequence[PassSpec]) -> Iterator[tuple[str, list[PassSpec]]]:
    """Yield the recipe's passes without one that serves speed alone, and with packed states, by row of the table."""
    for name in dict.fromkeys(each.name for each in passes if each.name in SERVE_SPEED):
        yield f"standard forms, without pass {name}", [each for each in passes if each.name != name]
    packed = [
        PassSpec(name="pack_states", options={"most": 0}) if each.name == "pack_states" else each for each in passes
    ]
    if packed != list(passes):
        yield "standard forms, states packed", packed


def _lowering(options: argparse.Namespace, kind: str, passes: Sequence[PassSpec] | None = None) -> Lowering:
    """Return the recipe's graph for a target after all passes, with its searched variants if asked for.

    Args:
        options: options of the command.
        kind: kind of target.
        passes: passes to use in place of the recipe's; then no variants are searched for.
    """
    forms = ", forms: search" if options.search and passes is None else ""
    changes = [*options.set, f"targets.0={{kind: {kind}{forms}}}"]
    loaded = load_recipe(options.recipe, changes)
    name = options.graph or next(iter(loaded.recipe.graphs))
    if name not in loaded.recipe.graphs:
        names = ", ".join(loaded.recipe.graphs)
        raise DataError(f"{options.recipe}: expected one of its graphs ({names}), got {name!r}", cure="correct --graph")
    if passes is not None:
        written = json.dumps([{each.name: dict(each.options)} for each in passes])
        loaded = load_recipe(options.recipe, [*changes, f"graphs.{name}.passes={written}"])
    target = check(loaded)[0].target
    original = original_of(loaded, name, loaded.recipe.graphs[name], StageCache(default_folder()), Progress())
    return lower(plan_lowering(original, target, original.gate))


def _plans(target: Target) -> dict[str, Plan]:
    """Return the plans of the table by row."""
    names = [form.name for form in target.offers]
    plans: dict[str, Plan] = {NONE: ()}
    plans |= {f"{name} alone": (name,) for name in names}
    plans |= {f"all but {name}": tuple(each for each in names if each != name) for name in names}
    plans |= {f"up to {name}": tuple(names[: place + 1]) for place, name in enumerate(names)}
    return plans | {ALL: tuple(names)}


def _built(lowering: Lowering, plans: Mapping[str, Plan]) -> Iterator[tuple[tuple[str, ...], Built]]:
    """Yield the artefacts of every plan once, with their rows of the table; unrounded graphs first."""
    target, buckets = lowering.plan.target, _ends(lowering.plan.buckets)
    if any(each.made.lossy for each in lowering.plan.passes):
        exact = prepare_static(target, lowering.graph.exact, buckets, opens_rows=target.opens_rows)
        quiet = [form.name for form in target.offers if not form.made.lossy]
        yield (BEFORE,), write_prepared(target.with_plan(()), exact)
        yield (BEFORE_FORMED,), write_prepared(target.with_plan(quiet), exact)
    prepared = prepare_static(target, lowering.graph.final, buckets, opens_rows=target.opens_rows)
    rows: dict[Plan, list[str]] = {}
    for label, plan in plans.items():
        rows.setdefault(plan, []).append(label)
    for plan, labels in rows.items():
        built = write_prepared(target.with_plan(plan), prepared)
        idle = [each.variant for each in built.forms if not each.rewritten]
        yield tuple(f"{label} (no change: {', '.join(idle)})" if idle else label for label in labels), built


def _ends(buckets: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {axis: tuple(dict.fromkeys((sizes[0], sizes[-1]))) for axis, sizes in buckets.items()}


def _write(built: Built, labels: tuple[str, ...], kind: str, folder: Path) -> Contender:
    write_files(folder, built.files)
    files, works = {}, {}
    for emitted in (built.artifacts[0], built.artifacts[-1]):
        bucket = bucket_name(emitted.sizes)
        files[bucket] = emitted.file
        works[bucket] = dataclasses.asdict(work_of(emitted.lowered.model, emitted.sizes))
        np.savez(folder / f"{bucket}.npz", **full_feeds(emitted))  # type: ignore[arg-type]
    return Contender(labels, kind, str(folder), files, works)


def _run(folder: Path, rounds: int) -> Run:
    """Return the result of `_measured`, run in a process of its own."""
    words = ("-m", "benchmarks.levers", "--measure", str(folder), "--rounds", str(rounds))
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True)
    return {bucket: [Figures(**each) for each in found] for bucket, found in json.loads(done.stdout).items()}


def _measured(folder: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Return the results of every contender by bucket, as JSON; all run in turn."""
    contenders = [Contender(**each) for each in json.loads((folder / CONTENDERS).read_text())]
    found = {}
    sessions: dict[Path, Session] = {}
    machines = {each.target: Machine(opens=engine_of(TARGETS[each.target]())) for each in contenders}
    for bucket in contenders[0].files:
        turns = Rounds([_call(each, bucket, sessions) for each in contenders])
        turns.more(rounds)
        found[bucket] = [
            dataclasses.asdict(
                Figures(
                    [times[place] / times[0] for times in turns.times],
                    statistics.median(times[place] for times in turns.times)
                    / machines[each.target].floor_s(Work(**each.works[bucket])),
                )
            )
            for place, each in enumerate(contenders)
        ]
    return found


def _call(contender: Contender, bucket: str, sessions: dict[Path, Session]) -> Call:
    folder = Path(contender.folder)
    path = folder / contender.files[bucket]
    with np.load(folder / f"{bucket}.npz") as arrays:
        feeds = dict(arrays)
    with command.contender(f"{contender.target}, {contender.labels[0]}"):
        session = sessions[path] if path in sessions else TARGETS[contender.target]().open(path)
        session.run(None, feeds)
    sessions[path] = session
    return lambda: session.run(None, feeds)


def _table(contenders: Sequence[Contender], runs: Sequence[Run]) -> Iterator[str]:
    buckets = list(runs[0])
    yield f"| target | forms | {' | '.join(f'{bucket} | to its floor' for bucket in buckets)} |"
    yield f"|---|---|{'---|---|' * len(buckets)}"
    rows = [(label, place) for place, each in enumerate(contenders) for label in each.labels]
    for label, place in rows:
        figures = [_figures([run[bucket][place] for run in runs]) for bucket in buckets]
        yield f"| `{contenders[place].target}` | {label} | {' | '.join(figures)} |"


def _figures(runs: Sequence[Figures]) -> str:
    """Return the spread of the rounds of one run, or of the medians of several, and the multiple of the floor."""
    to_floor = statistics.median(run.to_floor for run in runs)
    if len(runs) == 1:
        found = ratio_of(runs[0].ratios)
        return f"{found.median:.3f} ({found.low:.3f}..{found.high:.3f}) | {to_floor:.2f}"
    medians = [statistics.median(run.ratios) for run in runs]
    return f"{statistics.median(medians):.3f} ({min(medians):.3f}..{max(medians):.3f}) | {to_floor:.2f}"


if __name__ == "__main__":
    command.run(main)
