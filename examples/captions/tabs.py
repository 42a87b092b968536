"""Plays recordings to a server of captions as many open pages would, and prints how soon their text came.

    python -m examples.captions.tabs --sessions 30 --seconds 30

Needs the extra `captions`. Every session begins at its own time, plays the demonstration recordings at the speed of
speech, and reads its answers. A delay is the time from the last sample that a text needs to the text.
"""

import argparse
import asyncio
import functools
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np

from examples import command
from examples.captions.sessions import NUMBER_BYTES
from examples.streaming_asr import features, transcribe
from examples.streaming_asr.data import DEMO_FOLDER

BLOCK_S = 0.1
BLOCK_SAMPLES = int(BLOCK_S * features.SAMPLE_RATE_HZ)
KINDS = ("first text of a line", "further text", "steady line")


@functools.cache
def recorded() -> list[bytes]:
    """Return the samples of the blocks of the demonstration recordings."""
    samples = np.concatenate([transcribe.read_recording(file) for file in sorted(DEMO_FOLDER.glob("*.flac"))])
    whole = np.round(32767 * samples).astype("<i2")
    return [
        whole[start : start + BLOCK_SAMPLES].tobytes() for start in range(0, len(whole) - BLOCK_SAMPLES, BLOCK_SAMPLES)
    ]


def blocks(first: int) -> Iterator[bytes]:
    """Yield numbered blocks of the recordings, over and over, from one of them on."""
    for number in itertools.count():
        yield number.to_bytes(NUMBER_BYTES, "little") + recorded()[(first + number) % len(recorded())]


async def play(url: str, number: int, seconds: float, delays: dict[str, list[float]]) -> int:
    """Play one session; return the number of its lines."""
    from websockets.asyncio.client import connect

    chance = random.Random(number)
    first = chance.randrange(len(recorded()))
    sent: dict[int, float] = {}
    await asyncio.sleep(chance.random() * features.HOP_SAMPLES / features.SAMPLE_RATE_HZ)
    async with connect(url) as socket:
        await socket.send("{}")
        await socket.recv()

        async def speak() -> None:
            begun = time.perf_counter()
            for count, block in enumerate(itertools.islice(blocks(first), round(seconds / BLOCK_S))):
                await asyncio.sleep(begun + count * BLOCK_S - time.perf_counter())
                sent[count] = time.perf_counter()
                await socket.send(block)
            await socket.send(json.dumps({"end": True}))

        speaking = asyncio.create_task(speak())
        lines, is_empty = 0, True
        async for message in socket:
            told = json.loads(message)
            if "refused" in told:
                raise ConnectionError(f"the server refused session {number}: {told['refused']}")
            if "line" in told:
                lines += 1
                if told["steady"]:
                    delays["steady line"].append(told["milliseconds"])
            elif "transient" in told:
                if told["transient"]:
                    kind = "first text of a line" if is_empty else "further text"
                    delays[kind].append(1e3 * (time.perf_counter() - sent[told["next"] - 1]))
                is_empty = not told["transient"]
        await speaking
    return lines


async def play_all(url: str, sessions: int, seconds: float) -> None:
    """Play all sessions at once and print their delays."""
    delays: dict[str, list[float]] = {kind: [] for kind in KINDS}
    lines = await asyncio.gather(*(play(url, number, seconds, delays) for number in range(sessions)))
    print(f"{sessions} sessions of {seconds:g} s, {sum(lines)} lines")
    print(f"{'milliseconds':24}{'texts':>8}{'median':>8}{'p95':>8}{'most':>8}")
    for kind, times in delays.items():
        times.sort()
        shown = [statistics.median(times), times[math.ceil(0.95 * len(times)) - 1], times[-1]] if times else []
        print(f"{kind:24}{len(times):8}" + "".join(f"{time_ms:8.1f}" for time_ms in shown))


def main() -> None:
    """Play the sessions that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="ws://127.0.0.1:8000/captions", help="address of the server's sessions")
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each session")
    arguments = parser.parse_args()
    try:
        import websockets  # noqa: F401
    except ImportError as error:
        sys.exit(f"error: captions: {error}; pip install '.[captions]'")
    asyncio.run(play_all(arguments.url, arguments.sessions, arguments.seconds))


if __name__ == "__main__":
    command.run(main)
