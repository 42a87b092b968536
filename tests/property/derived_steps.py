"""Hunts for steps that are derived and wrong, on random stateless graphs.

    python -m tests.property.derived_steps --graphs 10000 --seed 0 --kind frames

Half of the graphs are streams, a third of them with a text before the frames; the other half are spoiled: their
attention sees later frames, the text hears some, or something depends on the length of the sequence. Of the kind
`chunks`, frames see all of their own chunk, and calls are of whole ones but for the last; of the kind `sliding`, steps
forget what masks no longer show, and are compared over several windows where streams go on without end; of the kind
`masks`, these change with the length of another axis or with tokens that stand for padding, and some leave a frame
nothing to see; of the kind `tokens`, tokens reach their table through a clamp, a selection or an offset, within a
declared range or none, and spoiled, a range goes beyond it; of the kind `rates`, the result has several entries per
frame, and spoiled, these know later ones; of the kind `recurrences`, these begin with other states than zeros, and
spoiled, with such that no stream knows; of the kind `spelled`, a sliding mask is written in one of many ways, and
spoiled, shows more near by or far behind the longest sequence that is asked about; of the kind `operators`, one of many
operators computes of every frame alone, and spoiled, along time; of the kind `chains`, layers behind another make more
entries of every frame and fewer again, and spoiled, the last reads later ones; of the kind `ahead`, some of these read
a few entries ahead, so that answers come later, and spoiled, another reads all. A graph counts as unsound when steps
are derived whose answers differ from the whole graph's, as disputed when the checker refuses what was derived, and as
broken where anything ends in an error, or not within `--seconds`.
"""

import argparse
import collections
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from compiler.checker.graph import Rejected
from compiler.checker.later import check_later
from compiler.checker.steps import check_steps
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.proof.derivation.derive import DerivedSteps, derive
from compiler.proof.facts.lookup_ranges import lookup_ranges
from tests.kit.whole_sequences import (
    BEYOND,
    HEARD,
    LABELS,
    LARGEST,
    LETTERS,
    LONGEST,
    PADDING,
    Drawing,
    drawn,
    drawn_ahead,
    drawn_at_rates,
    drawn_chains,
    drawn_in_chunks,
    drawn_masks,
    drawn_operators,
    drawn_recurrences,
    drawn_sliding,
    drawn_spelled,
    drawn_with_tokens,
    in_calls,
    lengths_of_calls,
    session,
    whole_graph,
)

TOLERANCE = 1.0e-4

FAR = 4 * LONGEST
"""Frames of a stream that goes on without end: several windows."""

Derive = Callable[..., DerivedSteps]

KINDS: Mapping[str, Callable[..., Drawing]] = {
    "frames": drawn,
    "chunks": drawn_in_chunks,
    "sliding": drawn_sliding,
    "masks": drawn_masks,
    "tokens": drawn_with_tokens,
    "rates": drawn_at_rates,
    "recurrences": drawn_recurrences,
    "spelled": drawn_spelled,
    "operators": drawn_operators,
    "chains": drawn_chains,
    "ahead": drawn_ahead,
}
"""What is drawn, by the name on the command line."""


BAD = ("unsound", "disputed", "broken")
"""Wrong answers, a certificate that the checker does not follow, and an error that is no refusal."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of one graph.

    Attributes:
        verdict: `accepted`, `refused`, or one of `BAD`.
        detail: why it was refused, or by how much it differs.
    """

    verdict: str
    detail: str = ""


