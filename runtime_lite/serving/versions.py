"""Holds the loaded bundles of a server: their costs, and when the last user of a version has released it.

Used under the server's lock; what is to be closed is closed outside of it, by `Server`.
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
        scheduler: forgets what is closed.
        costs: its cost table.
        bus: hears of what is loaded, swapped and unloaded.

    Attributes:
        unneeded: versions that are retired and were let go of by the last who had them pinned: they may be closed,
            unless somebody needs them again before they are `leaving`.
    """

    def __init__(self, scheduler: Rule, costs: CostTable, bus: EventBus) -> None:
        """Start without any."""
        self._scheduler, self._costs, self._bus = scheduler, costs, bus
        self.unneeded: list[Version] = []
        self._closing: list[Version] = []

    def add(self, version: Version, threads: int, measured: Mapping[tuple[str, str], int], now: int) -> None:
        """Take in a version, as `Server.add` says."""
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
        """Let nobody new need a version."""
        if not version.retired:
            version.retired = True
            self._tell(version, change, now)
            if not version.pins:
                self.unneeded.append(version)

    def leaving(self) -> list[Version]:
        """Forget the versions that nobody needs any more, and return them to be closed.

        One that is needed again by now stays, as when a run that lost its thread is queued anew.
        """
        unneeded, self.unneeded = self.unneeded, []
        versions = [each for at, each in enumerate(unneeded) if not each.pins and each not in unneeded[:at]]
        for version in versions:
            self._scheduler.forget(version.name)
            self._costs.remove_model(version.name)
        self._closing = [each for each in (*self._closing, *versions) if not each.gone.is_set()]
        return versions

    def forget(self, running: Iterable[Version]) -> None:
        """In a fork of the process, leave what other threads were running or closing as it was.

        Args:
            running: those in which runs were in flight.
        """
        unclosed = [each for each in self._closing if not each.gone.is_set()]
        for version in (*running, *unclosed):
            version.is_left = True
        self.unneeded += unclosed

    def _tell(self, version: Version, change: ModelChange, now: int) -> None:
        if self._bus.wanted:
            self._bus.note("model_changed", version.name, change, now)
