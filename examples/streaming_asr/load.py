"""A bundle of the recogniser under the load of many speakers: recordings as live streams.

    python -m examples.streaming_asr.load BUNDLE --streams 20 --seconds 30 --svg load.svg

Every option of `python -m runtime_lite load` may follow the bundle.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from examples.streaming_asr.features import HOP_SAMPLES, SAMPLE_RATE_HZ
from examples.streaming_asr.transcribe import chunks_of, read_recording
from runtime_lite import __main__ as runtime_lite_commands
from runtime_lite.format.arrays import npz_from_arrays

DEMO = Path(__file__).with_name("demo")
PERIOD_MS = 1000.0 * HOP_SAMPLES / SAMPLE_RATE_HZ


def main() -> int:
    """Make the features of the recordings and run the load; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", metavar="BUNDLE", help="folder of the built recogniser")
    parser.add_argument(
        "--recordings", type=Path, default=DEMO, help="folder of WAV or FLAC files (default: the demo's)"
    )
    arguments, further = parser.parse_known_args()
    files = sorted(file for file in arguments.recordings.glob("*") if file.suffix in (".wav", ".flac"))
    chunks = [chunk[np.newaxis] for file in files for chunk in chunks_of(read_recording(file))]
    with tempfile.TemporaryDirectory() as scratch:
        feeds = Path(scratch, "features.npz")
        feeds.write_bytes(npz_from_arrays({"features": np.stack(chunks)}))
        given = [arguments.bundle, "--stream-feeds", str(feeds), "--period-ms", str(PERIOD_MS), *further]
        return runtime_lite_commands.main(["load", *given])


if __name__ == "__main__":
    sys.exit(main())
