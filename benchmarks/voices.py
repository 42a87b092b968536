"""Measures voices that speak at once, beside the same voices one after another: sound per second, and first sounds.

    python -m benchmarks.voices dist/tts_ar --text 5,12,0,3,9,14,22,5,19,20,8,2 --input text

All voices say the same text with seeds of their own, which draw other tokens. Both ways have one worker of one thread
and take turns, round after round; a reader of a thread of its own takes the packets of each voice as they come. The
graph of a step is run alone in each round, too, with the feeds of a step of these voices: how much less a token costs
in a run of several rows is the most that speaking at once can bring where all time is spent in steps.

On a machine that does other work, `--processor-time` counts what the processor does for this process in place of the
time that passes, so that sound per second is that of one core with nothing else to do. When a reader gets a packet
depends on the other work still.
"""

import argparse
import contextlib
import math
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.serving.rounds import ratios, spread, times_us
from runtime_lite import Model, Runtime, Sampling, VoiceReport
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array

STEPS = 50
"""Runs of a step alone, in each round."""


@dataclass(frozen=True)
class Spoken:
    """Voices that were spoken.

    Attributes:
        sound_s: length of their sound.
        elapsed_s: from the first request to the last packet.
        reports: how each was served.
    """

    sound_s: float
    elapsed_s: float
    reports: Sequence[VoiceReport]

    @property
    def rate(self) -> float:
        """Seconds of sound per second."""
        return self.sound_s / self.elapsed_s

    @property
    def first_ms(self) -> float:
        """The median time to a first sound."""
        return statistics.median(report.first_sound_ms or 0.0 for report in self.reports)


def main() -> None:
    """Print a row for each number of voices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of a bundle with a voice")
    parser.add_argument("--input", required=True, help="input of the step that takes the text")
    parser.add_argument("--text", required=True, type=_numbers, help="its entries, separated by commas")
    parser.add_argument(
        "--prompt", type=_numbers, default=(), help="tokens before the first one, if the model needs any"
    )
    parser.add_argument("--tokens", type=int, default=140, help="of a voice; it does not end before")
    parser.add_argument("--voices", type=int, nargs="+", default=(1, 2, 4, 8), metavar="N", help="at once")
    parser.add_argument("--rounds", type=int, default=7, help="in which both take their turn")
    parser.add_argument("--processor-time", action="store_true", help="count it in place of the time that passes")
    options = parser.parse_args()
    for name, least in (("tokens", options.tokens), ("voices", min(options.voices)), ("rounds", options.rounds)):
        if least < 1:
            raise BadInput(f"--{name}: expected numbers from 1 on, got {least}; correct it")
    table = Table(
        "voices", "one after another, s/s", "at once, s/s", "ratio", "first sound, ms", "gaps over 100 ms",
        "step alone, ms", "steps allow",
    )  # fmt: skip
    with (
        _processor_time() if options.processor_time else contextlib.nullcontext(),
        Runtime(max_streams=2 * max(options.voices)) as runtime,
    ):
        model = runtime.load(options.bundle, warm_up=True)
        voice = model.bundle.manifest.voice
        if voice is None:
            raise BadInput(f"{options.bundle}: expected a bundle with a voice, got one without; see docs/serving.md")
        feeds = {options.input: np.array([options.text])}
        if options.prompt:
            feeds[voice.tokens] = np.array([options.prompt])
        sampling = Sampling(options.tokens, min_tokens=options.tokens, temperature=1.0)
        say, step = Say(model, feeds, sampling), StepAlone(model.runner(voice.step), voice.tokens)
        with step.recorded():
            say.at_once(1)
        for count in options.voices:
            with step.recorded():
                say.at_once(count)
            step_ms: dict[int, list[float]] = {1: [], count: []}
            spoken: dict[str, list[Spoken]] = {"after": [], "at once": []}
            for _ in range(options.rounds):
                spoken["after"].append(say.one_after_another(count))
                spoken["at once"].append(say.at_once(count))
                for rows, times in step_ms.items():
                    times.append(step.run_ms(rows))
            allowed = [count * one / several for one, several in zip(step_ms[1], step_ms[count], strict=True)]
            rates = {name: [one.rate for one in found] for name, found in spoken.items()}
            reports = [report for one in spoken["at once"] for report in one.reports]
            table.add_row(
                str(count),
                spread(rates["after"], 1),
                spread(rates["at once"], 1),
                spread(ratios(rates["at once"], rates["after"])),
                spread([one.first_ms for one in spoken["at once"]], 1),
                f"{sum(bool(report.gaps_over(100)) for report in reports)} of {len(reports)}",
                spread(step_ms[count]),
                spread(allowed),
            )
    Console(width=160).print(table)


@contextlib.contextmanager
def _processor_time() -> Iterator[None]:
    """Let the runtime and this benchmark count the processor's time of the process in place of that of the machine."""
    counts = {
        "monotonic_ns": time.process_time_ns,
        "perf_counter": time.process_time,
        "perf_counter_ns": time.process_time_ns,
    }
    before = {name: getattr(time, name) for name in counts}
    try:
        for name, count in counts.items():
            setattr(time, name, count)
        yield
    finally:
        for name, count in before.items():
            setattr(time, name, count)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


