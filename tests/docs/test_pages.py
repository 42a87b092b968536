"""Every command, recipe and file that a page shows is found, and runs."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from compiler.build import pipeline
from compiler.passes import pass_kinds
from compiler.recipe.load import load_recipe
from compiler.recipe.user_code.named_places import require_named_places
from compiler.targets import TARGETS
from tests.docs import named, pages
from tests.docs.pages import ROOT, Block
from tests.docs.workplace import NOT_RUN, Workplace, missing_lines, why_not_run

PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages.pages()}

OF_A_GRAPH = frozenset(
    {"source", "first_call", "inputs", "outputs", "axes", "share_heads", "derive_steps", "passes", "latencies"}
)
"""Keys that a part of a recipe gives to the graph of the README's own model; others it gives to the recipe."""


def all_blocks(language: str) -> list[Block]:
    return [block for page in PAGES.values() for block in pages.blocks(page) if block.language == language]


def ids(block: object) -> str:
    return str(block)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    assert pages.problems(PAGES[page]) == []


def test_readme_is_short() -> None:
    assert len(PAGES["README.md"].read_text(encoding="utf-8").splitlines()) <= 200


# Recipes


def own_recipe() -> dict[str, object]:
    [found] = [each for each in pages.blocks(PAGES["README.md"]) if each.language == "yaml"]
    loaded: dict[str, object] = yaml.safe_load(found.text)
    return loaded


def completed(block: Block, recipe: dict[str, object]) -> str:
    """A part of a recipe, put into the README's own model."""
    part = yaml.safe_load(block.text)
    graphs = recipe["graphs"]
    assert isinstance(graphs, dict)
    [graph] = graphs.values()
    graph.update({key: value for key, value in part.items() if key in OF_A_GRAPH})
    for key in set(part) - OF_A_GRAPH:
        section = recipe.get(key)
        recipe[key] = {**section, **part[key]} if isinstance(section, dict) else part[key]
    return yaml.safe_dump(recipe)


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=ids)
def test_recipe_of_a_page_holds(block: Block, tmp_path: Path) -> None:
    """As `build.py check` says; the files of a whole one stand on its page."""
    text = block.text if block.is_recipe else completed(block, own_recipe())
    (tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
    loaded = load_recipe(str(tmp_path / "shown.yaml"))
    pipeline.check(loaded)
    if block.is_recipe:
        for file in pages.blocks(block.page):
            if file.language == "python" and file.name is not None:
                (tmp_path / file.name).write_text(file.text, encoding="utf-8")
        require_named_places(loaded)


# Commands


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    assert named.problems(PAGES[page]) == []


@pytest.mark.parametrize("block", all_blocks("sh"), ids=ids)
def test_commands_of_a_block_are_known(block: Block) -> None:
    assert [
        found for command, _ in block.commands if (found := named.fault(named.words(command), whole=True)) is not None
    ] == []


def test_every_reason_not_to_run_a_command_has_one() -> None:
    commands = [command for block in all_blocks("sh") for command, _ in block.commands]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in commands)] == []


def sessions() -> list[str]:
    """The pages that show a command which is run."""
    return sorted(
        {
            block.page.relative_to(ROOT).as_posix()
            for block in all_blocks("sh")
            if any(why_not_run(command) is None for command, _ in block.commands)
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", sessions())
def test_commands_of_a_page_run_in_its_order(page: str, tmp_path: Path) -> None:
    """A block of text shows what the commands above it print, but for numbers."""
    workplace = Workplace.at(tmp_path / "place")
    found = pages.blocks(PAGES[page])
    for block in found:
        workplace.write(block)
    printed, run = "", 0
    for block in found:
        if block.language == "sh":
            outputs = [workplace.run(line, code) for line, code in block.commands if why_not_run(line) is None]
            printed, run = "".join(outputs), run + len(outputs)
        elif block.language == "text":
            assert missing_lines(block.text, printed) == [], f"{block}: not in\n{printed}"
    print(f"{page}: {run} commands run")


def test_counts() -> None:
    """What the work order asks for: how much of the pages a test runs."""
    commands = [command for block in all_blocks("sh") for command, _ in block.commands]
    run = [command for command in commands if why_not_run(command) is None]
    recipes = all_blocks("yaml")
    print(f"{len(run)} of {len(commands)} commands run, {len(recipes)} recipes and parts of recipes checked")
    assert len(run) >= 20
    assert len(recipes) >= 10


# Passes, targets and folders


def test_every_pass_is_described_and_no_other() -> None:
    text = PAGES["docs/passes.md"].read_text(encoding="utf-8")
    described = re.findall(r"^\| `([a-z_]+)` \|.*\|.*\|.*\|$", text, re.MULTILINE)
    assert sorted(described) == sorted(pass_kinds())


def test_every_form_and_every_pass_of_one_target_is_described_and_no_other() -> None:
    text = PAGES["docs/forms.md"].read_text(encoding="utf-8")
    described = re.findall(r"^\| `([a-z_.]+)` \|[^|]*\|[^|]*\|$", text, re.MULTILINE)
    applied = [{made.name for made in kind().passes({})} for kind in TARGETS.values()]
    own = set[str]().union(*applied) - set[str].intersection(*applied)
    assert set(described) == own | {form.name for kind in TARGETS.values() for form in kind.offers}


@pytest.mark.parametrize("kind", [*pass_kinds().values(), *TARGETS.values()], ids=lambda kind: kind.name)
def test_every_option_is_named(kind: Any) -> None:
    told = "".join(
        PAGES[f"docs/{page}.md"].read_text(encoding="utf-8")
        for page in ("compression", "forms", "npus", "openvino", "passes", "precision", "shared_heads", "tensorrt")
    )
    options = [field.name for field in dataclasses.fields(kind)]
    assert [option for option in options if f"`{option}`" not in told] == []


def test_every_folder_of_the_code_is_named() -> None:
    text = PAGES["docs/developing.md"].read_text(encoding="utf-8")
    code = {path.parent for top in ("compiler", "runtime_lite") for path in (ROOT / top).rglob("*.py")}
    folders = [folder.relative_to(ROOT).as_posix() for folder in code if "__pycache__" not in folder.parts]
    assert [folder for folder in sorted(folders) if f"({folder})" not in text.replace("../", "")] == []
