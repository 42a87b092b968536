"""Whatever becomes of a replica: a chunk is answered as in the stream alone, or its stream is lost by name."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import BadInput, Overloaded, Runtime, StreamLost
from runtime_lite.format.arrays import Array
from runtime_lite.hosting import ray_gateway
from runtime_lite.hosting.ray_gateway import Address, Gateway
from runtime_lite.hosting.ray_replica import RayOptions
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, write_double_bundle, write_streaming_bundle
from tests.runtime_lite.hosting.ray_stand_in import GoneError, Replicas
from tests.runtime_lite.serving.served import assert_close

COUNT = 9
SAFE = RayOptions(graph="streaming", snapshot_every=3, answer_s=120.0)
BARE = RayOptions(graph="streaming", answer_s=120.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hands over late here."""
    monkeypatch.setattr(ray_gateway, "LEAVES_S", 0.01)
    monkeypatch.setattr(ray_gateway, "LEAVES_EXACTLY_S", 0.01)


class Client:
    """A client of several streams, which knows what each answers when it is alone."""

    def __init__(self, gateway: Gateway, bundle: Path, count: int = 4) -> None:
        self.gateway, self.count = gateway, count
        self.chunks = [random_chunks(COUNT, seed=seed) for seed in range(count)]
        with Runtime() as runtime:
            model = runtime.load(bundle)
            self.truth = []
            for chunks in self.chunks:
                with model.open_stream("streaming") as stream:
                    self.truth.append([stream.push({"x": chunk})["y"] for chunk in chunks])
        self.addresses: list[Address] = []

    async def open(self) -> None:
        self.addresses = [await self.gateway.open() for _ in range(self.count)]

    async def push(self, index: int, number: int) -> Array:
        stream, generation, _ = self.addresses[index]
        return (await self.gateway.push(stream, generation, number, {"x": self.chunks[index][number]}))["y"]

    async def rounds(self, first: int, end: int) -> None:
        """Push a chunk of every stream at one time, for some numbers; every answer is that of the stream alone."""
        for number in range(first, end):
            answers = await asyncio.gather(*(self.push(index, number) for index in range(self.count)))
            for index, answer in enumerate(answers):
                assert_close(answer, self.truth[index][number])


def started(bundle: Path, options: RayOptions, names: str = "ab") -> tuple[Replicas, Gateway, Client]:
    replicas = Replicas(bundle, options, names)
    gateway = Gateway(replicas, options, (GoneError,))
    return replicas, gateway, Client(gateway, bundle)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_streams_are_spread_and_each_stays_where_it_is(bundle: Path) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, BARE)
        await client.open()
        assert [replica.loads()["streams"] for replica in replicas.replicas.values()] == [2, 2]
        await client.rounds(0, 4)
        replicas.add("c")
        await client.rounds(4, COUNT)
        assert replicas.replicas["c"].loads()["streams"] == 0  # growth moves nobody
        for stream, generation, _ in client.addresses:
            assert await gateway.close(stream, generation) == COUNT
        await asyncio.sleep(0)  # what was sent without waiting arrives
        assert (await gateway.counts())[:5] == (4, 4, 0, 0, 0)
        assert sum(replica.loads()["streams"] for replica in replicas.replicas.values()) == 0

    run(work())


@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 6])
def test_a_lost_replica_is_not_noticed_where_snapshots_are_kept(bundle: Path, at: int) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, SAFE)
        await client.open()
        await client.rounds(0, at)
        replicas.lose("a")
        await client.rounds(at, COUNT)
        counts = await gateway.counts()
        assert (counts.lost, counts.restored, counts.live) == (0, 2, 4)
        assert {name for name, _ in replicas.calls[-4:]} == {"b"}

    run(work())


def test_a_lost_replica_without_snapshots_names_the_last_chunk_that_counted(bundle: Path) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, BARE)
        await client.open()
        await client.rounds(0, 5)
        replicas.lose("a")
        pushes = [client.push(index, 5) for index in range(4)]
        answers = await asyncio.gather(*pushes, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, StreamLost)]
        assert [each.last_counted for each in lost] == [4, 4]
        assert all("behind chunk 4: its replica is gone; open another stream" in str(each) for each in lost)
        for index, answer in enumerate(answers):
            if not isinstance(answer, StreamLost):
                assert_close(answer, client.truth[index][5])
        counts = await gateway.counts()
        assert (counts.opened, counts.lost, counts.live, counts.restored) == (4, 2, 2, 0)
        await gateway.open()  # at the other one

    run(work())