class StepAlone:
    """Runs the graph of a step in its backend alone.

    Args:
        runner: the runner of the graph.
        tokens: its input of tokens; calls of several are none of steps.
    """

    def __init__(self, runner: GraphRunner, tokens: str) -> None:
        """Start without feeds."""
        self._runner, self._executor, self._tokens = runner, runner.executor, tokens
        self._feeds: dict[int, tuple[Mapping[str, int], Mapping[str, Array], Mapping[str, Array]]] = {}

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep a copy of the feed of the last step in each number of rows."""
        self._runner.executor = self
        try:
            yield
        finally:
            self._runner.executor = self._executor

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run the graph, and keep a copy of the feed."""
        copies = {name: np.array(array) for name, array in inputs.items()}
        self._executor.run(sizes, inputs, outputs)
        if inputs[self._tokens].shape[1] != 1:
            return
        rows = 1 if self._runner.graph.batch_axis is None else sizes[self._runner.graph.batch_axis]
        self._feeds[rows] = sizes, copies, {name: np.empty_like(array) for name, array in outputs.items()}

    def close(self) -> None:
        """Close the backend."""
        self._executor.close()

    def run_ms(self, rows: int) -> float:
        """Return the milliseconds of a step of some rows, by the median of runs in recorded numbers of rows."""
        size = min((recorded for recorded in self._feeds if recorded >= rows), default=max(self._feeds))
        sizes, inputs, outputs = self._feeds[size]
        times = times_us(lambda: self._executor.run(sizes, inputs, outputs), STEPS)
        return math.ceil(rows / size) * statistics.median(times) / 1e3


@dataclass(frozen=True)
class Say:
    """A text and how it is spoken.

    Attributes:
        model: the bundle that speaks.
        feeds: of the first call.
        sampling: with the seed of the first voice.
    """

    model: Model
    feeds: dict[str, np.ndarray]
    sampling: Sampling

    def one_after_another(self, count: int) -> Spoken:
        """Say the text with one voice after the other."""
        found = [self._spoken([seed]) for seed in range(count)]
        reports = [report for one in found for report in one.reports]
        return Spoken(sum(one.sound_s for one in found), sum(one.elapsed_s for one in found), reports)

    def at_once(self, count: int) -> Spoken:
        """Say the text with all voices at once."""
        return self._spoken(range(count))

    def _spoken(self, seeds: Sequence[int]) -> Spoken:
        samples: list[int] = []
        voices = []
        begun = time.perf_counter()
        readers = []
        for seed in seeds:
            voice = self.model.say(self.feeds, self.sampling, seed=seed, room=self.sampling.max_tokens)
            voices.append(voice)
            readers.append(threading.Thread(target=lambda voice=voice: samples.extend(map(len, voice))))
            readers[-1].start()
        for reader in readers:
            reader.join()
        elapsed = time.perf_counter() - begun
        return Spoken(sum(samples) / voices[0].sample_rate_hz, elapsed, [voice.report for voice in voices])


if __name__ == "__main__":
    command.run(main)
