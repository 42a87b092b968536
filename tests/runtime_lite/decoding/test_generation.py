"""generation: tokens are those of a loop by hand, alone and in company; every end frees the stream."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Cancelled, Dropped, ExecutorFailed, Model, Runtime, Sampling
from runtime_lite.decoding.sampling import Sampler
from tests.runtime_lite.token_bundle import SLOTS, TOKENS, scores_after, write_token_bundle

PROMPT = [3, 1, 4]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_token_bundle(tmp_path_factory.mktemp("tokens") / "bundle")


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


@pytest.fixture
def model(runtime: Runtime, bundle: Path) -> Model:
    return runtime.load(bundle)


def prompt(tokens: list[int] = PROMPT) -> dict[str, np.ndarray]:
    return {"tokens": np.array([tokens], np.int64)}


def generate(model: Model, sampling: Sampling, tokens: list[int] = PROMPT, **options: Any) -> Any:
    return model.generate(prompt(tokens), sampling, **{"tokens": "tokens", "scores": "scores", **options})


def by_hand(sampling: Sampling, tokens: list[int] = PROMPT) -> list[int]:
    """A bare loop over the same sampler, which computes the scores of all tokens anew at every step."""
    sampler, heard, found = Sampler(sampling), list(tokens), list[int]()
    while len(found) < sampling.max_tokens and len(heard) <= SLOTS:
        token = sampler.take(scores_after(heard)).token
        if token in sampling.stop:
            break
        heard.append(token)
        found.append(token)
    return found


SETTINGS = [
    Sampling(max_tokens=20),
    Sampling(max_tokens=20, temperature=1.0, seed=7),
    Sampling(max_tokens=20, temperature=2.0, top_k=4, top_p=0.9, repetition_penalty=1.3, penalty_window=5, seed=1),
    Sampling(max_tokens=30, temperature=1.5, stop=frozenset({2}), min_tokens=4, seed=11),
]


@pytest.mark.parametrize("sampling", SETTINGS)
def test_tokens_are_those_of_a_loop_by_hand(model: Model, sampling: Sampling) -> None:
    generation = generate(model, sampling)
    found = list(generation)
    assert found == by_hand(sampling)
    assert generation.ended_by == ("max_tokens" if len(found) == sampling.max_tokens else "stop")
    assert 0 < generation.least_margin < float("inf")


def test_a_stop_token_ends_it_and_is_not_delivered(model: Model) -> None:
    everything = by_hand(Sampling(max_tokens=12))
    stop = next(token for token in everything if token != everything[0])
    generation = generate(model, Sampling(max_tokens=12, stop=frozenset({stop})))
    assert generation.result() == everything[: everything.index(stop)]
    assert generation.ended_by == "stop"


def test_it_ends_where_the_window_is_full(model: Model) -> None:
    generation = generate(model, Sampling(max_tokens=100))
    found = generation.result()
    assert (len(found), generation.ended_by) == (SLOTS - len(PROMPT) + 1, "window")
    assert found == by_hand(Sampling(max_tokens=100))


def test_many_at_once_draw_what_each_draws_alone(runtime: Runtime, model: Model) -> None:
    rng = random.Random(5)
    wanted = [
        (
            Sampling(max_tokens=rng.randint(1, 25), temperature=rng.choice([None, 1.0, 2.0]), seed=number),
            [rng.randrange(TOKENS) for _ in range(rng.randint(1, 4))],
        )
        for number in range(40)
    ]
    running = [generate(model, *each) for each in wanted]
    assert [generation.result() for generation in running] == [by_hand(*each) for each in wanted]
    assert runtime.health().streams == 0
    assert model.open_stream().push(prompt([1]))["scores"].shape == (1, 1, TOKENS)


def test_tokens_come_one_by_one_and_a_slow_reader_pauses_its_own_generation(model: Model) -> None:
    slow = generate(model, Sampling(max_tokens=30), room=2)
    assert next(iter(slow)) == by_hand(Sampling(max_tokens=30))[0]
    assert generate(model, Sampling(max_tokens=30)).result() == by_hand(Sampling(max_tokens=30))
    assert not slow.done()
    assert list(slow) == by_hand(Sampling(max_tokens=30))[1:]


def test_it_is_read_in_a_coroutine(model: Model) -> None:
    async def read() -> tuple[list[int], list[int]]:
        first, second = (generate(model, Sampling(max_tokens=9)) for _ in range(2))
        return [token async for token in first], await second

    expected = by_hand(Sampling(max_tokens=9))
    assert asyncio.run(read()) == (expected, expected)


def test_cancelling_frees_the_stream_and_leaves_others_alone(runtime: Runtime, model: Model) -> None:
    other = generate(model, Sampling(max_tokens=30, temperature=1.0, seed=3), room=1)
    cancelled = generate(model, Sampling(max_tokens=30), room=1)
    next(iter(cancelled))
    assert cancelled.cancel()
    assert runtime.health().streams == 1
    with pytest.raises(Cancelled):
        cancelled.result()
    assert list(other) == by_hand(Sampling(max_tokens=30, temperature=1.0, seed=3))
    assert runtime.health().streams == 0


def test_a_third_is_cancelled_at_random_and_the_rest_is_as_alone(runtime: Runtime, model: Model) -> None:
    rng = random.Random(6)
    wanted = [Sampling(max_tokens=25, temperature=1.0, seed=number) for number in range(60)]
    running = [generate(model, sampling) for sampling in wanted]
    doomed = set(rng.sample(range(60), 20))
    threads = [threading.Timer(rng.uniform(0, 0.05), running[number].cancel) for number in doomed]
    for thread in threads:
        thread.start()
    for number, (generation, sampling) in enumerate(zip(running, wanted, strict=True)):
        if number not in doomed:
            assert generation.result() == by_hand(sampling)
    for thread in threads:
        thread.join()
    assert runtime.health().streams == 0


def test_scores_of_which_nothing_can_be_drawn_end_one_generation(
    runtime: Runtime, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, count = Sampler.take, 0

    def take_or_not(self: Sampler, scores: np.ndarray) -> Any:
        nonlocal count
        count += 1
        return take(self, scores * np.float32("nan") if count == 5 else scores)

    monkeypatch.setattr(Sampler, "take", take_or_not)
    failing = generate(model, Sampling(max_tokens=20))
    with pytest.raises(ExecutorFailed, match=r"token 4: output 'scores': expected scores that are numbers, got NaN"):
        failing.result()
    assert runtime.health().streams == 0
    assert generate(model, Sampling(max_tokens=5)).result() == by_hand(Sampling(max_tokens=5))


def test_a_deadline_is_that_of_the_whole(runtime: Runtime, model: Model) -> None:
    late = generate(model, Sampling(max_tokens=30), room=1, deadline_ms=400)
    ended = threading.Event()
    late.when_done(ended.set)
    assert ended.wait(30)
    with pytest.raises(Dropped):
        list(late)
    assert runtime.health().streams == 0


WRONG: dict[str, dict[str, Any]] = {
    "tokens: expected an integer input": {"tokens": "scores"},
    "scores: expected an output of floats": {"scores": "tokens"},
    "sampling as a Sampling": {"sampling": {"max_tokens": 3}},
    "expected 1 row": {"feeds": {"tokens": np.zeros((2, 1), np.int64)}},
    "'tokens'": {"feeds": {}},
    "from 0 to 8": {"feeds": {"tokens": np.array([[99]])}},
    "room for at least 1": {"room": 0},
    "deadline_ms": {"deadline_ms": -1},
    "one of its graphs": {"graph": "other"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_refused_by_name_and_leaves_no_stream(runtime: Runtime, model: Model, message: str) -> None:
    given = {
        "feeds": prompt(), "sampling": Sampling(max_tokens=3), "tokens": "tokens", "scores": "scores", **WRONG[message]
    }  # fmt: skip
    with pytest.raises(BadInput, match=message):
        model.generate(given.pop("feeds"), given.pop("sampling"), **given)
    assert runtime.health().streams == 0


def test_the_arrays_are_the_callers_again(model: Model) -> None:
    feeds = prompt()
    generation = model.generate(feeds, Sampling(max_tokens=9), tokens="tokens", scores="scores")
    feeds["tokens"][:] = 0
    assert generation.result() == by_hand(Sampling(max_tokens=9))


def test_a_closed_runtime_ends_it(bundle: Path) -> None:
    with Runtime() as runtime:
        generation = generate(runtime.load(bundle), Sampling(max_tokens=30), room=1)
    with pytest.raises(Dropped):
        list(generation)
