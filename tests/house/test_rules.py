"""Each rule of the house sees a planted violation, and nothing in a house that keeps it."""
# ruff: noqa: E501  (one planted violation per row)

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house import rules

ROOT = Path(__file__).resolve().parents[2]

PASS = '''"""Pad one axis.

Before:
    y = Softmax(x)
After:
    y = Softmax(z)

Requires: a static axis.
Ensures: nothing more.
Keeps: subgraphs.
Numerics: exact.
Source: ONNX operator specification.
"""

from typing import ClassVar

from compiler.graph import model


class PadAxes:
    name: ClassVar[str] = "pad_axes"
    axis = model.AXIS
'''

HOUSE = {
    "build.py": "from compiler.errors import Oops\n\n\ndef main():\n    from compiler.passes import PASSES\n    return PASSES, Oops\n\n\nmain()\n",
    "compiler/__init__.py": "",
    "compiler/errors.py": "class Oops(Exception):\n    pass\n",
    "compiler/graph/model.py": "AXIS = 1\n",
    "compiler/build/capture/torch_module.py": "import torch\n\n\ndef capture():\n    return torch\n\n\nCAPTURED = capture\nprint(CAPTURED)\n",
    "compiler/passes/__init__.py": "from compiler.passes.pad_axes import PadAxes\n\nPASSES = [\n    PadAxes,\n]\n",
    "compiler/passes/pad_axes.py": PASS,
    "compiler/targets/__init__.py": "from compiler.targets.acme.target import Acme\n\nTARGETS = (Acme,)\nprint(TARGETS)\n",
    "compiler/targets/acme/target.py": "class Acme:\n    pass\n",
    "runtime_lite/executors/acme.py": "ACME = 1\nprint(ACME)\n",
    "runtime_lite/model.py": "import numpy\n\n\ndef run():\n    import tensorrt\n    return numpy, tensorrt\n\n\nprint(run)\n",
    "examples/asr/model.py": "from torch import nn\n\n\nclass Conformer(nn.Module):\n    pass\n\n\nclass Config:\n    pass\n",
    "tests/compiler/build/capture/test_torch_module.py": "",
    "tests/runtime_lite/test_model.py": "",
    "tests/test_lonely.py": "from compiler.proof.facts.a import lonely\n\nlonely()\n",
}

TREE_RULES = [
    rules.forbidden_file_names,
    rules.missing_twins,
    rules.wrong_directions,
    rules.import_cycles,
    rules.unwanted_libraries,
    rules.named_vendors,
    rules.late_imports,
    rules.wrong_passes,
    rules.mentioned_examples,
    rules.kinds_by_words,
    rules.private_names,
    rules.operator_lists,
    rules.spelled_by_hand,
    rules.unused_names,
]


def write_house(root: Path, **changed: str) -> Path:
    for name, text in {**HOUSE, **changed}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("rule", TREE_RULES)
def test_good_house_has_no_violation(rule: Callable[[Path], list[str]], tmp_path: Path) -> None:
    assert rule(write_house(tmp_path)) == []


OPERATORS = [
    ("compiler/b.py", 'MOVES = frozenset({"Reshape", "Slice", "Squeeze"})\n', "compiler/b.py:1: lists 3 operators; ask"),
    ("compiler/b.py", 'def f(op):\n    return op in ("Add", "Sub", "Mul")\n', "compiler/b.py:2: lists 3 operators; ask"),
    ("compiler/b.py", 'T = dict.fromkeys(["Add", "Sub", "Mul", "Div"], 1)\n"""Rules."""\n', "lists 4 operators; ask"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "expected"), OPERATORS)
def test_lists_of_operators_are_traits(path: str, text: str, expected: str, tmp_path: Path) -> None:
    (violation,) = rules.operator_lists(write_house(tmp_path, **{path: text}))
    assert expected in violation


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("compiler/graph/operators/traits.py", 'MOVES = frozenset({"Reshape", "Slice", "Squeeze"})\n'),
        ("compiler/checker/replay.py", 'MOVES = ("Reshape", "Slice", "Squeeze")\n'),
        ("compiler/proof/rules/movement.py", 'MOVES = ("Reshape", "Slice", "Squeeze")\n'),
        ("compiler/b.py", 'PAIR = ("Max", "Min")\nSIZES = ("Min", "Max", "Mod", "floor")\n'),
        ("compiler/b.py", 'NEAR = ("Add", "Sub", "Mul")\n"""A list of its own: what is near."""\n'),
        ("compiler/b.py", 'RULES = {"Add": 1, "Sub": 2, "Mul": 3}\n'),
    ],
)
def test_other_lists_stay(path: str, text: str, tmp_path: Path) -> None:
    assert rules.operator_lists(write_house(tmp_path, **{path: text})) == []


