"""voice: its sound is that of the codec over all its tokens, which are those of a loop by hand, in any company."""

import asyncio
import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Cancelled, Dropped, InternalError, Model, Runtime, Sampling, Voice
from runtime_lite.decoding.codec_chunks import SOUND, CodecChunks
from runtime_lite.decoding.packets import PacketSizes
from runtime_lite.decoding.sampling import Sampler
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import FrameLimit
from runtime_lite.format.reader import Bundle
from runtime_lite.serving.live_streams import SLOW_READER_NS
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.serving.served import serve, wait_until
from tests.runtime_lite.token_bundle import SLOTS, write_token_bundle
from tests.runtime_lite.voice_bundle import (
    HOP,
    RATE,
    START,
    STOP,
    VOICE,
    scores_after,
    sound_of,
    write_voice_bundle,
)

TEXT = [1, 2, 3]
ENDLESS = dataclasses.replace(
    VOICE, frames=None, sampling=Sampling(max_tokens=30, stop=frozenset({STOP}), min_tokens=30)
)
"""A voice that draws no stop token, so that it takes as many steps as it may."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice_bundle(tmp_path_factory.mktemp("voice") / "bundle")


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice_bundle(tmp_path_factory.mktemp("voice") / "lagging", lags=True)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice_bundle(tmp_path_factory.mktemp("voice") / "endless", voice=ENDLESS)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(max_streams=512) as runtime:
        yield runtime


@pytest.fixture
def model(runtime: Runtime, bundle: Path) -> Model:
    return runtime.load(bundle)


def text(letters: list[int] = TEXT) -> dict[str, Array]:
    return {"text": np.array([letters], np.int64)}


def by_hand(sampling: Sampling, letters: list[int] = TEXT, prompt: list[int] | None = None) -> list[int]:
    """A bare loop over the same sampler, which computes the scores of all tokens anew at every step."""
    limit = 4 * len(letters) + 6
    sampler, heard, drawn = Sampler(sampling), [*(prompt or []), START], list[int]()
    while len(drawn) < min(sampling.max_tokens, limit) and len(heard) <= SLOTS:
        token = sampler.take(scores_after(letters, heard)).token
        if token == STOP:
            break
        heard.append(token)
        drawn.append(token)
    return drawn


def settings(seed: int) -> Sampling:
    return dataclasses.replace(VOICE.sampling, seed=seed)


def assert_sounds(packets: list[Any], tokens: list[int], seed: int, lags: bool = False) -> None:
    sound = np.concatenate([np.zeros(0, np.float32), *packets])
    np.testing.assert_allclose(sound, sound_of(tokens, seed, lags), atol=1e-5)


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_sound_is_that_of_the_codec_over_all_tokens(
    runtime: Runtime, bundle: Path, lagging: Path, lags: bool, seed: int
) -> None:
    voice = runtime.load(lagging if lags else bundle).say(text(), seed=seed)
    packets = list(voice)
    assert voice.tokens == by_hand(settings(seed))
    assert_sounds(packets, voice.tokens, seed, lags)
    assert voice.taken == (len(packets), HOP * len(voice.tokens), len(voice.tokens))
    assert voice.ended_by == ("stop" if len(voice.tokens) < 18 else "too_long")
    assert runtime.health().streams == 0 and runtime.request_counts.submitted == 1  # it is one request


def test_every_split_into_packets_gives_the_same_sound(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = by_hand(settings(4))
    for frames in (1, 2, 3, 5):
        monkeypatch.setattr(Voice, "_frames_wanted", lambda self, frames=frames: frames)
        voice = model.say(text(), seed=4)
        packets = voice.result()
        assert voice.tokens == expected
        assert all(len(packet) >= frames * HOP for packet in packets[:-1])
        assert_sounds(packets, expected, 4)


def test_a_prompt_goes_before_the_start(model: Model) -> None:
    voice = model.say({**text([0, 4]), "tokens": np.array([[2, 5]])}, settings(3))
    packets = voice.result()
    assert voice.tokens == by_hand(settings(3), [0, 4], [2, 5])
    assert_sounds(packets, voice.tokens, 3)


def test_a_voice_is_read_in_coroutines(model: Model) -> None:
    async def read() -> tuple[Voice, list[Any], Voice, list[Any]]:
        first, second = model.say(text(), seed=1), model.say(text(), seed=2)
        return first, [packet async for packet in first], second, await second

    first, packets, second, others = asyncio.run(read())
    assert_sounds(packets, by_hand(settings(1)), 1)
    assert_sounds(others, by_hand(settings(2)), 2)
    assert first.least_margin > 0 and second.sample_rate_hz == RATE


def test_voices_in_changing_company_say_what_they_say_alone(runtime: Runtime, model: Model) -> None:
    """30 % are cancelled at random; the others' tokens and sound are those of each alone, and every slot is free."""
    rng = random.Random(7)
    wanted = [[rng.randrange(5) for _ in range(rng.randint(1, 6))] for _ in range(200)]
    running = [model.say(text(letters), seed=seed, room=99) for seed, letters in enumerate(wanted)]
    doomed = set(rng.sample(range(200), 60))
    threads = [threading.Timer(rng.uniform(0, 0.2), running[number].cancel) for number in doomed]
    for thread in threads:
        thread.start()
    for seed, (voice, letters) in enumerate(zip(running, wanted, strict=True)):
        if seed not in doomed:
            packets = voice.result()
            assert voice.tokens == by_hand(settings(seed), letters)
            assert_sounds(packets, voice.tokens, seed)
    for thread in threads:
        thread.join()
    assert runtime.health().streams == 0 and runtime.request_counts.balanced


