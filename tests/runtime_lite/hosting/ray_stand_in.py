"""Replicas in this process, behind a handle with the calls of Ray's: they may be lost, mute or gone, as theirs may."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from runtime_lite.hosting.ray_replica import RayOptions, StreamsReplica, candidates_for


class GoneError(Exception):
    """A replica does not exist."""


class Identity(NamedTuple):
    unique_id: str


class Candidate(NamedTuple):
    replica_id: Identity
    routing_stats: dict[str, float]


class Call(NamedTuple):
    """A method of the handle."""

    remote: Callable[..., Awaitable[Any]]


class Broadcast(NamedTuple):
    results: Callable[[float], list[Any]]


class Replicas:
    """A handle of several replicas.

    Attributes:
        replicas: by name, those that a router may choose.
        lost: names of those that are gone though a router may choose them once more.
        mute: names of those that do not answer.
        calls: replica and method of every call that was sent.
    """

    def __init__(self, bundle: Path, options: RayOptions, names: str = "ab") -> None:
        self._bundle, self._options = bundle, options
        self._draw = random.Random(1)
        self.replicas = {name: StreamsReplica(str(bundle), options, name) for name in names}
        self.lost: set[str] = set()
        self.mute: dict[str, asyncio.Event] = {}
        self.calls: list[tuple[str, str]] = []

    def add(self, name: str, bundle: Path | None = None) -> None:
        """Start another replica."""
        self.replicas[name] = StreamsReplica(str(bundle or self._bundle), self._options, name)

    def lose(self, name: str) -> None:
        """End a replica and what it has, as kill -9 does."""
        self.lost.add(name)

    async def leave(self, name: str, hand_over: Any) -> int:
        """Take a replica out of the router's sight, and let it hand over."""
        return await self.replicas.pop(name).move_all(hand_over)

    def __getattr__(self, method: str) -> Call:
        async def remote(*arguments: Any, **named: Any) -> Any:
            candidates = [Candidate(Identity(name), replica.loads()) for name, replica in self.replicas.items()]
            name = candidates_for(candidates, named, self._draw)[0].replica_id.unique_id
            self.calls.append((name, method))
            if name in self.lost:
                self.replicas.pop(name, None)
                raise GoneError
            if name in self.mute:
                await self.mute[name].wait()
            return await getattr(self.replicas[name], method)(*arguments, **named)

        return Call(remote)

    def broadcast(self, method: str, *arguments: Any) -> Broadcast:
        """Call a method of all replicas."""

        def results(timeout_s: float) -> list[Any]:
            if self.lost or self.mute:
                raise GoneError
            return [asyncio.run(getattr(replica, method)(*arguments)) for replica in self.replicas.values()]

        return Broadcast(results)
