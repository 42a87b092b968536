"""Prints how far knowledge is spread over the code: `python -m tests.house.figures`."""

import ast
import contextlib
import functools
import itertools
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

from runtime_lite import Runtime
from tests.house import rules
from tests.runtime_lite.bundles import random_chunks, write_streaming_bundle

ROOT = Path(__file__).resolve().parents[2]

CODE = ("compiler", "runtime_lite")

RUNTIME = str(ROOT / "runtime_lite") + "/"

DECODERS = ("compiler/graph/operators", "compiler/graph/model.py", "compiler/checker")
"""Where operands and attributes are read for all others, and the checker, which shares nothing with them."""

WARM = 3
"""Pushes in front of the one that is followed: the first of a stream sets it up."""


def figures(root: Path) -> dict[str, str]:
    """Every figure of the code below `root`, by what it counts; a push is one of the code that runs."""
    files, changes = files_of_a_push()
    return {
        "files that read axes of nodes themselves": str(len(rules.STILL_READING)),
        "files that read attributes, or operands behind the first": "{} in {} places".format(*decoders(root)),
        "files that know where the frames of a cache lie": str(len(files_with(root, "frames_axis"))),
        "comparisons of words that name a kind of state": str(len(rules.kinds_by_words(root))),
        "files of one push of a stream": f"{files}, {changes} changes of file",
        "imports between top folders": str(len(edges(root))),
        "wings of the compiler": "{}, {} imports between two of them, {} that lead back to themselves".format(
            *wings(root)
        ),
        "lines of functions": "{} functions, median {:.0f}, p90 {:.0f}, max {}".format(*lines_of_functions(root)),
        "modules with a test of their own": "{} of {}".format(*twins(root)),
    }


def decoders(root: Path) -> tuple[int, int]:
    """How many files outside DECODERS read operands or attributes of nodes, and in how many places."""
    counts = [
        sum(_is_decoding(node) for node in ast.walk(tree))
        for path, tree in _trees(root).items()
        if path.is_relative_to("compiler") and not any(path.is_relative_to(folder) for folder in DECODERS)
    ]
    return sum(map(bool, counts)), sum(counts)


def _is_decoding(node: ast.AST) -> bool:
    """Whether an expression reads an attribute of a node, or an operand behind its first one, by its number."""
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name in rules.ATTRIBUTE_READERS
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return False
    number = node.slice.value
    return getattr(node.value, "attr", "") == "inputs" and isinstance(number, int) and number > 0


def files_with(root: Path, name: str) -> list[Path]:
    """The files of compiler and runtime that hold an identifier."""
    word = re.compile(rf"\b{name}\b")
    return [path for path in rules.python_files(root, *CODE) if word.search((root / path).read_text(encoding="utf-8"))]


def edges(root: Path) -> set[tuple[str, str]]:
    """Pairs of top folders, such as `compiler.passes`, of which the first imports the second."""
    known = {rules.module_name(path): path for path in rules.python_files(root)}
    found = {
        (_folder(rules.module_name(path)), _folder(each.module))
        for path in rules.python_files(root, *CODE)
        for each in rules.imports(root, path, known)
        if each.module.partition(".")[0] in CODE
    }
    return {(source, target) for source, target in found if source != target}


def _folder(module: str) -> str:
    return ".".join(module.split(".")[:2])


def wings(root: Path) -> tuple[int, int, int]:
    """How many wings the compiler has, in how many pairs one imports the other, and how many lead to themselves."""
    names = {_wing(_folder(rules.module_name(path))) for path in rules.python_files(root, "compiler")} - {"compiler"}
    pairs = {(_wing(source), _wing(target)) for source, target in edges(root)}
    own = {(source, target) for source, target in pairs if source != target and {source, target} <= names}
    reached = {name: {target for source, target in own if source == name} for name in names}
    for between, source in itertools.product(sorted(names), sorted(names)):
        if between in reached[source]:
            reached[source] |= reached[between]
    return len(names), len(own), sum(name in reached[name] for name in names)


def _wing(folder: str) -> str:
    """`compiler.passes` -> `passes`; of a module that stands outside of the folder of its wing, that wing."""
    name = folder.removeprefix("compiler.")
    return rules.PUBLIC.get(name, name)


def lines_of_functions(root: Path) -> tuple[int, float, float, int]:
    """How many functions there are, and the median, the 90th percentile and the largest of their numbers of lines."""
    lines = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in _trees(root).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return len(lines), statistics.median(lines), statistics.quantiles(lines, n=10)[-1], lines[-1]


def twins(root: Path) -> tuple[int, int]:
    """How many modules have a test named after them, and how many modules there are."""
    modules = rules.python_files(root, *CODE)
    return sum((root / rules.twin_of(path)).is_file() for path in modules), len(modules)


@functools.cache
def _trees(root: Path) -> Mapping[Path, ast.Module]:
    return {path: ast.parse((root / path).read_text(encoding="utf-8")) for path in rules.python_files(root, *CODE)}


def files_of_a_push() -> tuple[int, int]:
    """How many files of the runtime one push of a stream runs through, and how often it changes from one to another."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_streaming_bundle(Path(folder) / "bundle")
        *warm, chunk = random_chunks(WARM + 1)
        with _Calls() as calls, Runtime() as runtime, runtime.load(bundle).open_stream() as stream:
            for each in warm:
                stream.push({"x": each})
            calls.by_thread.clear()
            stream.push({"x": chunk})
            called = [list(files) for files in calls.by_thread.values()]  # what closes them is no part of it
    changes = sum(one != other for files in called for one, other in itertools.pairwise(files))
    return len({file for files in called for file in files}), changes


class _Calls(contextlib.AbstractContextManager["_Calls"]):
    """The files of the runtime whose functions are called, in order, by thread; threads that start meanwhile too."""

    def __init__(self) -> None:
        self.by_thread: dict[int, list[str]] = {}

    def __enter__(self) -> Self:
        self.before = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.before[0])
        threading.setprofile(self.before[1])

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(RUNTIME):
            self.by_thread.setdefault(threading.get_ident(), []).append(file)


if __name__ == "__main__":
    for what, figure in figures(ROOT).items():
        print(f"{what}: {figure}")