def test_a_text_that_does_not_end_ends_as_too_long(runtime: Runtime, tmp_path: Path) -> None:
    sampling = Sampling(max_tokens=30, stop=frozenset({STOP}), min_tokens=8)
    short = dataclasses.replace(VOICE, sampling=sampling, frames=FrameLimit("text", 1.5, 4))
    voice = runtime.load(write_voice_bundle(tmp_path / "b", voice=short)).say(text())
    assert len(np.concatenate(voice.result())) == HOP * 8  # 1.5 frames for each of 3 letters, and 4
    assert voice.ended_by == "too_long"


def test_it_ends_at_its_most_tokens_and_where_the_window_is_full(runtime: Runtime, endless: Path) -> None:
    model = runtime.load(endless)
    voice = model.say(text())
    assert (len(np.concatenate(voice.result())), voice.ended_by) == (30 * HOP, "max_tokens")
    voice = model.say(text(), Sampling(max_tokens=99, min_tokens=99))
    assert (len(np.concatenate(voice.result())), voice.ended_by) == (SLOTS * HOP, "window")


def test_a_text_without_frames_has_no_packets(runtime: Runtime, tmp_path: Path) -> None:
    everything = frozenset(range(9))
    silent = dataclasses.replace(VOICE, sampling=Sampling(max_tokens=5, stop=everything))
    for lags in (False, True):
        voice = runtime.load(write_voice_bundle(tmp_path / str(lags), lags, silent)).say(text())
        assert (voice.result(), voice.ended_by, voice.report.real_time_factor) == ([], "stop", None)


