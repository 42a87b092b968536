"""Features: a stream gives bit for bit what the whole recording gives."""

import numpy as np
import pytest

from examples.streaming_asr import features


def _recording(samples: int) -> features.Samples:
    generator = np.random.default_rng(samples)
    return (generator.standard_normal(samples) * 0.1).astype(np.float32)


@pytest.mark.parametrize("samples", [1, 399, 400, 10959, 10960, 10961, 21200, 21201, 48003])
@pytest.mark.parametrize("block", [1600, 377, 100000])
def test_online_features_equal_offline_features(samples: int, block: int) -> None:
    recording = _recording(samples)
    stream = features.FeatureStream()
    online = [chunk for start in range(0, samples, block) for chunk in stream.push(recording[start : start + block])]
    online += stream.finish()
    offline = features.feature_chunks(recording)
    assert len(online) == len(offline) == features.chunk_count(samples)
    np.testing.assert_array_equal(np.stack(online), np.stack(offline))
    assert online[0].shape == (features.CALL_FRAMES, features.BINS)
    assert online[0].dtype == np.float32


def test_neighbouring_chunks_share_three_frames() -> None:
    first, second, *_ = features.feature_chunks(_recording(32000))
    np.testing.assert_array_equal(first[features.HOP_FRAMES :], second[: features.CALL_FRAMES - features.HOP_FRAMES])


def test_zero_samples_give_the_silent_frame() -> None:
    frames = features.log_mel(np.zeros(4000, np.float32))
    np.testing.assert_allclose(frames, features.SILENT_FRAME_VALUE, atol=1e-5)


def test_frame_depends_on_its_own_samples_only() -> None:
    recording = _recording(4000)
    changed = recording.copy()
    changed[features.SHIFT_SAMPLES * 5 + features.FRAME_SAMPLES :] = 0.9
    np.testing.assert_array_equal(features.log_mel(recording)[:6], features.log_mel(changed)[:6])


def test_empty_recording_gives_no_chunk() -> None:
    stream = features.FeatureStream()
    assert list(stream.push(np.zeros(0, np.float32))) == []
    assert list(stream.finish()) == []
    assert features.feature_chunks(np.zeros(0, np.float32)) == []


def test_stereo_samples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected float32 \[samples\], got float32 \[10, 2\]; mix down"):
        features.FeatureStream().push(np.zeros((10, 2), np.float32))


def test_finished_stream_is_refused() -> None:
    stream = features.FeatureStream()
    list(stream.finish())
    with pytest.raises(ValueError, match="expected an open stream, got one that is finished"):
        stream.push(np.zeros(10, np.float32))
