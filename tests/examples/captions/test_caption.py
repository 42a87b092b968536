"""Utterances end at pauses, or where they would be too long, and have the features of their part of the recording."""

import numpy as np
import pytest

from examples.captions.caption import LONG_CHUNKS, MOST_CHUNKS, Caption
from examples.captions.data import ALGORITHMIC_DELAY_MS, CALL_FRAMES, HOP_FRAMES
from examples.streaming_asr import features
from tests.examples.captions.recogniser import TOKENS, WORD, logits_of, speech


def utterances(samples: features.Samples) -> tuple[list[features.Frames], list[int], list[str]]:
    """Return the utterances of a recording, the number of the chunk behind each, and the last text of each."""
    caption, found, ends, texts, transient = Caption(TOKENS), list[features.Frames](), list[int](), list[str](), ""
    chunks = [*caption.add(samples), *caption.finish()]
    for number, chunk in enumerate(chunks):
        heard = caption.hear(chunk, logits_of(chunk))
        transient = heard.transient
        if heard.utterance is not None:
            found.append(heard.utterance)
            ends.append(number + 1)
            texts.append(transient)
    if (last := caption.end()) is not None:
        found.append(last)
        ends.append(len(chunks))
        texts.append(transient)
    return found, ends, texts


def test_an_utterance_ends_behind_a_pause_and_has_the_features_of_its_place() -> None:
    samples = speech(4)
    found, ends, texts = utterances(samples)
    assert texts == [WORD] * 4
    missing = (ends[-1] - 1) * HOP_FRAMES + CALL_FRAMES
    whole = features.log_mel(np.pad(samples, (0, max(features.samples_of(missing) - len(samples), 0))))
    for utterance, end in zip(found, ends, strict=True):
        assert utterance.dtype == np.float32 and utterance.shape[0] == 1
        frames = utterance.shape[1]
        last = end * HOP_FRAMES + features.SHARED_FRAMES
        assert frames % HOP_FRAMES == features.SHARED_FRAMES
        np.testing.assert_array_equal(utterance[0], whole[last - frames : last])


@pytest.mark.parametrize(("pause_s", "chunks"), [(0.0, MOST_CHUNKS), (0.3, LONG_CHUNKS)])
def test_a_long_utterance_ends_at_a_short_pause_or_where_it_fits_no_more(pause_s: float, chunks: int) -> None:
    found, _, _ = utterances(speech(20, pause_s, 0.9))
    most = max(utterance.shape[1] for utterance in found)
    assert LONG_CHUNKS * HOP_FRAMES <= most <= MOST_CHUNKS * HOP_FRAMES + features.SHARED_FRAMES
    assert len(found) > 1
    if not pause_s:
        assert most == chunks * HOP_FRAMES + features.SHARED_FRAMES


def test_silence_has_no_utterances() -> None:
    assert utterances(np.zeros(20 * features.SAMPLE_RATE_HZ, np.float32)) == ([], [], [])


def test_a_chunk_spans_less_than_400_ms() -> None:
    assert ALGORITHMIC_DELAY_MS == 365.0
