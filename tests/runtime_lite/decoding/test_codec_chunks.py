"""codec_chunks: frames become chunks and chunks samples, the same for every cut; what lags is cut off and flushed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Model, Runtime
from runtime_lite.decoding.codec_chunks import CodecChunks
from runtime_lite.format.arrays import Array
from runtime_lite.serving.request import LiveRequest
from tests.runtime_lite.voice_bundle import HOP, VOICE, sound_of, write_voice_bundle

TOKENS = [3, 1, 7, 0, 5, 5, 2]


@pytest.fixture(params=[False, True], ids=["at once", "lagging"])
def lags(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def model(tmp_path: Path, lags: bool) -> Iterator[Model]:
    with Runtime() as runtime:
        yield runtime.load(write_voice_bundle(tmp_path / "b", lags))


@pytest.mark.parametrize("cuts", [[1] * 7, [2, 2, 3], [3, 4], [5, 2], [1, 5, 1]])
def test_sound_does_not_depend_on_the_cuts(model: Model, lags: bool, cuts: list[int]) -> None:
    with model.open_stream("codec") as stream, model.open_stream("codec") as other:
        codec, request = CodecChunks(VOICE, stream._live, {}, 4, lambda: 0), LiveRequest[Any](None, "", "", list)  # type: ignore[arg-type]
        for token in TOKENS:
            codec.add(token, codec.noise())
        assert (codec.waiting, codec.owes) == (7, False)
        sound, parts = list[Array](), [*cuts, 0] if lags else cuts
        for count in parts:
            part = codec.chunk(request, count, 9) if count else codec.flush(request, 9)
            assert (part.soft, part.index) == (9, 1)
            sound.append(codec.samples(other.push(dict(part.feeds[0].arrays))))
            assert codec.owes == (lags and count > 0)
        assert sum(map(len, sound[: len(cuts)])) == HOP * (len(TOKENS) - lags)
        np.testing.assert_allclose(np.concatenate(sound), sound_of(TOKENS, 4, lags), atol=1e-5)


def test_a_token_that_the_codec_does_not_take_is_refused(model: Model) -> None:
    with model.open_stream("codec") as stream:
        codec = CodecChunks(VOICE, stream._live, {}, 4, lambda: 0)
        codec.add(8, codec.noise())
        with pytest.raises(BadInput, match=r"codec\.say: 'codes': expected numbers from 0 to 7"):
            codec.chunk(LiveRequest[Any](None, "", "", list), 1, 0)  # type: ignore[arg-type]


def test_feeds_that_are_not_those_of_the_codec_are_refused_at_once(model: Model) -> None:
    with model.open_stream("codec") as stream, pytest.raises(BadInput, match="unknown input 'speaker'"):
        CodecChunks(VOICE, stream._live, {"speaker": np.zeros((1, 4), np.float32)}, 0, lambda: 0)
