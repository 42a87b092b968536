"""Measures the streaming word error rate of the original model on the test set, or on the development set.

    python -m examples.streaming_asr.evaluate
    python -m examples.streaming_asr.evaluate --set devset --json hypotheses.json

Make choices on the development set; the test set is only for the reported figure.

Needs `torch` and `safetensors`. Every recording is one stream of single calls, as the model was handed over: the first
call without caches, then calls with the newest 128 hidden frames of every growing cache. Prints one line per set.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from rich import progress

from examples import command
from examples.streaming_asr import data, decode, metric, model, text

SETS = {
    "testset": (data.TESTSET_FOLDER, data.recordings),
    "devset": (data.DEVSET_FOLDER, data.development_recordings),
}
CHECKPOINT_PATH = Path(__file__).with_name("checkpoint.safetensors")


class OriginalStream:
    """One stream of the original PyTorch model.

    Args:
        recogniser: the trained model in evaluation mode; its weights serve the first call too.
    """

    def __init__(self, recogniser: model.StreamingConformer) -> None:
        self._later = recogniser
        self._first = model.FirstCall(recogniser)
        self._growing = recogniser.config.layers + 1  # the subsampling cache and one cache per layer
        self._caches: list[torch.Tensor] = []

    def push(self, feed: data.Feed) -> npt.NDArray[np.float32]:
        """Run one chunk.

        Args:
            feed: {"features": float32 [1, 67, 80]}.

        Returns:
            Logits float32 [1, 16, labels].
        """
        chunk = torch.from_numpy(feed["features"])
        with torch.inference_mode():
            logits, *caches = self._later(chunk, *self._caches) if self._caches else self._first(chunk)
        newest = [cache[:, -model.WINDOW_FRAMES :] for cache in caches[: self._growing]]
        self._caches = [*newest, *caches[self._growing :]]
        scores: npt.NDArray[np.float32] = logits.numpy()
        return scores


def load(path: Path = CHECKPOINT_PATH) -> model.StreamingConformer:
    """Return the trained recogniser in evaluation mode.

    Args:
        path: checkpoint.

    Returns:
        The model.
    """
    recogniser = model.build()
    recogniser.load_state_dict(safetensors.torch.load_file(path))
    return recogniser.eval()


def transcribe_streams(
    recogniser: model.StreamingConformer, recordings: Iterable[data.Recording], total: int
) -> list[tuple[data.Recording, str]]:
    """Recognise recordings chunk by chunk.

    Args:
        recogniser: from `load`.
        recordings: the recordings to recognise.
        total: number of the recordings.

    Returns:
        Each recording with its hypothesis, in the order given.
    """
    tokens = text.read_tokens()
    results = []
    for recording in progress.track(recordings, total=total, description="recordings"):
        stream, decoder = OriginalStream(recogniser), decode.GreedyDecoder(tokens)
        for feed in recording.chunks:
            decoder.push(stream.push(feed))
        results.append((recording, decoder.text))
    return results


def main() -> None:
    """Print the word error rate of the short, the long and all recordings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="testset", help="recordings to measure on")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT_PATH)
    parser.add_argument("--json", type=Path, help="also write every hypothesis to this file")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder, recordings = SETS[arguments.set]
    entries = data.read_manifest(folder)
    results = transcribe_streams(load(arguments.checkpoint), recordings(), len(entries))
    long_names = {Path(entry.file).stem for entry in entries if entry.seconds > data.LONG_S}
    sets = {
        "short": [pair for pair in results if pair[0].name not in long_names],
        "long": [pair for pair in results if pair[0].name in long_names],
        "all": results,
    }
    for name, pairs in sets.items():
        references = [recording.reference for recording, _ in pairs]
        rate = metric.wer(references, [hypothesis for _, hypothesis in pairs])
        words = sum(len(reference.split()) for reference in references)
        print(f"{name}: WER {rate:.2%} of {words} words in {len(pairs)} recordings")
    if arguments.json:
        rows = [
            {"name": recording.name, "reference": recording.reference, "hypothesis": hypothesis}
            for recording, hypothesis in results
        ]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
