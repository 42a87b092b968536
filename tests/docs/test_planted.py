"""What is wrong in a page is seen: each case is planted into a page that has nothing else."""

from pathlib import Path

import pytest

from tests.docs import named, pages
from tests.docs.workplace import Workplace, missing_lines, why_not_run

GOOD = """\
# A page

Run `python build.py check cpu.yaml`, see [below](#the-model-s-file-yours). The file, `run.py`:

```python
print(1)
```

## The model's file: yours

```sh
python run.py  # exit code 0
```

```text
1
```
"""


def written(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text.replace("the-model-s-file", "the-models-file"), encoding="utf-8")
    return page


def test_good_page_has_no_problem(tmp_path: Path) -> None:
    page = written(tmp_path, GOOD)
    assert pages.problems(page) == []
    assert named.problems(page) == []
    assert [(block.language, block.name) for block in pages.blocks(page)] == [
        ("python", "run.py"),
        ("sh", None),
        ("text", None),
    ]


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("```\nx\n```\n", "got 'no language'"),
        ("```bash\nls\n```\n", "got 'bash'"),
        ("Nameless:\n\n```python\nprint()\n```\n", "expected the name of the file in front of it"),
        ("    python build.py --recipe cpu.yaml\n", "page.md:19: expected commands between ``` fences"),
        ("\tmake test\n", "expected commands between ``` fences"),
        ("    .venv/bin/python x.py\n", "expected commands between ``` fences"),
        ("Another, `idle.py`:\n\n```python\nprint()\n```\n", "expected idle.py in a command, a recipe or a file"),
        ("```sh\nls\n", "expected a fence at the start of its line"),
        ("- item\n\n  ```sh\n  ls\n  ```\n", "expected a fence at the start of its line"),
    ],
)
def test_block_that_no_test_would_run_is_seen(planted: str, message: str, tmp_path: Path) -> None:
    [found] = pages.problems(written(tmp_path, GOOD + "\n" + planted))
    assert message in found


def test_output_that_no_command_prints_is_seen(tmp_path: Path) -> None:
    [found] = pages.problems(written(tmp_path, "```text\n1\n```\n\n" + GOOD))
    assert "expected commands above what they print" in found


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("`make tests`", "tests is no target of make"),
        ("`python build.py --recipes x`", "--recipes: unknown to build.py"),
        ("`.venv/bin/python build.py docter`", "docter: unknown to build.py"),
        ("`python -m runtime_lite test x`", "test: unknown to python -m runtime_lite"),
        ("`python -m tests.docs.nothing`", "tests.docs.nothing is no module"),
        ("`make build RECIPE=tpu.yaml`", "tpu.yaml is no recipe"),
        ("[here](docs/x.md)", "docs/x.md is linked to and is not there"),
        ("[here](#elsewhere)", "#elsewhere is linked to, and the page has no such heading"),
    ],
)
def test_name_of_what_is_not_there_is_seen(planted: str, message: str, tmp_path: Path) -> None:
    [found] = named.problems(written(tmp_path, GOOD + "\n" + planted + "\n"))
    assert message in found


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("PYTHONPATH=~/slipway ~/slipway/.venv/bin/python ~/slipway/build.py --recipe cpu.yaml", True),
        ("(cd x && .venv/bin/python build.py check cpu.yaml)", True),
        (".venv/bin/python build.py check", False),
        (".venv/bin/python build.py --recip cpu.yaml", False),
        (".venv/bin/python -m runtime_lite run dist/x", False),
        ("make tset", False),
    ],
)
def test_command_of_a_block_is_parsed_whole(command: str, known: bool) -> None:
    assert (named.fault(named.words(command), whole=True) is None) == known


def test_commands_of_a_page_run_and_must_end_as_they_say(tmp_path: Path) -> None:
    workplace = Workplace.at(tmp_path / "place")
    file, commands, shown = pages.blocks(written(tmp_path, GOOD))
    workplace.write(file)
    printed = "".join(workplace.run(*command) for command in commands.commands)
    assert missing_lines(shown.text, printed) == []
    assert missing_lines("one\n1\n", printed) == ["one"]
    with pytest.raises(AssertionError, match="exit 3: 3"):
        workplace.run("exit 3")
    assert workplace.run("exit 3", 3) == ""


def test_output_is_compared_but_for_numbers_and_spaces() -> None:
    printed = "net: verify   5.84 s  differs by 1.7e-05\n\n total  1,024\n"
    assert missing_lines("net: verify 0.1 s differs by 2\n...\ntotal 7\n", printed) == []
    assert missing_lines("net: verified 0.1 s\n", printed) == ["net: verified # s"]


def test_only_commands_with_a_reason_are_left_out() -> None:
    assert why_not_run("make test") == "runs this test"
    assert why_not_run("make build RECIPE=cpu.yaml") is None
    assert why_not_run(".venv/bin/python build.py doctor") is None