BY_HAND = [
    'axis = int_attribute(node, "axis", 0)\n',
    'perm = node.attributes["perm"].as_ints()\n',
    'keeps = node.attributes.get("keepdims")\n',
    'has_axes = "axes" in node.attributes\n',
    'if is_op(node, "Unsqueeze"):\n    axes = integers_of(node.inputs[1])\n',
    'is_first = house.is_op(node, "Squeeze", "Unsqueeze") and house.integers_of(node.inputs[1]) == (0,)\n',
    'if is_op(node, "Tile"):\n    counts = integers_of(node.inputs[1])\n',
    'is_one = is_op(node, "Expand") and symbolic_values_of(node.inputs[1]) == (1,)\n',
    'count = int_attribute(node, "num_outputs", 2)\n',
]


@pytest.mark.parametrize("text", BY_HAND)
def test_axes_are_read_by_views_alone(text: str, tmp_path: Path) -> None:
    (violation,) = rules.spelled_by_hand(write_house(tmp_path, **{"compiler/b.py": text}))
    assert "reads the axes of a node itself; ask compiler/graph/operators" in violation
    assert (
        rules.spelled_by_hand(write_house(tmp_path, **{"compiler/b.py": "", "compiler/graph/operators/c.py": text}))
        == []
    )


def test_attributes_that_are_written_and_other_operands_stay(tmp_path: Path) -> None:
    text = 'node.attributes["axis"] = 1\nif is_op(node, "Gather"):\n    places = integers_of(node.inputs[1])\n'
    assert rules.spelled_by_hand(write_house(tmp_path, **{"compiler/b.py": text})) == []


def test_the_list_of_files_that_read_axes_themselves_gets_shorter(tmp_path: Path) -> None:
    file = min(rules.STILL_READING)
    assert rules.spelled_by_hand(write_house(tmp_path, **{file: BY_HAND[0]})) == []
    (violation,) = rules.spelled_by_hand(write_house(tmp_path, **{file: "x = 1\n"}))
    assert violation == f"{file}: reads no axes itself any more; take it out of STILL_READING"


PRIVATE = [
    ("from library import _parts\n", "_parts"),
    ("from library._parts import part\n", "_parts"),
    ("import library._parts\n", "_parts"),
    ("import library\n\nlibrary._TABLE.clear()\n", "_TABLE"),
    ("def f(value):\n    return value.child()._content\n", "_content"),
    ('def f(value):\n    setattr(value, "_content", 1)\n', "_content"),
    ('def f(value):\n    return getattr(value, "_content", None)\n', "_content"),
]


@pytest.mark.parametrize(("text", "name"), PRIVATE)
def test_private_names_of_libraries_are_not_read(text: str, name: str, tmp_path: Path) -> None:
    (violation,) = rules.private_names(write_house(tmp_path, **{"compiler/b.py": text}))
    assert f": reads {name}, a private name of a library; use its public names" in violation


@pytest.mark.parametrize(
    "text",
    [
        "import sys\n\nprint(sys._getframe())\n",
        "from argparse import _SubParsersAction\n",
        "from compiler.graph import _parts\n",
        "def f(pair):\n    return pair._replace(x=1), pair.__dict__\n",
        "class A:\n    def __init__(self, other):\n        self._content = other._content\n",
    ],
)
def test_private_names_of_our_own_and_of_python_stay(text: str, tmp_path: Path) -> None:
    assert rules.private_names(write_house(tmp_path, **{"compiler/b.py": text})) == []


def test_the_list_of_private_names_that_are_read_gets_shorter(tmp_path: Path) -> None:
    file, name = max(rules.STILL_PRIVATE)
    assert rules.private_names(write_house(tmp_path, **{file: f"x.{name}()\n"})) == []
    (violation,) = rules.private_names(write_house(tmp_path, **{file: "x = 1\n"}))
    assert violation == f"{file}: reads {name} no more; take it out of STILL_PRIVATE"


