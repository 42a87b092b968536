"""The repository keeps the rules of the house."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.build.lowering.listed_passes import check_passes
from compiler.recipe.load import load_recipe
from tests.house import rules

ROOT = Path(__file__).resolve().parents[2]

MAX_SHIPPED_BYTES = 40_000_000
"""Checkpoints and data together; a clone stays quick."""

DATA_SUFFIXES = frozenset({".safetensors", ".flac", ".ogg", ".opus", ".wav", ".npz", ".onnx", ".bin", ".tar"})


@pytest.mark.parametrize(
    "rule",
    [
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
    ],
)
def test_rule_holds(rule: Callable[[Path], list[str]]) -> None:
    violations = rule(ROOT)
    assert violations == [], "\n".join(violations)


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("needs a checkout: what is shipped is what git tracks")
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_text_speaks_of_the_product_only() -> None:
    violations = rules.unwanted_text(ROOT, tracked_files())
    assert violations == [], "\n".join(violations)


def test_checkpoints_and_data_stay_small() -> None:
    sizes = {path: (ROOT / path).stat().st_size for path in tracked_files() if path.suffix in DATA_SUFFIXES}
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    assert sum(sizes.values()) < MAX_SHIPPED_BYTES, f"{sum(sizes.values())} bytes; the largest: {largest}"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_recipe_loads(path: Path) -> None:
    check_passes(load_recipe(str(path)))


def test_long_tests_that_ci_runs_are_there() -> None:
    named = re.findall(r"tests/\S+\.py", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


IMPORT_ALL = """
import importlib, importlib.abc, sys
blocked, modules = set(sys.argv[1].split(",")), sys.argv[2:]
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
for module in modules:
    importlib.import_module(module)
"""


@pytest.mark.parametrize(
    ("folder", "blocked"),
    [("compiler", rules.VENDOR), ("runtime_lite", rules.VENDOR | rules.NOT_IN_RUNTIME)],
)
def test_modules_import_without_libraries_that_only_some_machines_have(folder: str, blocked: frozenset[str]) -> None:
    modules = [rules.module_name(path) for path in rules.python_files(ROOT, folder)]
    command = [sys.executable, "-W", "error", "-c", IMPORT_ALL, ",".join(sorted(blocked)), *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
