"""Sessions of captions: the text does not depend on connections, and whatever else comes is a sentence."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from examples.captions import sessions as sessions_module
from examples.captions.sessions import MOST_SAMPLES, Sessions
from runtime_lite import BadInput, Dropped, Model, Overloaded, RuntimeLiteError
from tests.examples.captions.recogniser import WORD, Client, Recogniser, blocks, speech

BURSTS = 3
LINES = [WORD] * BURSTS


@pytest.fixture
def recogniser() -> Recogniser:
    return Recogniser()


@pytest.fixture
def served(recogniser: Recogniser) -> Sessions:
    return Sessions(cast(Model, recogniser), idle_s=60.0)


@contextlib.asynccontextmanager
async def connected(served: Sessions, first: dict[str, Any] | None = None) -> AsyncIterator[Client]:
    """Yield a client that has sent its first message; its connection is lost at the end."""
    client = Client()
    task = asyncio.create_task(served.serve(client))
    client.say(first or {})
    try:
        yield client
    finally:
        client.sent.put_nowait(None)
        await task


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60.0))


async def lines_of(client: Client) -> list[str]:
    """Return the steady lines up to the end of the session."""
    lines = []
    while "ended" not in (told := await client.read()):
        assert "refused" not in told, told
        lines += [told["line"]] if "line" in told else []
    return lines


@pytest.mark.parametrize("size", [377, 1600, MOST_SAMPLES])
def test_the_text_does_not_depend_on_the_length_of_blocks(served: Sessions, recogniser: Recogniser, size: int) -> None:
    async def test() -> None:
        async with connected(served) as client:
            client.play(blocks(speech(BURSTS), size))
            assert await lines_of(client) == LINES
        assert served.count == recogniser.open == 0

    run(test)


def test_the_connection_is_closed_behind_the_end(served: Sessions) -> None:
    async def test() -> None:
        client = Client()
        client.say({})
        client.play(blocks(speech(1)))
        await served.serve(client)  # it ends by itself
        assert client.is_closed and served.count == 0

    run(test)


def test_transient_text_grows_in_front_of_its_line(served: Sessions) -> None:
    async def test() -> None:
        async with connected(served) as client:
            greeting = await client.read()
            assert greeting | {"session": ""} == {
                "session": "",
                "generation": 1,
                "next": 0,
                "lines": [],
                "transient": "",
            }
            for block in blocks(speech(1)):
                client.say(block)
            transient = []
            while "line" not in (told := await client.read()):
                transient.append(told["transient"])
            assert WORD in transient and told["steady"] is True and told["milliseconds"] >= 0

    run(test)


@pytest.mark.parametrize("lost", [1, 7, 20])
@pytest.mark.parametrize("again", [0, 3])
def test_another_connection_goes_on_with_the_session(
    served: Sessions, recogniser: Recogniser, lost: int, again: int
) -> None:
    """Blocks that are sent again count once, as do those whose answer was lost with the connection."""
    recording = blocks(speech(BURSTS))

    async def test() -> None:
        async with connected(served) as client:
            greeting = await client.read()
            for block in recording[:lost]:
                client.say(block)
            while client.sent.qsize():
                await asyncio.sleep(0)
        known = {"session": greeting["session"], "generation": 1}
        async with connected(served, known) as client:
            greeting = await client.read()
            assert greeting["next"] == lost and greeting["generation"] == 2
            client.play(recording[max(lost - again, 0) :])
            assert greeting["lines"] + await lines_of(client) == LINES
        assert served.count == recogniser.open == 0

    run(test)
    alone = recogniser.heard
    recogniser.heard = 0
    run_alone(served, recording)
    assert recogniser.heard == alone


def run_alone(served: Sessions, recording: list[bytes]) -> None:
    async def test() -> None:
        async with connected(served) as client:
            client.play(recording)
            await lines_of(client)

    run(test)


def test_a_second_connection_takes_the_place_of_the_first_one(served: Sessions) -> None:
    async def test() -> None:
        async with connected(served) as first:
            name = (await first.read())["session"]
            async with connected(served, {"session": name, "generation": 1}) as second:
                assert (await second.read())["generation"] == 2
                assert first.is_closed and not second.is_closed
                async with connected(served, {"session": name, "generation": 1}) as third:
                    assert "expected generation 2, got 1" in (await third.read())["refused"]
                assert not second.is_closed
                second.say(blocks(speech(1))[0])
                second.say(blocks(speech(1))[0])
                assert (await second.read())["next"] == 1

    run(test)


WRONG: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "skipped": (blocks(speech(1))[2], "expected number 0, got 2"),
    "empty": ((0).to_bytes(4, "little"), "got 4 bytes"),
    "half a sample": ((0).to_bytes(4, "little") + b"\0\0\0", "got 7 bytes"),
    "too long": (bytes(4 + 2 * MOST_SAMPLES + 2), "send less at once"),
    "no number": (b"\0", "got 1 bytes"),
    "another message": ({"stop": 1}, "expected a block or"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_message_is_refused_and_no_other_session_is_touched(served: Sessions, name: str) -> None:
    message, reason = WRONG[name]

    async def test() -> None:
        async with connected(served) as other, connected(served) as client:
            await other.read()
            greeting = await client.read()
            client.say(message)
            refused = await client.read()
            assert reason in refused["refused"] and refused["next"] == 0
            other.play(blocks(speech(BURSTS)))
            assert await lines_of(other) == LINES
            known = {"session": greeting["session"], "generation": 1}
            async with connected(served, known) as again:  # the refused session is as it was
                assert (await again.read())["next"] == 0

    run(test)


@pytest.mark.parametrize(
    "first",
    [
        {"session": "never"},
        {"session": 3, "generation": 0},
        {"session": ["a"], "generation": 0},
    ],
)
def test_a_session_that_never_began_is_refused(served: Sessions, first: dict[str, Any]) -> None:
    async def test() -> None:
        async with connected(served, first) as client:
            assert "which has ended or never began" in (await client.read())["refused"]
            assert served.count == 0

    run(test)


@pytest.mark.parametrize("content", ["", "[", "[]", "3", "[" * 100_000, '"\x1b[2J"'])
def test_a_first_message_that_is_no_object_is_refused(served: Sessions, content: str) -> None:
    async def test() -> None:
        client = Client()
        client.sent.put_nowait(content)
        await served.serve(client)
        refused = (await client.read())["refused"]
        assert "expected an object as JSON" in refused and "\x1b" not in refused
        assert client.is_closed

    run(test)


def test_a_session_without_a_connection_ends_after_a_while(served: Sessions, recogniser: Recogniser) -> None:
    async def test() -> None:
        async with connected(served) as client:
            name = (await client.read())["session"]
        served.sweep()
        assert served.count == recogniser.open == 1
        served._idle_s = 0.0
        served.sweep()
        assert served.count == recogniser.open == 0
        async with connected(served, {"session": name, "generation": 1}) as client:
            assert "has ended" in (await client.read())["refused"]

    run(test)


def test_a_client_that_never_reads_loses_its_connection_and_nobody_elses(
    served: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "SEND_S", 0.05)

    async def test() -> None:
        async with connected(served) as deaf, connected(served) as client:
            greeting = await deaf.read()
            deaf.is_deaf = True
            for block in blocks(speech(1)):
                deaf.say(block)
            client.play(blocks(speech(BURSTS)))
            assert await lines_of(client) == LINES
            while not deaf.is_closed:
                await asyncio.sleep(0.01)
            async with connected(served, {"session": greeting["session"], "generation": 1}) as again:
                assert (await again.read())["next"] > 0

    run(test)


@pytest.mark.parametrize("error", [Dropped("steady: late", "deadline"), Overloaded("steady: no room", "late")])
def test_an_utterance_without_time_for_its_steady_text_keeps_the_transient_one(
    served: Sessions, recogniser: Recogniser, error: RuntimeLiteError
) -> None:
    async def test() -> None:
        async with connected(served) as client:
            for block in blocks(speech(1)):
                client.say(block)
            while (await client.read())["transient"] != WORD:
                pass
            recogniser.submit = lost  # type: ignore[method-assign]
            client.say({"end": True})
            told = await client.until("line")
            assert told["line"] == WORD and told["steady"] is False

    async def lost(*_: object, **__: object) -> dict[str, Any]:
        raise error

    run(test)


def test_a_chunk_that_fails_is_a_sentence(served: Sessions, recogniser: Recogniser) -> None:
    async def test() -> None:
        async with connected(served) as client:
            await client.read()
            recogniser.error = BadInput("transient: the device is gone")
            for block in blocks(speech(1)):
                client.say(block)
            assert (await client.until("refused"))["refused"] == "transient: the device is gone"

    run(test)


def test_a_bundle_of_something_else_is_refused() -> None:
    recogniser = Recogniser("transient")
    with pytest.raises(BadInput, match=r"got transient; build one with python build.py --recipe captions.yaml"):
        Sessions(cast(Model, recogniser))