PLANTED = [
    (rules.kinds_by_words, "runtime_lite/a.py", 'def f(cache):\n    return cache.update == "append"\n', "runtime_lite/a.py:2: compares the words that name a kind of state; ask the kind"),
    (rules.kinds_by_words, "compiler/a.py", 'def f(cache):\n    return (cache.side, cache.update) in (("right", "replace"),)\n', "compiler/a.py:2: compares the words"),
    (rules.forbidden_file_names, "compiler/string_utils.py", "", "compiler/string_utils.py: is named after nothing"),
    (rules.forbidden_file_names, "tests/kit/helpers.py", "", "tests/kit/helpers.py: is named after nothing"),
    (rules.missing_twins, "compiler/build/verify/differences.py", "def f():\n    return 1\n", "compiler/build/verify/differences.py: has no test; write tests/compiler/build/verify/test_differences.py"),
    (rules.missing_twins, "runtime_lite/__main__.py", "class A:\n    def f(self):\n        return 1\n", "write tests/runtime_lite/test_command_line.py"),
    (rules.wrong_directions, "runtime_lite/a.py", "from compiler.graph import model\n", "runtime_lite/a.py:1: imports compiler.graph.model; allowed: runtime_lite"),
    (rules.wrong_directions, "compiler/build/pipeline.py", "import build\n", "compiler/build/pipeline.py:1: imports build; "),
    (rules.wrong_directions, "compiler/build/pipeline.py", "import examples.asr.model\n", "imports examples.asr.model; "),
    (rules.wrong_directions, "compiler/build/pipeline.py", "def f():\n    import tests.kit\n", "compiler/build/pipeline.py:2: imports tests.kit; "),
    (rules.wrong_directions, "compiler/passes/pad_axes.py", "from compiler.build.capture import torch_module\n", "imports compiler.build.capture.torch_module; "),
    (rules.wrong_directions, "compiler/checker/a.py", "from compiler.graph.model import AXIS\n", "imports compiler.graph.model; allowed: compiler.checker"),
    (rules.wrong_directions, "compiler/build/bundle/a.py", "from compiler.build.capture import torch_module\n", "imports compiler.build.capture.torch_module; "),
    (rules.wrong_directions, "runtime_lite/format/a.py", "from runtime_lite import model\n", "imports runtime_lite.model; "),
    (rules.wrong_directions, "compiler/a.py", "import compiler.graph.model\n", "compiler/a.py: stands in no row of MAY_IMPORT"),
    (rules.unwanted_libraries, "compiler/checker/a.py", "import onnx_ir\n", "compiler/checker/a.py:1: imports onnx_ir; the checker"),
    (rules.wrong_directions, "compiler/proof/facts/a.py", "from compiler.passes import PASSES\n", "imports compiler.passes; "),
    (rules.wrong_directions, "compiler/targets/a.py", "from compiler.recipe.record import Recipe\n", "imports compiler.recipe.record; "),
    (rules.wrong_directions, "compiler/base/records/a.py", "from compiler.base.cache import store\n", "imports compiler.base.cache; "),
    (rules.wrong_directions, "compiler/base/unnamed/a.py", "from compiler.base.cache import store\n", "compiler/base/unnamed/a.py: stands in no row of MAY_IMPORT"),
    (rules.wrong_directions, "compiler/errors.py", "from compiler.graph import model\n", "imports compiler.graph.model; "),
    (rules.wrong_directions, "examples/asr/run.py", "import compiler\n", "examples/asr/run.py:1: imports compiler; "),
    (rules.import_cycles, "compiler/graph/model.py", "import compiler.passes.pad_axes\nAXIS = 1\n", "compiler.passes.pad_axes -> compiler.graph.model -> compiler.passes.pad_axes"),
    (rules.unwanted_libraries, "compiler/targets/a.py", "import tensorrt\n", "compiler/targets/a.py:1: imports tensorrt early"),
    (rules.unwanted_libraries, "runtime_lite/a.py", "def f():\n    import onnx.helper\n", "runtime_lite/a.py:2: imports onnx; "),
    (rules.unwanted_libraries, "compiler/a.py", "from torch import nn\n", "compiler/a.py:1: imports torch; only compiler/build/capture/exported_graph.py, "),
    (rules.named_vendors, "compiler/build/bundle/a.py", "# as Acme wants it\n", "compiler/build/bundle/a.py:1: names acme; ask the target"),
    (rules.named_vendors, "compiler/targets/base.py", "MAKERS = {'x': 'acme'}\n", "compiler/targets/base.py:1: names acme; "),
    (rules.named_vendors, "compiler/targets/other/target.py", "from compiler.targets.acme import target\n", "names acme; "),
    (rules.named_vendors, "runtime_lite/format/a.py", "def is_acme(): ...\n", "runtime_lite/format/a.py:1: names acme; "),
    (rules.late_imports, "compiler/a.py", "def f():\n    from compiler.graph import model\n", "compiler/a.py:2: imports compiler.graph.model late"),
    (rules.wrong_passes, "compiler/passes/axis_padder.py", PASS.replace("PadAxes", "AxisPadder").replace('"pad_axes"', '"axis_padder"'), "compiler/passes/axis_padder.py: does not begin with a verb"),
    (rules.wrong_passes, "compiler/passes/pad_axes.py", PASS.replace("Keeps:", "Leaves:"), "its docstring lacks Keeps; write"),
    (rules.wrong_passes, "compiler/passes/pad_axes.py", PASS.replace("class PadAxes", "class Padder"), "holds Padder; name the pass PadAxes"),
    (rules.wrong_passes, "compiler/passes/pad_axes.py", PASS.replace('"pad_axes"', '"pad"'), 'PadAxes.name is not "pad_axes"'),
    (rules.wrong_passes, "compiler/passes/pad_rows.py", PASS.replace("PadAxes", "PadRows").replace("pad_axes", "pad_rows"), "is in no registry"),
    (rules.mentioned_examples, "compiler/a.py", "# as in a Conformer\n", "compiler/a.py:1: mentions Conformer, a class of an example"),
    (rules.mentioned_examples, "runtime_lite/a.py", "def f(x: Config): ...\n", "runtime_lite/a.py:1: mentions Config, a class of an example"),
    (rules.unused_names, "compiler/a.py", "def lonely():\n    pass\n", "compiler/a.py: nobody uses lonely; delete it"),
    (rules.unused_names, "compiler/a.py", "class Oops:\n    def alone(self): ...\n", "compiler/a.py: nobody uses alone; delete it"),
    (rules.unused_names, "compiler/a.py", "LIMIT: int = 3\n", "compiler/a.py: nobody uses LIMIT; delete it"),
]  # fmt: skip


