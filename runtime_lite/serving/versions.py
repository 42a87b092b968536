"""Tracks the loaded versions of models on a server, their costs, and the versions that are ready to be closed.

Its methods are called under the server's lock; `Server` closes versions without the lock.
"""

from collections.abc import Iterable, Mapping

from runtime_lite.format.manifest import bucket_name
from runtime_lite.scheduling.cost_table import CostTable, costs_of_graph, key_of
from runtime_lite.serving.events import EventBus, ModelChange
from runtime_lite.serving.request import Version
from runtime_lite.serving.rule import Rule


class Versions:
    """The versions of one server.

    Args:
        scheduler: is told to forget models that are closed.
        costs: the scheduler's cost table.
        bus: passes on events of models that are loaded, swapped and unloaded.

    Attributes:
        unneeded: retired versions without pins: they can be closed, unless they are pinned again before `leaving` is
            called.
    """

    def __init__(self, scheduler: Rule, costs: CostTable, bus: EventBus) -> None:
        """Start without versions."""
        self._scheduler, self._costs, self._bus = scheduler, costs, bus
        self.unneeded: list[Version] = []
        self._closing: list[Version] = []

    def add(self, version: Version, threads: int, measured: Mapping[tuple[str, str], int], now: int) -> None:
        """Add a version and its costs, as `Server.add` describes."""
        for name, runner in version.runners.items():
            alone = runner.batching_fault() is not None
            known = version.bundle.costs.get(name, {})
            for key, table in costs_of_graph(version.name, name, runner.graph, known, threads, alone).items():
                self._costs.add(key, table)
            for artifact in runner.graph.artifacts:
                cost = measured.get((name, bucket_name(artifact.sizes)))
                if cost is not None:
                    key = key_of(version.name, name, runner.graph, artifact.sizes, alone)
                    self._costs.observe(key, artifact.sizes.get(str(runner.graph.batch_axis), 1), cost)
        self._tell(version, "loaded", now)

    def retire(self, version: Version, change: ModelChange, now: int) -> None:
        """Let no new request or stream use a version."""
        if not version.retired:
            version.retired = True
            self._tell(version, change, now)
            if not version.pins:
                self.unneeded.append(version)

    def leaving(self) -> list[Version]:
        """Return the versions that can be closed, and forget their costs.

        A version that was pinned again stays; that happens when a run that lost its thread is queued again.
        """
        unneeded, self.unneeded = self.unneeded, []
        versions = [each for at, each in enumerate(unneeded) if not each.pins and each not in unneeded[:at]]
        for version in versions:
            self._scheduler.forget(version.name)
            self._costs.remove_model(version.name)
        self._closing = [each for each in (*self._closing, *versions) if not each.gone.is_set()]
        return versions

    def forget(self, running: Iterable[Version]) -> None:
        """In a forked child, mark the versions that other threads were running or closing, to be left as they are.

        Args:
            running: versions with runs in flight.
        """
        unclosed = [each for each in self._closing if not each.gone.is_set()]
        for version in (*running, *unclosed):
            version.is_left = True
        self.unneeded += unclosed

    def _tell(self, version: Version, change: ModelChange, now: int) -> None:
        if self._bus.wanted:
            self._bus.note("model_changed", version.name, change, now)
