"""Which files of tests stand near to changed files, by imports: the twin, then who imports it directly, and so on.

The distance of a test is the length of the shortest chain of imports from it to what changed: 0 for a test that changed
itself, 1 for one that imports what changed. The twin of a module, which may reach it by a name only, has distance 1. A
file that is no module, a page or a recipe, is at distance 1 of the tests and modules that name it.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path

from tests.house.rules import imports, module_name, python_files, twin_of


def nearest_tests(root: Path, changed: Iterable[Path]) -> dict[Path, int]:
    """Files of tests that changed files reach, each with its distance, nearest first.

    Args:
        root: of the source tree.
        changed: files, relative to it; those that are gone count for what still names them.
    """
    sources, changed = python_files(root), list(changed)
    by_module = {module_name(path): path for path in sources}
    importers: dict[Path, set[Path]] = defaultdict(set)
    for path in sources:
        for found in imports(root, path, by_module):
            if found.module in by_module:
                importers[by_module[found.module]].add(path)
    there = set(sources)
    distances = dict.fromkeys((path for path in changed if path in there), 0)
    if named := [path for path in changed if path.suffix != ".py"]:
        distances = dict.fromkeys((path for path in sources if _names_any(root / path, named)), 1) | distances
    for path in list(distances):
        if (twin := twin_of(path)) in there:
            distances.setdefault(twin, 1)
    queue = deque(sorted(distances, key=distances.__getitem__))
    while queue:
        path = queue.popleft()
        for importer in importers[path]:
            if importer not in distances:
                distances[importer] = distances[path] + 1
                queue.append(importer)
    tests = [path for path in distances if path.parts[0] == "tests" and path.name.startswith("test_")]
    return {path: distances[path] for path in sorted(tests, key=lambda path: (distances[path], path))}


def _names_any(file: Path, named: Iterable[Path]) -> bool:
    """Whether a source file holds the name of one of some files."""
    text = file.read_text(encoding="utf-8")
    return any(path.name in text for path in named)
