"""Looks up stage results in the cache, and stores new ones with the state of all that the recipe's code has read.

A result is found again only if nothing of that has changed. It is not kept at all if somebody's code may have read
something that nobody saw: then the stage runs in every build, and what follows it is keyed by what it made.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from compiler.base.cache.imported_sources import imported_by
from compiler.base.cache.read_tracer import READ_TRACER
from compiler.base.cache.store import StageCache
from compiler.base.pieces import Content

Code = Mapping[str, bool]
"""References to callables that a stage runs, and whether the recipe names the files that they read."""

ANEW = "made again in the next build"


class StageResults:
    """Results of the stages of one recipe.

    Args:
        cache: results of earlier builds, or None.
        folder: the recipe's.
    """

    def __init__(self, cache: StageCache | None, folder: Path) -> None:
        self.cache, self.folder = cache, folder

    def find(self, key: str) -> Path | None:
        """Return the folder of a result whose dependencies are unchanged, or None."""
        return None if self.cache is None else self.cache.get_with_dependencies(key)

    def keep(
        self,
        key: str,
        files: Mapping[str, Content | Path],
        code: Code,
        known: Callable[[str], bool] = lambda path: False,
    ) -> str:
        """Keep a result, if all its dependencies were tracked.

        Args:
            key: key of the stage.
            files: as in `StageCache.put`.
            code: the callables that the stage has run.
            known: paths whose content is in the key already.

        Returns:
            Why it is computed again in the next build, as a part of a sentence; empty where it is kept.

        Raises:
            OSError: as in `StageCache.put`.
        """
        if self.cache is None:
            return ""
        if not code:
            self.cache.put_with_dependencies(key, files, {})
            return ""
        if not self.cache.knows_code:
            return f"{ANEW}, as it is not known what the calling program has done to the code"
        heard, deaf = READ_TRACER.imports, READ_TRACER.listeners.deaf
        imported = [(imported_by([reference], self.folder, heard, deaf), named) for reference, named in code.items()]
        unseen = [*READ_TRACER.unseen(), *(name for sources, named in imported if not named for name in sources.unseen)]
        if unseen:
            who = ", ".join(dict.fromkeys(unseen))
            return f"{ANEW}, as it is not known whether {who} will give the same"
        reads = READ_TRACER.reads(known)
        if reads is None or max(sources.newest_s for sources, _ in imported) > READ_TRACER.began_s:
            return f"{ANEW}, as files changed while they were read"
        for sources, _ in imported:
            reads |= sources.reads
        self.cache.put_with_dependencies(key, files, reads)
        return ""