def test_cancelling_tells_what_was_heard_and_frees_both_streams(runtime: Runtime, endless: Path) -> None:
    model = runtime.load(endless)
    voice, other = model.say(text(), room=1), model.say(text(), seed=5)
    packet = next(iter(voice))
    taken = voice.cancel()
    assert taken == (1, len(packet), len(packet) // HOP) == voice.taken
    assert voice.outcome == "cancelled" and voice.cancel() == taken
    with pytest.raises(Cancelled):
        voice.result()
    packets = other.result()
    assert_sounds(packets, other.tokens, 5)
    assert runtime.health().streams == 0
    assert len(voice.tokens) < 30  # it did not go on


def test_one_that_is_cancelled_before_it_starts_takes_no_step(
    runtime: Runtime, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = threading.Event()
    original = model.runner("step").executor.run

    def wait(*arguments: Any) -> None:
        blocked.wait(PATIENCE_S)
        original(*arguments)

    monkeypatch.setattr(model.runner("step").executor, "run", wait)
    first = model.say(text(), seed=1)
    second = model.say(text(), seed=2)
    assert second.cancel() == (0, 0, 0)
    blocked.set()
    first.result()
    assert second.tokens == [] and runtime.health().streams == 0


def test_a_reader_that_never_reads_pauses_its_own_voice_and_is_ended(
    runtime: Runtime, endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_lite.serving.live_streams.SLOW_READER_NS", SLOW_READER_NS // 300)
    model = runtime.load(endless)
    unread = model.say(text(), room=2)
    read = model.say(text(), seed=1)
    assert_sounds(read.result(), read.tokens, 1)
    wait_until(unread.done)
    assert (unread.outcome, unread.reason) == ("dropped", "slow reader")
    assert len(unread.tokens) < 30
    reader = iter(unread)
    assert len([next(reader) for _ in range(2)]) == 2  # what was made is read
    with pytest.raises(Dropped, match="slow reader"):
        next(reader)
    assert runtime.health().streams == 0


class Failing:
    """An executor that fails at the run of some number, for the graph of some name."""

    def __init__(self, executor: Executor, fails: Callable[[int], bool]) -> None:
        self._executor, self._fails, self._count = executor, fails, 0

    def run(self, *arguments: Any) -> None:
        self._count += 1
        if self._fails(self._count):
            raise InternalError("graph 'codec': the device is gone")
        self._executor.run(*arguments)

    def close(self) -> None:
        self._executor.close()


def failing_at(graph: str, *counts: int) -> Any:
    def make(bundle: Bundle, name: str, threads: int) -> Any:
        executor = make_executor(bundle, name, threads)
        return Failing(executor, lambda count: count in counts) if name == graph else executor

    return make


@pytest.mark.parametrize("graph", ["step", "codec"])
def test_a_stage_that_fails_in_the_middle_ends_that_voice_alone(runtime: Runtime, endless: Path, graph: str) -> None:
    model = runtime.load(endless, executors=failing_at(graph, 3))
    voice = model.say(text(), seed=1)
    with pytest.raises(InternalError, match="the device is gone"):
        voice.result()
    assert (voice.outcome, voice.reason) == ("failed", "InternalError")
    assert runtime.health().streams == 0
    other = model.say(text(), seed=2)
    assert_sounds(other.result(), other.tokens, 2)


def test_a_chunk_that_cannot_be_made_ends_its_voice_alone(
    runtime: Runtime, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, count = CodecChunks.chunk, 0

    def chunk_or_not(self: CodecChunks, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise BadInput("codec.say: no such token")
        return chunk(self, *arguments)

    monkeypatch.setattr(CodecChunks, "chunk", chunk_or_not)
    monkeypatch.setattr(Voice, "_frames_wanted", lambda self: 2)
    with pytest.raises(BadInput, match="no such token"):
        model.say(text(), seed=0).result()
    assert runtime.health().streams == 0
    other = model.say(text(), seed=2)
    assert_sounds(other.result(), other.tokens, 2)


def test_steps_and_chunks_of_several_voices_share_runs(endless: Path) -> None:
    with serve(endless) as place:
        for voice in [place.model.say(text(), seed=seed, room=99) for seed in range(8)]:
            voice.result()
    for axis in ("time", "chunk"):  # of the step, of the codec
        assert max(sizes["batch"] for sizes in place.runs if axis in sizes) > 1


def test_what_is_queued_when_it_is_cancelled_is_taken_back(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Voice, "_frames_wanted", lambda self: 1)
    with serve(endless) as place:

        def hold(sizes: Mapping[str, int], inputs: Mapping[str, Array]) -> None:
            place.scheduler.held = True

        place.hook = hold
        voice = place.model.say(text())
        wait_until(lambda: len(voice.tokens) == 1)
        wait_until(lambda: place.server.health().queued == 2)  # the next step, and the first chunk of the codec
        assert voice.cancel() == (0, 0, 0)
        assert (place.server.health().queued, place.server.health().streams) == (0, 0)


def test_no_step_waits_for_the_codec(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime(workers=2) as runtime:
        model, go_on = runtime.load(endless, warm_up=True), threading.Event()
        executor = model.runner("codec").executor
        run = executor.run

        def wait(*arguments: Any) -> None:
            go_on.wait(PATIENCE_S)
            run(*arguments)

        monkeypatch.setattr(executor, "run", wait)
        voice = model.say(text())
        wait_until(lambda: len(voice.tokens) == 30)
        go_on.set()
        assert_sounds(voice.result(), voice.tokens, 0)


def test_a_step_is_due_when_all_sound_before_it_is_played(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame is 0.4 s here, so that the target of a class would be off by seconds."""
    slow = dataclasses.replace(ENDLESS, sample_rate_hz=10)
    model = runtime.load(write_voice_bundle(tmp_path / "b", voice=slow), warm_up=True)
    prepare, due = Voice.prepare, list[tuple[int, float]]()

    def prepare_and_note(self: Voice, part: Any, outputs: Any) -> None:
        prepare(self, part, outputs)
        if self._chunk is not None:
            due.append((self.taken.packets, (self._chunk.soft - self._begun) / 1e9))

    monkeypatch.setattr(Voice, "prepare", prepare_and_note)
    voice = model.say(text())
    for _ in voice:
        pass
    assert due[0] == (0, 0.48)  # 80 ms, and behind the frame that was just drawn
    assert due[-1][1] > 10


def test_a_chunk_between_the_last_draw_and_its_frame_does_not_end_the_voice(model: Model) -> None:
    voice = model.say(text(), seed=0)
    voice.result()
    voice._is_over, voice._sound = False, np.zeros(HOP, np.float32)  # drawn in another thread, not yet put
    assert voice.ended_by and not voice.put(SOUND, [])


def test_a_swap_while_voices_sound_leaves_them_as_they_are(runtime: Runtime, bundle: Path, lagging: Path) -> None:
    model = runtime.load(bundle)
    before = [model.say(text(), seed=seed, room=1) for seed in range(3)]
    first = [next(iter(voice)) for voice in before]
    runtime.swap(model, bundle)
    after = model.say(text(), seed=9)
    for seed, (voice, packet) in enumerate(zip(before, first, strict=True)):
        assert_sounds([packet, *voice.result()], voice.tokens, seed)
        assert voice.tokens == by_hand(settings(seed))
    assert_sounds(after.result(), after.tokens, 9)


def test_a_closed_runtime_ends_it(endless: Path) -> None:
    with Runtime() as runtime:
        voice = runtime.load(endless).say(text(), room=1)
    with pytest.raises(Dropped):
        voice.result()


def test_a_deadline_is_that_of_the_whole(runtime: Runtime, endless: Path) -> None:
    voice = runtime.load(endless).say(text(), room=1, deadline_ms=400)
    wait_until(voice.done)
    with pytest.raises(Dropped):
        list(voice)
    assert runtime.health().streams == 0


def test_a_voice_with_sound_enough_pauses_until_little_is_left(runtime: Runtime, tmp_path: Path) -> None:
    """30 frames last 0.6 s: with a lead of 0.2 s at most, the last cannot be drawn before 0.4 s were played."""
    slower = dataclasses.replace(ENDLESS, sample_rate_hz=200)
    model = runtime.load(write_voice_bundle(tmp_path / "b", voice=slower), warm_up=True)
    voice = model.say(text(), lead_ms=200, room=99)
    reader = iter(voice)
    packets, begun = [next(reader)], time.monotonic()
    packets += reader
    assert time.monotonic() - begun > 0.35
    assert_sounds(packets, voice.tokens, 0)
    assert len(voice.tokens) == 30 and voice.report.lead_ms <= 220


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("lead_ms", [1, 20, 50, 100])
def test_no_lead_is_so_small_or_odd_that_a_voice_stops(
    runtime: Runtime, tmp_path: Path, lags: bool, lead_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packet may want more frames than are made while the voice is parked: it gets those that there are."""
    monkeypatch.setattr(PacketSizes, "first", lambda self, voices: 25)
    monkeypatch.setattr(PacketSizes, "following", lambda self, lead, voices: 25)
    model = runtime.load(write_voice_bundle(tmp_path / "b", lags, ENDLESS), warm_up=True)
    voice = model.say(text(), lead_ms=lead_ms, room=2)
    reader = threading.Thread(target=voice.result)
    reader.start()
    reader.join(20)
    assert (voice.outcome, len(voice.tokens)) == ("done", 30)


def test_one_that_nobody_begins_to_hear_pauses_too(runtime: Runtime, endless: Path) -> None:
    model = runtime.load(endless)
    voice = model.say(text(), lead_ms=40, room=99)
    other = model.say(text(), seed=1)
    other.result()
    assert not voice.done() and len(voice.tokens) < 30
    assert_sounds(list(voice), voice.tokens, 0)


def test_a_report_says_how_it_was_served(model: Model) -> None:
    voice = model.say(text(), seed=0)
    assert voice.report.first_sound_ms is None
    voice.result()
    report = voice.report
    assert report.first_sound_ms is not None and report.real_time_factor is not None
    assert report.first_sound_ms > 0 and report.real_time_factor > 0 and report.lead_ms > 0
    assert report.gaps_over(1e9) == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an empty text": ({"feeds": text([])}, "'text': expected at least 1"),
    "a text that is too long": ({"feeds": text([1] * 7)}, "'text'"),
    "an unknown character": ({"feeds": text([99])}, "from 0 to 4"),
    "no text": ({"feeds": {}}, "no 'text'"),
    "an unknown input": ({"feeds": {**text(), "txt": np.zeros(1)}}, "unknown input 'txt'"),
    "noise": ({"feeds": {**text(), "noise": np.zeros((1, 1, 4), np.float32)}}, "unknown input 'noise'"),
    "two rows": ({"feeds": {"text": np.zeros((2, 1), np.int64)}}, "'tokens': expected size 2 on axis 0"),
    "a prompt of two rows": ({"feeds": {**text(), "tokens": np.zeros((2, 1), np.int64)}}, "'tokens': expected size 1"),
    "a prompt of floats": ({"feeds": {**text(), "tokens": np.zeros((1, 1))}}, "'tokens': expected int64"),
    "feeds that are none": ({"feeds": [1]}, "the feeds as a mapping of arrays"),
    "a seed that is none": ({"seed": "a"}, "seed: expected an integer"),
    "a negative seed": ({"seed": -1}, "seed: expected an integer from 0"),
    "sampling that is none": ({"sampling": {"temperature": 1.0}}, "sampling as a Sampling"),
    "a stop without a score": (
        {"sampling": Sampling(9, stop=frozenset({9}))},
        "sampling.stop: expected tokens below 9",
    ),
    "more tokens than the text may have": ({"sampling": Sampling(30, min_tokens=19)}, "min_tokens of at most 18"),
    "no room": ({"room": 0}, "room for at least 1"),
    "no lead": ({"lead_ms": 0}, "lead_ms as a positive number"),
    "a negative deadline": ({"deadline_ms": -1}, "deadline_ms"),
    "no class": ({"service": "step"}, "a service class"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_by_name_and_leaves_no_stream(runtime: Runtime, model: Model, case: str) -> None:
    changes, message = WRONG[case]
    given = {"feeds": text(), **changes}
    with pytest.raises(BadInput, match=message):
        model.say(given.pop("feeds"), **given)
    assert runtime.health().streams == 0


def test_a_bundle_without_a_voice_says_nothing(runtime: Runtime, tmp_path: Path) -> None:
    model = runtime.load(write_token_bundle(tmp_path / "tokens"))
    with pytest.raises(BadInput, match=r"tiny\.say: expected a bundle with a voice, got one without"):
        model.say(text())
