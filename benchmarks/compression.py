"""Compares fewer channels and heads with 8-bit integers, and both together: time, noise and the task.

    python -m benchmarks.compression --recipe edge.yaml --times 0.8 0.65

All contenders are the recipe's graph, with its calibration data; float32 is the graph in front of the first pass that
measures.

- compress T: `compress` with that share of the time behind `select_states`, where the heads of layers are apart; else
  behind the passes that do not measure.
- int8: the rest of the recipe's passes.
- compress T, int8: one behind the other.

Times are those of one call of one row on full caches, of one thread while it computes, all contenders in one process,
in turns: the median of the ratio to float32 (10th..90th percentile over the rounds). Noise is that of the data outputs
over verification streams. The task is decoded on all recordings; its difference to float32 has a 95 % interval by
resampling recordings, the same ones for both.
"""

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.build.verify.gates.task import task_functions
from compiler.calib.watched_streams import noise_between, run_streams
from compiler.errors import DataError, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.paired_rounds import Rounds
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Feed, Lowered, Pass
from compiler.passes import make_pass
from compiler.passes.compress import Compress
from compiler.passes.select_states import SelectStates
from compiler.recipe.load import LoadedRecipe, load_recipe
from compiler.recipe.user_code.callables import importable
from compiler.targets import placements

BEHIND = SelectStates.name

RESAMPLES = 400
"""Of the recordings; the ends of the interval then vary by less than a tenth of its width."""


@dataclasses.dataclass
class Contender:
    """One graph.

    Attributes:
        label: as the table names it.
        lowered: the graph.
        minutes: that its passes took.
        channels: read by products before and after, where some were taken out.
        noise_db: signal to noise of the data outputs, in dB.
        texts: of all recordings.
    """

    label: str
    lowered: Lowered
    minutes: float = 0.0
    channels: str = ""
    noise_db: float = math.inf
    texts: Sequence[str] = ()


