"""Times tokens that the runtime generates beside a bare loop over one sequence after the other.

    python -m benchmarks.generation dist/decoder --tokens tokens --scores scores

The loop opens a stream for each sequence, pushes a token, draws the next one from the scores by the same sampler, and
pushes it. `generate` starts all sequences and then takes the result of each, or reads each token by token. All have one
worker of one thread, and take turns.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.serving.rounds import in_turns, ratios, spread
from runtime_lite import Generation, Model, Runtime, Sampling
from runtime_lite.decoding.sampling import Sampler
from runtime_lite.errors import BadInput


def main() -> None:
    """Print a row for each number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of a bundle with a step of one token")
    parser.add_argument("--graph", help="needed when the bundle has several")
    parser.add_argument("--tokens", required=True, metavar="INPUT", help="takes tokens")
    parser.add_argument("--scores", required=True, metavar="OUTPUT", help="has the scores of the next token")
    parser.add_argument("--sequences", type=int, nargs="+", default=(1, 4, 16, 48), metavar="N", help="at once")
    parser.add_argument("--steps", type=int, default=100, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=15, help="in which both take their turn")
    options = parser.parse_args()
    command.graph_of_bundle(options.bundle, options.graph, streams=True)
    for name in ("steps", "rounds", "sequences"):
        counts = getattr(options, name) if name == "sequences" else [getattr(options, name)]
        if min(counts) < 1:
            raise BadInput(f"--{name}: expected numbers from 1 on, got {min(counts)}; correct it")
    table = Table(
        "sequences", "loop, us a token", "results", "results / loop", "token by token", "token by token / loop"
    )
    with Runtime(max_streams=max(options.sequences)) as runtime:
        steps = Steps(runtime.load(options.bundle, warm_up=True), options.graph, options.tokens, options.scores)
        contenders = {"loop": steps.in_a_loop, "results": steps.results, "token by token": steps.token_by_token}
        for count in options.sequences:
            settings = [Sampling(options.steps, temperature=1.0, top_k=10, seed=seed) for seed in range(count)]
            us = in_turns(
                {name: partial(us_a_token, make, settings) for name, make in contenders.items()}, options.rounds
            )
            cells = [spread(us["loop"], 1)]
            for name in ("results", "token by token"):
                cells += [spread(us[name], 1), spread(ratios(us[name], us["loop"]))]
            table.add_row(str(count), *cells)
    Console(width=120).print(table)


@dataclass(frozen=True)
class Steps:
    """A step of one token, in two ways.

    Attributes:
        model: the bundle that has it.
        graph: its graph; None for the only one.
        tokens: the input that takes tokens.
        scores: the output with the scores of the next token.
    """

    model: Model
    graph: str | None
    tokens: str
    scores: str

    def in_a_loop(self, settings: Sequence[Sampling]) -> list[list[int]]:
        """Return the tokens of sequences that a caller's loop makes one after the other."""
        return [self._sequence(sampling) for sampling in settings]

    def _sequence(self, sampling: Sampling) -> list[int]:
        sampler, token, drawn = Sampler(sampling), 0, list[int]()
        with self.model.open_stream(self.graph) as stream:
            while len(drawn) < sampling.max_tokens:
                scores = stream.push(self._feed(token))[self.scores]
                token = sampler.take(scores.reshape(-1, scores.shape[-1])[-1]).token
                drawn.append(token)
        return drawn

    def results(self, settings: Sequence[Sampling]) -> list[list[int]]:
        """Return the tokens of sequences that the runtime generates together, as their results."""
        return [generation.result() for generation in self._generations(settings)]

    def token_by_token(self, settings: Sequence[Sampling]) -> list[list[int]]:
        """Return the tokens of sequences that the runtime generates together, read as they come."""
        return [list(generation) for generation in self._generations(settings)]

    def _generations(self, settings: Sequence[Sampling]) -> list[Generation]:
        return [
            self.model.generate(self._feed(0), sampling, tokens=self.tokens, scores=self.scores, graph=self.graph)
            for sampling in settings
        ]

    def _feed(self, token: int) -> dict[str, np.ndarray]:
        return {self.tokens: np.array([[token]])}


def us_a_token(make: Callable[[Sequence[Sampling]], list[list[int]]], settings: Sequence[Sampling]) -> float:
    """Return the microseconds that one token takes."""
    start = time.perf_counter()
    sequences = make(settings)
    return 1e6 * (time.perf_counter() - start) / sum(map(len, sequences))


if __name__ == "__main__":
    command.run(main)
