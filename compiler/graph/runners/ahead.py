"""Computes a sequence of items on other threads: ahead of the caller on one thread, or on all cores.

The original and the shipped graph run at once, and so do several probes: all compute outside Python's lock. Results
come in order and do not depend on the number of cores.
"""

import collections
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")

DEPTH = 4
"""Items made ahead; they wait in memory."""

_END: Final = object()


def ahead(items: Iterable[T], depth: int = DEPTH) -> Iterator[T]:
    """Yield items in order, all computed ahead by one other thread.

    Args:
        items: computed in another thread, at most `depth` ahead of the caller.
        depth: at least 1.

    Raises:
        BaseException: an item's error is raised in place of the item.
    """
    iterator: Iterator[T | object] = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as maker:
        waiting = collections.deque(maker.submit(next, iterator, _END) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(maker.submit(next, iterator, _END))
                yield item  # type: ignore[misc]  # everything but the end is an item
        finally:
            for future in waiting:
                future.cancel()


def on_all_cores(job: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield a job's results in the order of the items, computed on all cores.

    Args:
        job: the job, without state of its own; as many run at once as there are cores.
        items: taken a few ahead of the caller.

    Raises:
        BaseException: a job's error is raised in place of its result.
    """
    workers = max(len(os.sched_getaffinity(0)), 1)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="cores") as pool:
        waiting: collections.deque[Future[T]] = collections.deque()
        try:
            for item in items:
                waiting.append(pool.submit(job, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
