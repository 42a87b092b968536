"""Defines the base class of executors for vendor libraries with a program per bucket, of which one runs at a time."""

import abc
import threading
from typing import Generic, TypeVar

from runtime_lite.format.manifest import Artifact, Engine, Graph, bucket_name
from runtime_lite.format.reader import Bundle

Program = TypeVar("Program")


class ProgramExecutor(abc.ABC, Generic[Program]):
    """A graph whose engines are run by a vendor's library, which runs one at a time.

    Args:
        bundle: an open bundle.
        name: name of a graph in it that has engines.
        threads: threads of what the library leaves to the host.
    """

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Open no program yet."""
        self._bundle = bundle
        self._graph: Graph = bundle.manifest.graphs[name]
        assert self._graph.engine is not None
        self._engine: Engine = self._graph.engine
        self._where = f"{bundle.path}: graph {name!r}"
        self._threads = threads
        self._artifacts = {bucket_name(artifact.sizes): artifact for artifact in self._graph.artifacts}
        self._programs: dict[str, Program] = {}
        self._lock = threading.Lock()

    @abc.abstractmethod
    def _open(self, artifact: Artifact) -> Program:
        """Open the program of a bucket.

        Raises:
            BundleRefused: it is none, or not what the manifest says.
        """

    def _program(self, bucket: str) -> Program:
        """Return the program of a bucket, opened at its first use; the lock is held."""
        if bucket not in self._programs:
            self._programs[bucket] = self._open(self._artifacts[bucket])
        return self._programs[bucket]

    def close(self) -> None:
        """Drop all programs."""
        with self._lock:
            self._programs.clear()