def test_rows_of_imports_lead_down() -> None:
    assert rules.upward_wings() == []
    planted = (rules.Wing("a", ("b",)), rules.Wing("b", ("b",)), rules.Wing("c", ("a", "b")))
    assert [each.partition(",")[0] for each in rules.upward_wings(planted)] == ["a: may import b", "b: may import b"]


def test_rooms_of_a_wing_import_those_in_front_of_them_and_wings_below() -> None:
    base, graph = rules.Wing("base", (), (), ("words", "errors")), rules.Wing("graph", ("base",), ("runtime_lite.a",))
    assert list(rules.wing_rows((base, graph))) == [
        ("compiler.base.words", ("compiler.base.words",)),
        ("compiler.errors", ("compiler.base.words", "compiler.errors")),
        ("compiler.graph", ("compiler.graph", "compiler.base", "compiler.errors", "runtime_lite.a")),
    ]


def test_every_folder_of_the_compiler_is_a_wing() -> None:
    folders = {path.parts[1] for path in rules.python_files(ROOT, "compiler") if len(path.parts) > 2}
    assert folders == {wing.name for wing in rules.WINGS}
    assert {path.stem for path in (ROOT / "compiler").glob("*.py")} == {"__init__", *rules.PUBLIC}


@pytest.mark.parametrize(("rule", "path", "text", "message"), PLANTED)
def test_planted_violation_is_seen(
    rule: Callable[[Path], list[str]], path: str, text: str, message: str, tmp_path: Path
) -> None:
    violations = rule(write_house(tmp_path, **{path: text}))
    assert len({violation.split(":")[0] for violation in violations}) == 1, violations
    assert message in violations[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("see /home/anna/data", "a path of one machine"),
        ("path = '/work/main'", "a path of one machine"),
        ("--index-url https://pypi.org/simple", "the host of a package registry"),
        ("from https://huggingface.co/x", "the host of a registry of models"),
        ("closes issue #12", "a number of our tracker"),
        ("left for a later part of this session", "how it was written"),
        ("written by an assistant", "how it was written"),
    ],
)
def test_text_that_is_not_about_the_product_is_seen(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"fine\n{text}\n")
    violations = rules.unwanted_text(tmp_path, [Path("a.md")])
    assert len(violations) == 1, violations
    assert violations[0].startswith(f"a.md:2: holds {message}")


@pytest.mark.parametrize(
    "text", ["the session of ONNX Runtime", "examples/work/x", "https://a.org/home/x", "an open issue"]
)
def test_ordinary_text_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(text)
    assert rules.unwanted_text(tmp_path, [Path("a.md"), Path("absent.md"), Path("b.flac")]) == []
