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

HOP_FRAMES = 64
"""Feature frames between the starts of two chunks; the last 3 frames of a chunk are the first 3 of the next."""

HOP_SAMPLES = HOP_FRAMES * SHIFT_SAMPLES
CHUNK_SAMPLES = (CALL_FRAMES - 1) * SHIFT_SAMPLES + FRAME_SAMPLES
"""Samples that one chunk depends on."""

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


def chunk_count(samples: int) -> int:
    """Return the number of chunks that a recording fills after padding.

    Args:
        samples: length of the recording, in samples.

    Returns:
        The smallest number of chunks that covers every sample; 0 for an empty recording.
    """
    if samples <= 0:
        return 0
    return 1 + max(0, -(-(samples - CHUNK_SAMPLES) // HOP_SAMPLES))


def pad_to_chunks(samples: Samples) -> Samples:
    """Append zero samples until the last chunk is full.

    Args:
        samples: float32 [samples], amplitudes in [-1, 1].

    Returns:
        float32 [(chunks - 1) * 10240 + 10960], or an empty array for an empty recording.
    """
    chunks = chunk_count(len(samples))
    full = (chunks - 1) * HOP_SAMPLES + CHUNK_SAMPLES if chunks else 0
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

    A chunk is float32 [67, 80]; its first 3 frames repeat the last 3 of the chunk before. `push` returns the complete
    chunks, `finish` pads with zero samples and returns the last one. Between calls the stream keeps less than one chunk
    of frames.
    """

    def __init__(self) -> None:
        self._filterbank = _filterbank()
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
            The completed chunks, each float32 [67, 80], in order; often none.

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
        if chunk_count(self._samples) > self._chunks:
            missing = chunk_count(self._samples) * HOP_SAMPLES - HOP_SAMPLES + CHUNK_SAMPLES - self._samples
        chunks = self.push(np.zeros(missing, np.float32))
        self._finished = True
        return chunks

    def _full_chunks(self) -> list[Frames]:
        chunks = []
        while len(self._frames) >= CALL_FRAMES:
            chunks.append(np.stack(self._frames[:CALL_FRAMES]))
            del self._frames[:HOP_FRAMES]
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