def test_a_mute_replica_without_snapshots_has_its_places_back_when_it_answers_again(bundle: Path) -> None:
    async def work() -> None:
        options = RayOptions(graph="streaming", max_streams=2, answer_s=1.0)
        replicas, gateway, client = started(bundle, options)
        await client.open()
        await client.rounds(0, 2)
        replicas.mute["a"] = asyncio.Event()
        answers = await asyncio.gather(*(client.push(index, 2) for index in range(4)), return_exceptions=True)
        assert sum(isinstance(answer, StreamLost) for answer in answers) == 2
        replicas.mute.pop("a").set()
        for _ in range(2):
            await gateway.open()
        with pytest.raises(Overloaded):
            await gateway.open()

    run(work())


def test_a_mute_replica_loses_its_streams_and_forgets_them_when_it_answers_again(bundle: Path) -> None:
    async def work() -> None:
        options = RayOptions(graph="streaming", snapshot_every=3, answer_s=1.0)
        replicas, gateway, client = started(bundle, options)
        await client.open()
        await client.rounds(0, 4)
        mute = replicas.replicas["a"]
        replicas.mute["a"] = asyncio.Event()
        await client.rounds(4, 6)
        assert mute.loads()["streams"] == 2  # it does not know yet
        replicas.mute.pop("a").set()
        await client.rounds(6, 8)
        await gateway.open()
        await gateway.open()
        for _ in range(9):
            await asyncio.sleep(0)
        assert mute.loads()["streams"] <= 2  # the new ones alone
        await client.rounds(8, COUNT)

    run(work())


@pytest.mark.parametrize("options", [BARE, SAFE], ids=["bare", "safe"])
def test_a_replica_that_leaves_hands_its_streams_over(bundle: Path, options: RayOptions) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, options)
        await client.open()
        await client.rounds(0, 4)
        await asyncio.gather(client.rounds(4, 6), replicas.leave("a", gateway.hand_over))  # in the middle of chunks
        replicas.add("c")
        await client.rounds(6, 7)
        assert await replicas.leave("b", gateway.hand_over) >= 2
        await client.rounds(7, COUNT)
        counts = await gateway.counts()
        assert (counts.lost, counts.live) == (0, 4) and counts.moved >= 4

    run(work())


def test_a_stream_of_another_bundle_is_lost_by_name_when_its_replica_leaves(bundle: Path, tmp_path: Path) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, BARE, "a")
        await client.open()
        await client.rounds(0, 2)
        replicas.add("b", write_double_bundle(tmp_path / "double"))
        await replicas.leave("a", gateway.hand_over)
        with pytest.raises(StreamLost, match="behind chunk 1: its replica is gone") as lost:
            await client.push(0, 2)
        assert lost.value.last_counted == 1
        assert (await gateway.counts()).lost == 1

    run(work())


def test_a_full_application_refuses_by_name_and_keeps_the_state_of_a_stream_that_has_to_move(bundle: Path) -> None:
    async def work() -> None:
        options = RayOptions(graph="streaming", max_streams=2, snapshot_every=3, answer_s=120.0)
        replicas, gateway, client = started(bundle, options)
        await client.open()
        with pytest.raises(Overloaded, match="all places for streams are taken"):
            await gateway.open()
        await client.rounds(0, 4)
        await replicas.leave("a", gateway.hand_over)
        refused = 0
        for index in range(4):
            try:
                await client.push(index, 4)
            except Overloaded:
                refused += 1
        assert refused == 2
        replicas.add("c")
        for index in range(4):  # those that were answered get the same answer again
            assert_close(await client.push(index, 4), client.truth[index][4])
        await client.rounds(5, COUNT)

    run(work())


def test_a_stream_is_placed_in_a_higher_generation_each_time_that_it_is_tried(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_gateway, "PLACE_S", 0.05)

    async def work() -> None:
        replicas, gateway, client = started(bundle, SAFE)
        await client.open()
        await client.rounds(0, 4)
        replicas.lose("a")
        replicas.mute["b"] = asyncio.Event()  # it has their places sent, and does not answer
        pin = next(pin for pin in gateway._pins.values() if pin.replica == "a")
        index = [address.stream for address in client.addresses].index(
            next(stream for stream, known in gateway._pins.items() if known is pin)
        )
        for _ in range(2):
            before = pin.generation
            with pytest.raises(Overloaded, match="no replica answers"):
                await client.push(index, 4)
            assert pin.generation >= before + ray_gateway.PLACES
        replicas.mute.pop("b").set()
        monkeypatch.setattr(ray_gateway, "PLACE_S", 60.0)
        assert_close(await client.push(index, 4), client.truth[index][4])

    run(work())