def main() -> None:
    """Compare, print a table, and with `--json` keep the numbers."""
    options = _parse()
    loaded = load_recipe(options.recipe)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as scratch:
        name, spec = next(iter(loaded.recipe.graphs.items()))
        cache = StageCache(options.cache or Path(scratch))
        original = original_of(loaded, name, spec, cache, Progress(Console(quiet=True)))
        plain = dataclasses.replace(original.start(), calibration=original.calibration())
        if plain.calibration is None:
            raise DataError(f"{options.recipe}: expected data.calibration, got none", cure="give the recipe some")
        passes = [make_pass(each.name, each.options, placements()) for each in spec.passes]
        front, exact, rest = _parts_of(passes)
        early = _applied(plain, front)
        base = _applied(_copy(early), exact)
        streams = [stream[: options.calls] for stream in original.streams()[: options.streams]]
        contenders = [Contender("float32", base)]
        for share in options.times:
            contenders += _compressed(early, Compress(share, options.tile), exact, rest, console)
        contenders.append(_followed(Contender("int8", _copy(base)), rest))
        for each in contenders:
            noises = noise_between(base, each.lowered, streams)
            each.noise_db = -10 * math.log10(max(max(noises[output] for output in base.data_outputs), 1e-30))
    references = list[str]()
    for each in contenders:
        references, each.texts = transcribed(loaded, each.lowered, options.recordings)
        console.print(each.label, "decoded")
    rows = _rows(loaded, contenders, references, stream=base_stream(plain), rounds=options.rounds)
    console.print(_table(options.recipe, rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fewer channels beside 8-bit integers.")
    parser.add_argument("--recipe", default="edge.yaml")
    parser.add_argument("--times", type=float, nargs="+", default=[0.8, 0.65], help="shares of the time")
    parser.add_argument("--tile", type=int, default=Compress.tile, help="numbers of channels are multiples of it")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", type=int, default=4, help="verification streams that noise is measured on")
    parser.add_argument("--calls", type=int, default=40, help="calls of each")
    parser.add_argument("--recordings", type=int, help="only the first recordings of the task")
    parser.add_argument("--cache", type=Path, help="captured graphs of earlier builds")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _copy(lowered: Lowered) -> Lowered:
    return dataclasses.replace(lowered, model=graphs.clone(lowered.model))


def _parts_of(passes: Sequence[Pass]) -> tuple[Sequence[Pass], Sequence[Pass], Sequence[Pass]]:
    """Return the passes in front of the cut, those behind it that measure nothing, and the rest."""
    first = next((at for at, made in enumerate(passes) if made.expensive), len(passes))
    behind = next((at + 1 for at, made in enumerate(passes[:first]) if made.name == BEHIND), first)
    return passes[:behind], passes[behind:first], passes[first:]


def _compressed(
    early: Lowered, made: Compress, exact: Sequence[Pass], rest: Sequence[Pass], console: Console
) -> list[Contender]:
    """Return the graph with fewer channels, alone and with the recipe's integers, each unless it is refused."""
    started = time.perf_counter()
    try:
        outcome = made.apply(_copy(early))
    except Refused as error:
        console.print(f"compress {made.time:g}: {error}")
        return []
    console.print(f"compress {made.time:g}:", outcome.detail)
    assert outcome.compression is not None
    for cut in outcome.compression.cuts:
        console.print(" ", cut)
    before, after = (sum(getattr(cut, part) for cut in outcome.compression.cuts) for part in ("before", "after"))
    lowered, minutes = _applied(outcome.lowered, exact), (time.perf_counter() - started) / 60
    alone = Contender(f"compress {made.time:g}", lowered, minutes, f"{before} -> {after}")
    both = dataclasses.replace(alone, label=f"{alone.label}, int8", lowered=_copy(lowered))
    try:
        return [alone, _followed(both, rest)]
    except Refused as error:
        console.print(f"{both.label}: {error}")
        return [alone]


def _applied(lowered: Lowered, passes: Sequence[Pass]) -> Lowered:
    for made in passes:
        lowered = made.apply(lowered).lowered
    return lowered


def _followed(contender: Contender, rest: Sequence[Pass]) -> Contender:
    started = time.perf_counter()
    contender.lowered = _applied(contender.lowered, rest)
    contender.minutes += (time.perf_counter() - started) / 60
    return contender


def transcribed(loaded: LoadedRecipe, lowered: Lowered, count: int | None) -> tuple[list[str], list[str]]:
    """Return references and transcripts of the task's recordings, each decoded alone."""
    gate = loaded.recipe.gates.task
    if gate is None:
        raise RecipeError(f"{loaded.where('gates')}: expected `task`, got none", cure="name one")
    functions = task_functions(loaded, gate)
    references, texts = list[str](), list[str]()
    with importable(loaded.search_path()):
        runner = runner_of(lowered, optimize=True)
        for recording in list(functions["recordings"]())[:count]:
            runner.reset()
            texts.append(functions["decode"]([runner.step(chunk) for chunk in recording.chunks]))
            references.append(recording.reference)
    return references, texts


Metric = Callable[[Sequence[str], Sequence[str]], float]


def interval(
    metric: Metric, references: Sequence[str], texts: Sequence[str], right: Sequence[str]
) -> tuple[float, float]:
    """Return the interval that holds 95 % of the metric's differences over resampled recordings.

    Args:
        metric: of references and transcripts.
        references: of all recordings.
        texts: transcripts of one system.
        right: transcripts of the one that it is compared with, on the same recordings.
    """
    chance, differences = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        drawn = chance.integers(len(references), size=len(references)).tolist()
        wanted, got, other = ([each[at] for at in drawn] for each in (references, texts, right))
        differences.append(metric(wanted, got) - metric(wanted, other))
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def base_stream(lowered: Lowered) -> Sequence[Feed]:
    """Return the longest calibration stream."""
    assert lowered.calibration is not None
    return max(lowered.calibration.streams, key=len)


def _rows(
    loaded: LoadedRecipe,
    contenders: Sequence[Contender],
    references: Sequence[str],
    stream: Sequence[Feed],
    rounds: int,
) -> dict[str, dict[str, Any]]:
    """Return the figures of every contender."""
    gate = loaded.recipe.gates.task
    assert gate is not None
    with importable(loaded.search_path()):
        metric: Metric = task_functions(loaded, gate)["metric"]
        rows = {}
        first = contenders[0]
        for each in contenders:
            found = metric(references, each.texts)
            low, high = interval(metric, references, each.texts, first.texts)
            rows[each.label] = {
                "channels": each.channels, "noise_db": each.noise_db, "metric": found, "minutes": each.minutes,
                "difference": found - metric(references, first.texts), "low": low, "high": high,
            }  # fmt: skip
    timed = Rounds([_call(each.lowered, stream) for each in contenders])
    timed.more(rounds)
    for at, each in enumerate(contenders):
        ratio = timed.ratio(pair=(at, 0))
        rows[each.label] |= {
            "ms": 1e3 * float(np.median([times[at] for times in timed.times])),
            "ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high,
        }  # fmt: skip
    return rows


def _call(lowered: Lowered, stream: Sequence[Feed]) -> Callable[[], object]:
    """Return what runs one call on full caches."""
    with command.contender(lowered.graph):
        session = session_of(lowered.model, optimize=True)
        *_, last = run_streams(lowered, [stream])
    fed = dict(last.feed)
    return lambda: session.run(None, fed)


def _table(recipe: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{recipe}: one call of one row", box=None, pad_edge=False, title_justify="left")
    for column in ("", "channels", "ms", "of float32", "noise dB", "task", "difference", "95 %", "minutes"):
        table.add_column(column, justify="left" if column in ("", "channels") else "right")
    for label, row in rows.items():
        table.add_row(
            label, row["channels"], f"{row['ms']:.3f}",
            f"{row['ratio']:.2f} ({row['ratio_low']:.2f}..{row['ratio_high']:.2f})", f"{row['noise_db']:.1f}",
            f"{100 * row['metric']:.2f} %", f"{100 * row['difference']:+.2f}",
            f"{100 * row['low']:+.2f}..{100 * row['high']:+.2f}", f"{row['minutes']:.1f}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    command.run(main)