def tried(drawing: Drawing, *, derived_by: Derive = derive, checks: bool = True) -> Trial:
    """Derive steps of one graph, and run them beside it."""
    whole = whole_graph(drawing)
    asked = session(whole)  # of the graph as it is drawn
    random = np.random.default_rng(drawing.seed)
    try:
        derived = steps_of(drawing, whole, derived_by)
    except Refused as refused:
        return Trial("refused", refused.message)
    if drawing.spoiler == BEYOND:
        return Trial("unsound", "a token without an entry in the table is taken")
    first = derived.certificate["first"]
    caches = {each.input: each.output for each in derived.cached}
    is_endless = any(each.is_count for each in derived.cached)
    most = FAR if is_endless else drawing.longest
    least = 3 if drawing.local == "joined_back" else 2  # it joins as many frames in front as it leaves out, at most 3
    for frames in (most, int(random.integers(least, most))):
        low, high = drawing.declared or drawing.fed
        feeds = {"tokens": random.integers(low, high + 1, (2, frames))}
        if drawing.hiding:
            feeds["tokens"][random.random((2, frames)) < 0.3] = PADDING
            feeds["tokens"][0, : int(random.integers(frames + 1))] = PADDING
        if drawing.has_memory:
            feeds["memory"] = random.integers(0, LABELS, (2, int(random.integers(1, HEARD + 1))))
        if drawing.text:
            letters = LETTERS if drawing.text == "fixed" else int(random.integers(1, LETTERS + 1))
            feeds["text"] = random.integers(0, LABELS, (2, letters))
        expected = asked.run(["scores"], feeds)[0]
        if derived.early is not None:
            frames, expected = _later(derived, feeds, frames, expected)
        lengths = lengths_of_calls(frames, random, drawing.chunk, most=drawing.longest // 2 if is_endless else frames)
        if first > lengths[0]:
            lengths = [min(first, frames), *[1] * max(frames - first, 0)]
        begins = {each.input: each.begins for each in derived.cached}
        got = in_calls(derived.model, caches, feeds, lengths, begins=begins)
        numbers = expected[np.isfinite(expected)]
        differences = np.abs(got - expected)[~(np.isnan(got) & np.isnan(expected))]
        worst = float(differences.max(initial=0)) / max(float(np.abs(numbers).max(initial=0)), 1.0)
        if not worst <= TOLERANCE:
            return Trial("unsound", f"{worst:.3g} at calls of {lengths}")
    if checks:
        graphs.infer_shapes(derived.model)
        protos = [ir.serde.serialize_model(each) for each in (whole, derived.model)]
        try:
            check_steps(protos[0], protos[1], derived.certificate, seeds=1)
            if derived.early is not None:
                check_later(ir.serde.serialize_model(derived.early), protos[0], derived.certificate)
        except Rejected as rejected:
            return Trial("disputed", str(rejected))
    return Trial("accepted")


def steps_of(drawing: Drawing, whole: ir.Model, derived_by: Derive = derive) -> DerivedSteps:
    """The steps of a graph; it is changed.

    Raises:
        Refused: none can be derived.
    """
    declared = {} if drawing.declared is None else {"tokens": drawing.declared}
    ranges = lookup_ranges(whole, declared, graphs.inputs_named(whole), LARGEST)
    longest, chunk, forget = drawing.longest, drawing.chunk, drawing.forgets
    later = drawing.is_late
    return derived_by(whole, "time", "past", longest, LARGEST, chunk, forget=forget, later=later, ranges=ranges)


def _later(derived: DerivedSteps, feeds: dict[str, Array], frames: int, expected: Array) -> tuple[int, Array]:
    """Feed as many frames behind the end as answers come late; return all frames, and zeros in front of the answers."""
    delay = int(derived.certificate["delay"])
    rows, rate = expected.shape[0], expected.shape[1] // frames
    feeds["tokens"] = np.concatenate([feeds["tokens"], np.full((rows, delay), 1)], axis=1)
    feeds[derived.certificate["marks"]] = np.repeat(np.array([[1, 0]], np.float32), [frames, delay], axis=1).repeat(
        rows, axis=0
    )
    zeros = np.zeros((rows, delay * rate, expected.shape[2]), expected.dtype)
    return frames + delay, np.concatenate([zeros, expected], axis=1)


def _give_up(*_: object) -> None:
    raise TimeoutError("it has not ended in time")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default="frames")
    parser.add_argument("--seconds", type=int, default=120, help="for one graph")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _give_up)
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.graphs):
        drawing = KINDS[arguments.kind](seed, spoiled=seed % 2 == 1)
        signal.alarm(arguments.seconds)
        try:
            trial = tried(drawing)
        except Exception as error:  # noqa: BLE001 - one graph that breaks does not end a hunt
            trial = Trial("broken", f"{type(error).__name__}: {error}"[:300])
        signal.alarm(0)
        counts[f"{'spoiled' if drawing.spoiler else 'stream'} {trial.verdict}"] += 1
        if trial.verdict in BAD:
            print(f"seed {seed}: {trial.verdict}: {trial.detail}\n  {drawing}", flush=True)
        elif trial.verdict == "refused" and not drawing.spoiler:
            reasons[trial.detail[:150]] += 1
    seconds = time.monotonic() - began
    print(f"{arguments.graphs} graphs from seed {arguments.seed} in {seconds:.0f} s: {dict(sorted(counts.items()))}")
    for reason, count in reasons.most_common(12):
        print(f"  refused stream, {count} times: {reason}")
    return int(any(verdict.endswith(BAD) for verdict in counts))


if __name__ == "__main__":
    sys.exit(main())
