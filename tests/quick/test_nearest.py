"""nearest: tests stand in the order of the shortest chain of imports from them to what changed."""

from pathlib import Path

from tests.quick.nearest import nearest_tests

TREE = {
    "compiler/sizes.py": "",
    "compiler/padding.py": "from compiler import sizes\n",
    "compiler/far.py": "def late():\n    import compiler.padding\n",
    "tests/compiler/test_sizes.py": "import compiler.sizes\n",
    "tests/compiler/test_padding.py": "from compiler.padding import pad\n",
    "tests/compiler/test_far.py": "from compiler import far\n",
    "tests/compiler/test_apart.py": "import compiler.apart\n",
    "tests/kit.py": "PAGE = 'page.md'\nimport compiler.sizes\n",
    "tests/test_pages.py": "import tests.kit\n",
    "build.py": "",
}


def tree(root: Path) -> Path:
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def nearest(root: Path, *changed: str) -> dict[str, int]:
    return {path.stem: distance for path, distance in nearest_tests(tree(root), map(Path, changed)).items()}


def test_tests_come_by_their_distance(tmp_path: Path) -> None:
    assert nearest(tmp_path, "compiler/sizes.py") == {
        "test_sizes": 1,
        "test_padding": 2,
        "test_pages": 2,
        "test_far": 3,
    }


def test_a_test_that_changed_is_the_nearest(tmp_path: Path) -> None:
    found = nearest(tmp_path, "compiler/far.py", "tests/compiler/test_apart.py")
    assert list(found.items()) == [("test_apart", 0), ("test_far", 1)]


def test_a_page_reaches_what_names_it(tmp_path: Path) -> None:
    assert nearest(tmp_path, "docs/page.md") == {"test_pages": 2}


def test_a_file_that_is_gone_reaches_nothing(tmp_path: Path) -> None:
    assert nearest(tmp_path, "compiler/gone.py") == {}


def test_the_twin_of_a_module_that_it_reaches_by_name_is_near(tmp_path: Path) -> None:
    (tree(tmp_path) / "tests/compiler/test_far.py").write_text("import importlib\n")
    found = {path.stem: distance for path, distance in nearest_tests(tmp_path, [Path("compiler/far.py")]).items()}
    assert found == {"test_far": 1}


def test_the_command_line_of_a_package_has_a_twin_of_that_name(tmp_path: Path) -> None:
    for name in ("runtime_lite/__main__.py", "tests/runtime_lite/test_command_line.py"):
        (tree(tmp_path) / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(nearest_tests(tmp_path, [Path("runtime_lite/__main__.py")])) == [Path(name)]
