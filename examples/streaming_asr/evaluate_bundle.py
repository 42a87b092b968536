"""Compares a bundle of the recogniser with the original, chunk by chunk: word error rate, noise of the logits.

    python -m examples.streaming_asr.evaluate_bundle dist/streaming_asr-edge_qnn --short 7 --long 1

For bundles whose task metric no build computes, as a vendor's simulator takes seconds for a chunk: a few recordings of
the test set, the first short and the first long ones, each one stream. Needs `torch` and `safetensors`.
"""

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich import progress

import runtime_lite
from examples import command
from examples.streaming_asr import data, decode, metric, text
from examples.streaming_asr.evaluate import OriginalStream, load

Logits = npt.NDArray[np.float32]


class LogitErrors:
    """Sums of squares of the original's logits and of the errors in them."""

    def __init__(self) -> None:
        self.signal = self.error = 0.0

    def add(self, right: Logits, got: Logits) -> None:
        """Add the logits of a chunk."""
        self.signal += float(np.square(right, dtype=np.float64).sum())
        self.error += float(np.square(right.astype(np.float64) - got).sum())

    @property
    def words(self) -> str:
        """Return the ratio of signal to noise in dB."""
        return f"{10 * math.log10(self.signal / self.error):.1f} dB" if self.error else "no difference"


def chosen(short: int, long: int) -> Iterator[data.Recording]:
    """Yield the first short and the first long recordings of the test set.

    Args:
        short: number of short ones.
        long: number of long ones.
    """
    names = {Path(entry.file).stem for entry in data.read_manifest() if entry.seconds > data.LONG_S}
    for wanted, is_long in ((short, False), (long, True)):
        yield from itertools.islice((each for each in data.recordings() if (each.name in names) == is_long), wanted)


def main() -> None:
    """Print word error rates of both, and what lies between their logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--short", type=int, default=7, help="recordings of some seconds")
    parser.add_argument("--long", type=int, default=1, help="recordings longer than a minute, 100 chunks and more")
    arguments = parser.parse_args()
    recogniser, tokens = load(), text.read_tokens()
    recordings = list(chosen(arguments.short, arguments.long))
    references: list[str] = []
    texts: dict[str, list[str]] = {"original": [], "bundle": []}
    first, last, whole, same, rows, chunks = LogitErrors(), LogitErrors(), LogitErrors(), 0, 0, 0
    with runtime_lite.Runtime() as runtime:
        loaded = runtime.load(arguments.bundle)
        for recording in progress.track(recordings, description="recordings"):
            original, decoders = OriginalStream(recogniser), {name: decode.GreedyDecoder(tokens) for name in texts}
            with loaded.open_stream() as stream:
                for feed in recording.chunks:
                    right, got = original.push(feed), stream.push(feed)["logits"]
                    decoders["original"].push(right)
                    decoders["bundle"].push(got)
                    whole.add(right, got)
                    if feed is recording.chunks[0]:
                        first.add(right, got)
                    if feed is recording.chunks[-1]:
                        last.add(right, got)
                    same += int(np.count_nonzero(right.argmax(-1) == got.argmax(-1)))
                    rows, chunks = rows + right.shape[1], chunks + 1
            references.append(recording.reference)
            for name, decoder in decoders.items():
                texts[name].append(decoder.text)
            print(f"{recording.name}: {len(recording.chunks)} chunks, all logits so far {whole.words}", flush=True)
    alike = sum(one == other for one, other in zip(*texts.values(), strict=True))
    words = sum(len(reference.split()) for reference in references)
    print(f"{len(recordings)} recordings, {chunks} chunks, {words} words; {alike} of {len(recordings)} texts are equal")
    for name, found in texts.items():
        print(f"word error rate of the {name}: {metric.wer(references, found):.2%}")
    print(f"logits: first chunks {first.words}, last chunks {last.words}, all {whole.words}")
    print(f"largest entry at the same place in {same} of {rows} rows")


if __name__ == "__main__":
    command.run(main)
