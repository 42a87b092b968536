"""Computes a digest of everything that the replay of a step depends on, so that equal replays run only once.

Random values come from fixed seeds, so a replay with an equal digest ends as the first one did, also for another
certificate: several passes in a row prove again the steps that most of them leave unchanged.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compiler.checker.graph import Graph, Part


def digest_of_run(told: Sequence[Any], parts: Mapping[str, tuple[Graph, Part]]) -> bytes:
    """Return a digest of everything that a run depends on.

    Args:
        told: plain data of the step, lengths and draws.
        parts: parts to run, each with the graph whose inputs it reads, by purpose.
    """
    hasher = hashlib.sha256()
    for content in _contents(told, parts):
        hasher.update(len(content).to_bytes(8, "little"))
        hasher.update(content)
    return hasher.digest()


def _contents(told: Sequence[Any], parts: Mapping[str, tuple[Graph, Part]]) -> Iterator[bytes]:
    yield json.dumps([told, list(parts)], sort_keys=True, default=str).encode()
    for graph, part in parts.values():
        inputs = [graph.inputs[name] for name in part.sources if name in graph.inputs]
        yield part.content
        yield str(len(inputs)).encode()
        yield from (each.SerializeToString(deterministic=True) for each in inputs)
