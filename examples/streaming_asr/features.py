"""Converts 16 kHz samples to feature chunks as they arrive, with the same code in training and at run time.

Frame t depends on the samples [160 t, 160 t + 400) and on nothing else, so a stream that gets its samples in pieces of
any length gives bit for bit the features of the whole recording.
"""

from collections.abc import Iterator
from typing import Any

import kaldi_native_fbank
import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16000
FRAME_SAMPLES = 400
"""Samples per feature frame: 25 ms."""

SHIFT_SAMPLES = 160
"""Samples between the starts of two frames: 10 ms."""

BINS = 80
CALL_FRAMES = 67
"""Feature frames per chunk."""

SHARED_FRAMES = 3
"""The last feature frames of a chunk, which are the first of the next one."""

HOP_FRAMES = CALL_FRAMES - SHARED_FRAMES
"""Feature frames between the starts of two chunks."""

HOP_SAMPLES = HOP_FRAMES * SHIFT_SAMPLES
"""Samples between the starts of two chunks."""

SILENT_FRAME_VALUE = float(np.log(np.finfo(np.float32).eps))
"""Every bin of a frame of zero samples: the floor under the logarithm."""

Samples = npt.NDArray[np.float32]
Frames = npt.NDArray[np.float32]


def _filterbank() -> Any:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE_HZ
    options.frame_opts.dither = 0.0
    options.frame_opts.frame_length_ms = 25.0
    options.frame_opts.frame_shift_ms = 10.0
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = BINS
    return kaldi_native_fbank.OnlineFbank(options)


def samples_of(frames: int) -> int:
    """Return the number of samples that consecutive feature frames, at least 1, depend on."""
    return (frames - 1) * SHIFT_SAMPLES + FRAME_SAMPLES


def chunk_count(samples: int, frames: int = CALL_FRAMES) -> int:
    """Return the number of chunks that a recording fills after padding.

    Args:
        samples: length of the recording, in samples.
        frames: feature frames per chunk, of which the next one repeats 3.

    Returns:
        The smallest number of chunks that covers every sample; 0 for an empty recording.
    """
    if samples <= 0:
        return 0
    return 1 + max(0, -(-(samples - samples_of(frames)) // ((frames - SHARED_FRAMES) * SHIFT_SAMPLES)))


def pad_to_chunks(samples: Samples) -> Samples:
    """Append zero samples until the last chunk is full.

    Args:
        samples: float32 [samples], amplitudes in [-1, 1].

    Returns:
        float32 [(chunks - 1) * 10240 + 10960], or an empty array for an empty recording.
    """
    chunks = chunk_count(len(samples))
    full = samples_of((chunks - 1) * HOP_FRAMES + CALL_FRAMES) if chunks else 0
    return np.pad(samples, (0, full - len(samples)))


def log_mel(samples: Samples) -> Frames:
    """Return log-mel features of a whole recording, without padding.

    Args:
        samples: float32 [samples], 16 kHz, amplitudes in [-1, 1].

    Returns:
        float32 [frames, 80], natural logarithm of mel energies, with frames = 1 + (samples - 400) // 160.
    """
    filterbank = _filterbank()
    filterbank.accept_waveform(SAMPLE_RATE_HZ, samples)
    frames = np.empty((filterbank.num_frames_ready, BINS), np.float32)
    for index in range(len(frames)):
        frames[index] = filterbank.get_frame(index)
    return frames


class FeatureStream:
    """Converts samples, as they arrive, to full feature chunks.

    A chunk is float32 [frames, 80]; its first 3 frames repeat the last 3 of the chunk before. `push` returns the
    complete chunks, `finish` pads with zero samples and returns the last one. Between calls the stream keeps less than
    one chunk of frames.

    Args:
        frames: feature frames per chunk, at least 4.
    """

    def __init__(self, frames: int = CALL_FRAMES) -> None:
        self._filterbank = _filterbank()
        self._call_frames = frames
        self._taken_frames = 0
        self._samples = 0
        self._chunks = 0
        self._frames: list[Frames] = []
        self._finished = False

    def push(self, samples: Samples) -> Iterator[Frames]:
        """Add samples and return the chunks that they complete.

        Args:
            samples: float32 [samples], any length, 16 kHz, amplitudes in [-1, 1].

        Returns:
            The completed chunks, each float32 [frames, 80], in order; often none.

        Raises:
            ValueError: if `samples` is not a vector of float32, or the stream is finished.
        """
        if self._finished:
            raise ValueError("FeatureStream.push: expected an open stream, got one that is finished; open a new one")
        if samples.ndim != 1 or samples.dtype != np.float32:
            raise ValueError(
                f"FeatureStream.push: expected float32 [samples], got {samples.dtype} {list(samples.shape)}; "
                "mix down to one channel and convert with astype(numpy.float32)"
            )
        self._samples += len(samples)
        if len(samples):
            self._filterbank.accept_waveform(SAMPLE_RATE_HZ, samples)
        ready = self._filterbank.num_frames_ready
        self._frames += [np.array(self._filterbank.get_frame(index)) for index in range(self._taken_frames, ready)]
        self._filterbank.pop(ready - self._taken_frames)
        self._taken_frames = ready
        return iter(self._full_chunks())

    def finish(self) -> Iterator[Frames]:
        """End the recording: pad with zero samples and return the last chunk.

        Returns:
            The last chunk, or nothing when every sample is already in a chunk.
        """
        missing = 0
        count = chunk_count(self._samples, self._call_frames)
        if count > self._chunks:
            hop = self._call_frames - SHARED_FRAMES
            missing = samples_of((count - 1) * hop + self._call_frames) - self._samples
        chunks = self.push(np.zeros(missing, np.float32))
        self._finished = True
        return chunks

    def _full_chunks(self) -> list[Frames]:
        chunks = []
        while len(self._frames) >= self._call_frames:
            chunks.append(np.stack(self._frames[: self._call_frames]))
            del self._frames[: self._call_frames - SHARED_FRAMES]
        self._chunks += len(chunks)
        return chunks


def feature_chunks(samples: Samples) -> list[Frames]:
    """Return all chunks of a whole recording.

    Args:
        samples: float32 [samples], 16 kHz, amplitudes in [-1, 1].

    Returns:
        The chunks, each float32 [67, 80], equal to those of a `FeatureStream`.
    """
    frames = log_mel(pad_to_chunks(samples)) if len(samples) else np.empty((0, BINS), np.float32)
    return [
        frames[start : start + CALL_FRAMES].copy()
        for start in range(0, max(0, len(frames) - CALL_FRAMES + 1), HOP_FRAMES)
    ]
