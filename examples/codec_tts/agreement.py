"""Compares two ways of speaking the same sentences: their codes, the scores of every code, and their sound.

Scores are compared up to the first code that differs. At that step, the original's scores show whether it was a near
tie: whether the two codes are closer than the scores of the two ways differ.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from examples.codec_tts import generation, prompt

NEAREST = 3
"""So many of the nearest ties are named."""


@dataclasses.dataclass
class Said:
    """The output of one way of speaking, sentence by sentence.

    Attributes:
        codes: first codebook, int64 [time].
        scores: the scores of each code and of the final boundary, float32 [513] each.
        samples: the waveform, float32 [time * 320].
        first_s: seconds from text to the first sound.
        factors: seconds of computation per second of sound.
    """

    codes: list[generation.Codes] = dataclasses.field(default_factory=list)
    scores: list[list[generation.Scores]] = dataclasses.field(default_factory=list)
    samples: list[prompt.Samples] = dataclasses.field(default_factory=list)
    first_s: list[float] = dataclasses.field(default_factory=list)
    factors: list[float] = dataclasses.field(default_factory=list)

    def hearing(self, pick: generation.Pick) -> generation.Pick:
        """Return a pick that also records the scores of one more sentence."""
        heard: list[generation.Scores] = []
        self.scores.append(heard)

        def keeping(scores: generation.Scores) -> int:
            heard.append(np.array(scores))
            return pick(scores)

        return keeping


def compared(original: Said, bundle: Said) -> Iterator[str]:
    """Yield lines that compare a bundle's codes, scores, sound and times with the original's."""
    pairs = list(zip(original.codes, bundle.codes, strict=True))
    parted = [_parted(ours, theirs) for ours, theirs in pairs]
    same = [at for at, step in enumerate(parted) if step is None]
    yield f"the same codes: {len(same)} of {len(pairs)} sentences"
    steps = [
        (at, step, ours, theirs)
        for at, (all_ours, all_theirs) in enumerate(zip(original.scores, bundle.scores, strict=True))
        for step, (ours, theirs) in enumerate(zip(all_ours, all_theirs, strict=False))
        if parted[at] is None or step <= (parted[at] or 0)
    ]
    if steps:
        apart = max(float(np.abs(ours - theirs).max()) for _, _, ours, theirs in steps)
        largest = max(float(np.abs(ours).max()) for _, _, ours, _ in steps)
        yield f"scores of {len(steps)} steps behind the same codes: at most {apart:.2g} apart, of up to {largest:.3g}"
        leads = sorted((_lead(ours), at, step) for at, step, ours, _ in steps)
        nearest = ", ".join(f"{lead:.2g} (sentence {at}, step {step})" for lead, at, step in leads[:NEAREST])
        yield f"nearest ties of the likeliest code, lead over the next: {nearest}"
        near = sum(lead <= 2 * apart for lead, _, _ in leads)
        yield f"near ties, where scores so far apart could take another code: {near} of {len(steps)} steps"
    for at, step in enumerate(parted):
        if step is not None:
            yield f"sentence {at} differs from code {step} on{_told(original, bundle, at, step)}"
    heard = [
        float(np.abs(original.samples[at] - bundle.samples[at]).max(initial=0.0)) for at in same if original.samples
    ]
    if heard:
        yield f"sound of the same codes: at most {max(heard):.2g} apart"
    if bundle.factors:
        yield f"real-time factor {_spread(bundle.factors, '.3f')}"
        yield f"first sound after {_spread([1000.0 * each for each in bundle.first_s], '.1f')} ms"


def _parted(ours: generation.Codes, theirs: generation.Codes) -> int | None:
    """Return the first step at which two sentences differ; None if they do not."""
    if np.array_equal(ours, theirs):
        return None
    shared = np.flatnonzero(ours[: len(theirs)] != theirs[: len(ours)])
    return int(shared[0]) if len(shared) else min(len(ours), len(theirs))


def _lead(scores: generation.Scores) -> float:
    """Return the difference of the two largest scores."""
    second, first = np.partition(scores, -2)[-2:]
    return float(first - second)


def _told(original: Said, bundle: Said, at: int, step: int) -> str:
    """Return a sentence on the original's scores of the bundle's first different code."""
    if not original.scores or step >= len(original.scores[at]):
        return ""
    scores, taken = original.scores[at][step], [*bundle.codes[at].tolist(), generation.BOUNDARY][step]
    return f": its code lies {float(scores.max() - scores[taken]):.2g} below the original's likeliest"


def _spread(values: list[float], form: str) -> str:
    """Return median, smallest and largest value as text."""
    low, middle, high = np.quantile(values, [0.0, 0.5, 1.0])
    return f"{middle:{form}} ({low:{form}}..{high:{form}})"
