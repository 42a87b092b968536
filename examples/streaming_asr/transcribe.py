"""Transcribes a recording with a bundle, chunk by chunk, and shows the text as it grows.

    python -m examples.streaming_asr.transcribe BUNDLE FILE.flac

It takes WAV and FLAC of any rate and any number of channels: channels are mixed down, other rates are resampled with
`soxr`. At the end it prints the real-time factor. A mistake of the caller ends in one sentence with its cure and exit
code 2.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import rich.console
import rich.live
import rich.text
import soundfile
import soxr

import runtime_lite
from examples.streaming_asr import decode, features, text

BLOCK_SAMPLES = 1600
"""Samples handed to the feature stream at a time: 0.1 s, as a sound card would."""


class RecordingError(ValueError):
    """The recording cannot be transcribed; the message says why and what to do."""


def read_recording(path: Path) -> features.Samples:
    """Read a recording in the form that the recogniser takes.

    Args:
        path: WAV or FLAC file, any rate, any number of channels.

    Returns:
        float32 [samples], 16 kHz, channels mixed down.

    Raises:
        RecordingError: if the file is missing, is not audio, or has no samples.
    """
    if not path.is_file():
        raise RecordingError(f"{path.name}: expected a WAV or FLAC file, got no file; check the path {str(path)!r}")
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise RecordingError(
            f"{path.name}: expected WAV or FLAC audio, got a file that is not readable as audio; "
            "convert the recording to WAV or FLAC"
        ) from error
    if not len(samples):
        raise RecordingError(f"{path.name}: expected samples, got an empty recording; record again")
    if not np.isfinite(samples).all():
        raise RecordingError(
            f"{path.name}: expected finite samples, got NaN or infinity; export the recording again as 16-bit WAV"
        )
    mono = samples.mean(axis=1, dtype=np.float32)
    if rate == features.SAMPLE_RATE_HZ:
        return np.asarray(mono, np.float32)
    resampled = np.asarray(soxr.resample(mono, rate, features.SAMPLE_RATE_HZ), np.float32)
    if not len(resampled):
        raise RecordingError(f"{path.name}: expected at least 1 ms of audio, got {len(samples)} samples; record again")
    return resampled


def chunks_of(samples: features.Samples) -> Iterator[features.Frames]:
    """Yield feature chunks of a recording, computed as if the samples arrived 0.1 s at a time.

    Args:
        samples: float32 [samples], 16 kHz.

    Yields:
        float32 [67, 80] per chunk.
    """
    stream = features.FeatureStream()
    for start in range(0, len(samples), BLOCK_SAMPLES):
        yield from stream.push(samples[start : start + BLOCK_SAMPLES])
    yield from stream.finish()


def transcribe(bundle: Path, samples: features.Samples) -> Iterator[str]:
    """Recognise a recording with a bundle.

    Args:
        bundle: folder of the built recogniser.
        samples: float32 [samples], 16 kHz.

    Yields:
        All text so far, once per chunk.
    """
    decoder = decode.GreedyDecoder(text.read_tokens())
    with runtime_lite.Runtime() as runtime:
        recogniser = runtime.load(bundle)
        with recogniser.open_stream() as stream:
            for chunk in chunks_of(samples):
                outputs = stream.push({"features": chunk[np.newaxis]})
                yield decoder.push(outputs["logits"])


def _show(bundle: Path, samples: features.Samples) -> None:
    """Show the growing text on a terminal; elsewhere only print all of it at the end."""
    console = rich.console.Console()
    if not console.is_terminal:
        print([*transcribe(bundle, samples)][-1])
        return
    with rich.live.Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for grown in transcribe(bundle, samples):
            live.update(rich.text.Text(grown), refresh=True)


def main() -> int:
    """Transcribe the recording named on the command line.

    Returns:
        0, or 2 if the recording or the bundle was refused.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of the built recogniser")
    parser.add_argument("recording", type=Path, metavar="FILE", help="WAV or FLAC recording")
    arguments = parser.parse_args()
    try:
        samples = read_recording(arguments.recording)
        started_s = time.perf_counter()
        _show(arguments.bundle, samples)
    except (RecordingError, runtime_lite.BadInput, runtime_lite.BundleRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    elapsed_s, seconds = time.perf_counter() - started_s, len(samples) / features.SAMPLE_RATE_HZ
    factor = elapsed_s / seconds
    print(f"{seconds:.1f} s of audio in {elapsed_s:.2f} s, loading included: real-time factor {factor:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
