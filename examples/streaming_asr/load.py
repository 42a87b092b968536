"""Load test of a bundle of the recogniser: recordings as live streams, and as whole utterances.

    python -m examples.streaming_asr.load BUNDLE --streams 20 --seconds 30 --svg load.svg
    python -m examples.streaming_asr.load BUNDLE --streams 20 --offline WHOLE --utterances 2 --burst 8

Every option of `python -m runtime_lite load` may follow the bundle.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.streaming_asr.data import whole_recordings
from examples.streaming_asr.features import HOP_SAMPLES, SAMPLE_RATE_HZ, SHIFT_SAMPLES
from examples.streaming_asr.transcribe import RecordingError, chunks_of, read_recording
from runtime_lite import BadInput, BundleRefused, read_bundle
from runtime_lite import __main__ as runtime_lite_commands
from runtime_lite.format.arrays import npz_from_arrays

DEMO = Path(__file__).with_name("demo")
UTTERANCES = 40
"""Recordings of the test set that are sent in turn."""

PERIOD_MS = 1000.0 * HOP_SAMPLES / SAMPLE_RATE_HZ


def main() -> int:
    """Compute the features of the recordings and run the load test; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", metavar="BUNDLE", help="folder of the built recogniser")
    parser.add_argument(
        "--recordings", type=Path, default=DEMO, help="folder of WAV or FLAC files (default: the demo's)"
    )
    parser.add_argument("--offline", metavar="WHOLE", help="folder of the recogniser built for whole utterances")
    arguments, further = parser.parse_known_args()
    try:
        return _load(arguments, further)
    except (RecordingError, BadInput, BundleRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _load(arguments: argparse.Namespace, further: Sequence[str]) -> int:
    folder = arguments.recordings
    files = sorted(file for file in folder.glob("*") if file.suffix in (".wav", ".flac"))
    if not files:
        raise RecordingError(f"{folder}: expected a folder of WAV or FLAC files, got none in it; correct --recordings")
    chunks = [chunk[np.newaxis] for file in files for chunk in chunks_of(read_recording(file))]
    with tempfile.TemporaryDirectory() as scratch:
        feeds = Path(scratch, "features.npz")
        feeds.write_bytes(npz_from_arrays({"features": np.stack(chunks)}))
        given = [arguments.bundle, "--stream-feeds", str(feeds), "--period-ms", str(PERIOD_MS)]
        if arguments.offline is not None:
            given[1:1] = [arguments.offline, *_utterances(Path(arguments.offline), Path(scratch))]
        return runtime_lite_commands.main(["load", *given, *further])


def _utterances(bundle: Path, folder: Path) -> Iterator[str]:
    """Yield files of features of short test recordings that fit the bundle, and their mean length."""
    longest = _longest(bundle)
    feeds = (recording.chunks[0]["features"] for recording in whole_recordings())
    fitting = list(itertools.islice((features for features in feeds if features.shape[1] <= longest), UTTERANCES))
    for number, features in enumerate(fitting):
        file = folder / f"{number}.npz"
        file.write_bytes(npz_from_arrays({"features": features[np.newaxis]}))
        yield from ("--utterance-feeds", str(file))
    frames = np.mean([features.shape[1] for features in fitting])
    yield from ("--utterance-s", str(frames * SHIFT_SAMPLES / SAMPLE_RATE_HZ))


def _longest(bundle: Path) -> int:
    """Return the number of frames of the largest bucket."""
    with read_bundle(bundle) as opened:
        (graph,) = opened.manifest.graphs.values()
    return max(artifact.sizes["time"] for artifact in graph.artifacts)


if __name__ == "__main__":
    sys.exit(main())
