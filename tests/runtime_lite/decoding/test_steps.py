"""steps: tokens are fed back until something ends the sequence, and what is none is refused by name."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import STEP, BadInput, ExecutorFailed, Runtime, Sampling
from runtime_lite.decoding.steps import Steps
from runtime_lite.serving.request import LiveRequest, LiveStream
from tests.runtime_lite.token_bundle import TOKENS, scores_after, write_token_bundle


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveStream]:
    with Runtime() as runtime, runtime.load(write_token_bundle(tmp_path / "b")).open_stream() as stream:
        yield stream._live


def steps(live: LiveStream, sampling: Sampling, limit: int | None = None, **names: Any) -> Steps:
    feeds = {"tokens": np.array([[3]])}
    named = {"tokens": "tokens", "scores": "scores", **names}
    return Steps("here", live, feeds, named["tokens"], named["scores"], sampling, lambda: 0, limit)


def request_of(live: LiveStream) -> LiveRequest[Any]:
    return LiveRequest(live.version, "here", "chunk", list)  # type: ignore[arg-type]


def answer(*tokens: int) -> dict[str, np.ndarray]:
    return {"scores": scores_after(tokens)[None, None]}


@pytest.mark.parametrize(
    ("sampling", "limit", "ended"),
    [
        (Sampling(3), None, ["", "", "max_tokens"]),
        (Sampling(9), 2, ["", "too_long"]),
        (Sampling(3), 3, ["", "", "max_tokens"]),
        (Sampling(9, stop=frozenset(range(TOKENS))), None, ["stop"]),
    ],
)
def test_a_sequence_ends_by_what_comes_first(
    live: LiveStream, sampling: Sampling, limit: int | None, ended: list[str]
) -> None:
    sequence, request, found = steps(live, sampling, limit), request_of(live), []
    part = sequence.first(request, None)
    while not sequence.ended_by:
        token = sequence.take(answer(*part.feeds[0].arrays["tokens"].reshape(-1).tolist()))
        found.append(sequence.ended_by)
        if not sequence.ended_by:
            assert token is not None
            part = sequence.following(request, token)
            assert part.feeds[0].arrays["tokens"].tolist() == [[token]]
    assert found == ended
    assert sequence.count == len(ended) - (ended == ["stop"])


def test_the_first_call_is_waited_for_and_steps_are_as_patient_as_their_class(live: LiveStream) -> None:
    live.options = dataclasses.replace(live.options, service=STEP)
    sequence, request = steps(live, Sampling(3)), request_of(live)
    first, following = sequence.first(request, None), sequence.following(request, 1)
    assert (first.service.name, first.service.patient, following.service) == ("step", False, STEP)


def test_a_stop_token_without_a_score_is_refused(live: LiveStream) -> None:
    with pytest.raises(BadInput, match=r"here: sampling\.stop: expected tokens below 9, the number of scores, got 12"):
        steps(live, Sampling(3, stop=frozenset({1, 12})))


def test_names_that_are_none_are_refused(live: LiveStream) -> None:
    with pytest.raises(BadInput, match="tokens: expected an integer input"):
        steps(live, Sampling(3), tokens="scores")
    with pytest.raises(BadInput, match="scores: expected an output of floats"):
        steps(live, Sampling(3), scores="tokens")


def test_scores_of_which_nothing_can_be_drawn_are_an_error_of_the_token(live: LiveStream) -> None:
    sequence = steps(live, Sampling(3))
    sequence.take(answer(1))
    with pytest.raises(ExecutorFailed, match="here: token 1: output 'scores': expected scores that are numbers"):
        sequence.take({"scores": np.full((1, 1, TOKENS), np.nan, np.float32)})
