"""Makes the next items in a thread of its own while the caller works on those before.

The original runs beside what ships so: both compute outside Python's lock, and two cores are used. The maker works on
one item after the other and always in the same thread.
"""

import collections
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

DEPTH = 4
"""Items made ahead; they wait in memory."""

_END: Final = object()


def ahead(items: Iterable[T], depth: int = DEPTH) -> Iterator[T]:
    """The items in order.

    Args:
        items: made in another thread, at most `depth` of them ahead of the caller.
        depth: at least 1.

    Raises:
        BaseException: what making an item raises comes where the item would have come.
    """
    iterator: Iterator[T | object] = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as maker:
        waiting = collections.deque(maker.submit(next, iterator, _END) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(maker.submit(next, iterator, _END))
                yield item  # type: ignore[misc]  # everything but the end is an item
        finally:
            for made in waiting:
                made.cancel()
