"""The figures of the house, counted on a small tree, and one push of a stream."""

import re
from pathlib import Path

from tests.house import figures
from tests.house.rules import STILL_READING

MOST_FILES_OF_A_PUSH = 19
"""Files that one push runs through: each for a notion of its own. One more needs a reason."""

READING = """from compiler.graph import model


def f(node):
    return int_attribute(node, 'axis', 0), node.inputs[2]
"""

WRITING = """from compiler.targets import c

frames_axis = c


def g(node, state):
    '''Two words.'''
    return node.inputs[0], state.side == "left"
"""

TREE = {
    "compiler/graph/model.py": "def first(node):\n    return node.inputs[1]\n",
    "compiler/passes/a.py": READING,
    "compiler/passes/b.py": WRITING,
    "compiler/targets/c.py": "",
    "tests/compiler/passes/test_a.py": "",
    "build.py": "",
}


def test_every_figure(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = figures.figures(tmp_path)
    files, changes = map(int, re.findall(r"\d+", found.pop("files of one push of a stream")))
    assert 10 < files <= MOST_FILES_OF_A_PUSH and files < changes
    assert found == {
        "files that read axes of nodes themselves": str(len(STILL_READING)),
        "files that read attributes, or operands behind the first": "1 in 2 places",
        "files that know where the frames of a cache lie": "1",
        "comparisons of words that name a kind of state": "1",
        "imports between top folders": "2",
        "wings of the compiler": "3, 2 imports between two of them, 0 that lead back to themselves",
        "lines of functions": "3 functions, median 2, p90 4, max 3",
        "modules with a test of their own": "1 of 4",
    }


def test_wings_that_lead_back_to_themselves_are_counted(tmp_path: Path) -> None:
    for name, target in {"a": "b", "b": "c", "c": "a", "d": "a", "errors": "base"}.items():
        (tmp_path / "compiler" / name).mkdir(parents=True)
        (tmp_path / "compiler" / name / "one.py").write_text(f"import compiler.{target}\n", encoding="utf-8")
    (tmp_path / "build.py").write_text("")
    assert figures.wings(tmp_path) == (5, 4, 3)


def test_files_that_hold_a_name_are_named(tmp_path: Path) -> None:
    (tmp_path / "compiler").mkdir()
    (tmp_path / "build.py").write_text("")
    (tmp_path / "compiler" / "a.py").write_text("frames_axis_of = 1\n", encoding="utf-8")
    assert figures.files_with(tmp_path, "frames_axis") == []
