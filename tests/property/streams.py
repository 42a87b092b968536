"""Random step graphs through the whole path: whatever is accepted answers as its author's own loop, call after call.

`python -m tests.property.streams --graphs 20000 --seed 0` draws many; the tests draw a few. Each graph goes through the
standard passes, and its certificate through the checker. Rows that begin at different calls, with chunks of lengths of
their own, then run side by side, and each is compared with a plain loop over the graph as it was drawn; at last every
padded place is filled with poison.
"""

import argparse
import collections
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

import numpy as np
import onnxruntime

from compiler import ir as house
from compiler.capture.initial_graph import initial_graph
from compiler.errors import GateFailed, Refused
from compiler.lowering.certificates import replay_certificates
from compiler.passes import make_pass
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.runners.padded_chunks import side_by_side
from compiler.runners.session import open_session, session_of
from compiler.runners.stream import Runner, expected_states
from compiler.stages import Array, Lowered
from compiler.verify.invariance_check import check_invariance
from tests.property.stream_graphs import Grown, chunks_of, grow

ROWS = 3
TOLERANCE = 1e-4


class Unsound(AssertionError):
    """A graph that was accepted answers otherwise than its author's loop."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one graph.

    Attributes:
        kind: `accepted`, `refused`, `unsound` or `disagreement`, where the checker does not follow the prover.
        told: why it was refused, or what differs.
    """

    kind: str
    told: str = ""


class AuthorsLoop:
    """The graph as it was drawn, call after call, in the way of its author; caches keep their newest frames.

    Args:
        grown: the graph.
        session: runs it.
    """

    def __init__(self, grown: Grown, session: onnxruntime.InferenceSession) -> None:
        self.grown, self.session = grown, session
        self.slots = {name: axis.window for name, axis in grown.spec.axes.items()}
        self.states = {
            name: np.zeros([1 if dim == "batch" else 0 if isinstance(dim, str) else dim for dim in given.shape], "f4")
            for name, given in grown.spec.inputs.items()
            if given.state is not None
        }

    def push(self, chunk: Array) -> Array:
        """The scores of a chunk."""
        names = [output.name for output in self.session.get_outputs()]
        results = dict(zip(names, self.session.run(None, {"features": chunk, **self.states}), strict=True))
        self.states = {name: results[f"next_{name}"] for name in self.states}
        for cache in self.grown.caches:
            kept = self.slots[cache.axis]
            assert kept is not None
            index = [slice(None)] * 3
            index[cache.frames_axis] = slice(max(self.states[cache.input].shape[cache.frames_axis] - kept, 0), None)
            self.states[cache.input] = self.states[cache.input][tuple(index)]
        return np.asarray(results["scores"])


def lowered_of(grown: Grown) -> Lowered:
    """The graph after the standard passes.

    Raises:
        Refused: a pass does not take it.
        GateFailed: the checker does not follow the certificate of a pass.
    """
    model, longest = house.clone(grown.model), {"chunk": grown.chunk}
    lowered = initial_graph(mock.Mock(), "net", grown.spec, (model, None), 10_000, longest)
    for name in STANDARD_PASSES:
        before = dataclasses.replace(lowered, model=house.clone(lowered.model))
        outcome = make_pass(name, {}).apply(lowered)
        replay_certificates(before, outcome)
        lowered = outcome.lowered
    return lowered


def try_graph(seed: int) -> Outcome:
    """What becomes of the graph of a seed."""
    grown = grow(seed)
    try:
        lowered = lowered_of(grown)
    except Refused as refused:
        return Outcome("refused", refused.message)
    except GateFailed as failed:
        return Outcome("disagreement", str(failed))
    try:
        compare(grown, lowered, np.random.default_rng(seed + 1))
    except (Unsound, GateFailed) as failed:
        return Outcome("unsound", str(failed))
    return Outcome("accepted")


def compare(grown: Grown, lowered: Lowered, rng: np.random.Generator) -> None:
    """Rows of different ages beside each other against the author's loop, and poison in all padding.

    Raises:
        Unsound: an answer or a state differs.
        GateFailed: poison is seen.
    """
    session = session_of(lowered.model)
    own = open_session(house.serialized(grown.model))
    runner = Runner(lowered, session, ROWS, fill=float(rng.choice([0.0, 1e30, np.nan])))
    rows = [chunks_of(grown, rng, int(rng.integers(4, 9))) for _ in range(ROWS)]
    starts = [0, *(int(each) for each in rng.integers(0, 3, ROWS - 1))]
    loops = [AuthorsLoop(grown, own) for _ in range(ROWS)]
    idle = np.zeros_like(rows[0][0])
    for call in range(min(start + len(chunks) for start, chunks in zip(starts, rows, strict=True))):
        for row in [row for row, start in enumerate(starts) if start == call]:
            _restart(runner, row)
        chunks = [rows[row][call - start] if call >= start else idle for row, start in enumerate(starts)]
        outputs = runner.step(side_by_side(lowered, [{"features": chunk} for chunk in chunks]))
        for row in [row for row, start in enumerate(starts) if call >= start]:
            expected = loops[row].push(chunks[row])
            got = outputs["scores"][row : row + 1, : expected.shape[1]]
            _require_close(got, expected, f"scores of row {row} at call {call}")
            for name, state in expected_states(lowered, loops[row].states).items():
                _require_close(runner.states[name][row : row + 1], state, f"{name} of row {row} at call {call}")
    check_invariance(Runner(lowered, session, ROWS), [{"features": chunk} for chunk in rows[0][:5]])


def _restart(runner: Runner, row: int) -> None:
    """Let a row begin a new stream, whatever it has carried."""
    for array in runner.states.values():
        array[row] = 0
    for lengths in runner.lengths.values():
        lengths[row] = 0


def _require_close(got: Array, expected: Array, what: str) -> None:
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if got.shape != expected.shape or not np.max(np.abs(got - expected), initial=0.0) <= TOLERANCE * scale:
        raise Unsound(f"expected {what} {expected.ravel()[:4]} of shape {expected.shape}, got {got.ravel()[:4]}")


def outcomes(seeds: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    """What becomes of the graphs of some seeds."""
    for seed in seeds:
        try:
            yield seed, try_graph(seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what a person needs
            yield seed, Outcome("error", f"{type(error).__name__}: {error}")


def counted(found: Mapping[int, Outcome]) -> dict[str, int]:
    """How many graphs came to what."""
    return dict(collections.Counter(outcome.kind for outcome in found.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw graphs, and say what became of them; 1 if any was unsound, or the checker did not follow."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.streams", description=__doc__)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found, began = {}, time.monotonic()
    for seed, outcome in outcomes(range(given.seed, given.seed + given.graphs)):
        found[seed] = outcome
        if outcome.kind not in ("accepted", "refused"):
            print(f"seed {seed}: {outcome.kind}: {outcome.told}", flush=True)
        if len(found) % 200 == 0:
            print(f"{len(found)} graphs, {time.monotonic() - began:.0f} s: {counted(found)}", flush=True)
    reasons = collections.Counter(outcome.told[:90] for outcome in found.values() if outcome.kind == "refused")
    for reason, count in reasons.most_common(12):
        print(f"  refused {count}: {reason}")
    print(f"{len(found)} graphs from seed {given.seed}: {counted(found)}")
    return int(any(outcome.kind not in ("accepted", "refused") for outcome in found.values()))


if __name__ == "__main__":
    sys.exit(main())