def test_chunks_and_generations_that_are_wrong_are_refused_and_change_nothing(bundle: Path) -> None:
    async def work() -> None:
        _, gateway, client = started(bundle, SAFE)
        await client.open()
        await client.rounds(0, 2)
        stream, generation, _ = client.addresses[0]
        for number in (0, 3, -1, "2", None, True):
            with pytest.raises(BadInput, match="expected chunk 2 of the stream, got"):
                await gateway.push(stream, generation, number, {"x": client.chunks[0][0]})  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            await gateway.push(stream, generation, 2, {"x": np.zeros((1, 1, 1))})
        assert_close(await client.push(0, 1), client.truth[0][1])  # the newest one again
        with pytest.raises(BadInput, match="expected chunk 2 of the stream, got 1"):
            await gateway.push(stream, generation, 1, {"x": client.chunks[0][3]})
        for name in ("nobody", "", 7):
            with pytest.raises((StreamLost, BadInput)):
                await gateway.push(name, 1, 0, {"x": client.chunks[0][0]})  # type: ignore[arg-type]
        younger = await gateway.resume(stream, generation)
        assert younger == (stream, generation + 1, 2)
        for call in (gateway.resume(stream, generation), client.push(0, 2), gateway.close(stream, generation)):
            with pytest.raises(StreamLost, match="heard in generation 2, not 1"):
                await call
        client.addresses[0] = younger
        await client.rounds(2, COUNT)
        assert (await gateway.counts()).lost == 0

    run(work())


def test_a_repeated_chunk_runs_once_again_when_its_replica_is_lost(bundle: Path) -> None:
    async def work() -> None:
        replicas, _, client = started(bundle, SAFE)
        await client.open()
        await client.rounds(0, 2)
        await client.rounds(1, 2)
        replicas.lose("a")
        await client.rounds(2, COUNT)

    run(work())


def test_a_gateway_that_begins_again_asks_where_streams_live(bundle: Path) -> None:
    async def work() -> None:
        replicas, _, client = started(bundle, SAFE)
        await client.open()
        await client.rounds(0, 4)
        client.gateway = gateway = Gateway(replicas, SAFE, (GoneError,))
        await client.rounds(4, 5)
        replicas.lose("a")  # it has taken new snapshots with the first chunks
        await client.rounds(5, COUNT)
        assert (await gateway.counts()).lost == 0
        replicas.mute["b"] = asyncio.Event()
        with pytest.raises(StreamLost, match="not every replica can be asked for it"):
            await gateway.push("nobody", 1, 0, {})

    run(work())


@pytest.mark.parametrize("who_first", ["replicas", "gateway"])
def test_replicas_and_gateway_may_be_replaced_at_one_time(bundle: Path, who_first: str) -> None:
    async def work() -> None:
        replicas, old, client = started(bundle, BARE)
        await client.open()
        await client.rounds(0, 4)
        replicas.add("c")
        client.gateway = new = Gateway(replicas, BARE, (GoneError,))
        heard_by_old, heard_by_new = (old, new) if who_first == "replicas" else (new, old)
        for name, gateway in (("a", heard_by_old), ("b", heard_by_new)):
            await replicas.leave(name, gateway.hand_over)
        for moved in old.homeless():
            await new.hand_over(moved)
        await client.rounds(4, COUNT)
        stream, generation, _ = client.addresses[0]
        with pytest.raises(StreamLost, match="heard in generation 1, not 2"):
            await new.push(stream, generation + 1, COUNT, {"x": client.chunks[0][0]})
        assert (await new.counts())[:5] == (4, 0, 0, 0, 4)

    run(work())


def test_a_chunk_that_comes_to_a_new_gateway_before_its_stream_waits_for_it(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_gateway, "LEAVES_S", 60.0)

    async def work() -> None:
        replicas, _, client = started(bundle, BARE, "a")
        await client.open()
        await client.rounds(0, 2)
        old = replicas.replicas.pop("a")
        replicas.add("b")
        client.gateway = gateway = Gateway(replicas, BARE, (GoneError,))
        pushing = asyncio.get_running_loop().create_task(client.push(0, 2))
        while not gateway._waited_for:
            await asyncio.sleep(0)
        await old.move_all(gateway.hand_over)
        assert_close(await pushing, client.truth[0][2])

    run(work())


def test_a_chunk_whose_client_has_gone_counts(bundle: Path) -> None:
    async def work() -> None:
        replicas, gateway, client = started(bundle, BARE, "a")
        await client.open()
        await client.rounds(0, 1)
        replicas.mute["a"] = asyncio.Event()
        pushing = asyncio.get_running_loop().create_task(client.push(0, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing
        replicas.mute.pop("a").set()
        stream, generation, _ = client.addresses[0]
        until = time.monotonic() + PATIENCE_S
        while (await gateway.resume(stream, generation)).number < 2 and time.monotonic() < until:
            generation += 1  # which lock the chunk has had first
        client.addresses[0] = Address(stream, generation + 1, 2)
        assert_close(await client.push(0, 1), client.truth[0][1])
        assert_close(await client.push(0, 2), client.truth[0][2])

    run(work())


def test_streams_that_are_forgotten_are_counted(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        _, gateway, client = started(bundle, BARE)
        await client.open()
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 10 * BARE.idle_s)
        await gateway.open()
        assert (await gateway.counts())[:5] == (5, 0, 0, 4, 1)

    run(work())
