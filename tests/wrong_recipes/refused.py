"""What a build says of files before it exports anything, and the page docs/generated/wrong_recipes.md."""

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

from rich.console import Console

from compiler.build.capture import torch_module
from compiler.build.capture.original import original_of
from compiler.build.pipeline import check
from compiler.build.report.progress import Progress
from compiler.errors import SlipwayError
from compiler.recipe.load import load_recipe
from tests.wrong_recipes.good import FILES, RECIPE
from tests.wrong_recipes.mended import MENDED
from tests.wrong_recipes.wrong import WRONG, Wrong

PAGE = Path(__file__).resolve().parents[2] / "docs" / "generated" / "wrong_recipes.md"

EXPORTED = "the export begins"
"""What is said of files that nothing is wrong with so far."""


class _ExportBegins(Exception):
    """Raised in place of the export."""


def told(files: Mapping[str, str], folder: Path) -> str:
    """The message that a build of mine.yaml ends with before the export, or that it goes on to it.

    Args:
        files: contents by name.
        folder: an empty one.
    """
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    with _working_in(folder), mock.patch.object(torch_module, "capture_module", side_effect=_ExportBegins):
        try:
            loaded = load_recipe("mine.yaml")
            check(loaded)
            for name, spec in loaded.recipe.graphs.items():
                original_of(loaded, name, spec, None, Progress(Console(file=io.StringIO())))
        except _ExportBegins:
            return EXPORTED
        except SlipwayError as error:
            return re.sub(r"known: .*", "known: ...", str(error).replace(str(folder), "<folder>"))
    raise AssertionError("a graph was neither refused nor exported")


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """From a folder whose modules are looked for anew."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        importlib.invalidate_caches()
        yield
    finally:
        os.chdir(before)
        for name in ("model", "data"):
            sys.modules.pop(name, None)


def page(folder: Path) -> str:
    """The page, from what each wrong recipe is told.

    Args:
        folder: an empty one to work in.
    """
    lines = [
        HEAD.format(count=len(WRONG), mended=len(MENDED), recipe=RECIPE, model=FILES["model.py"], data=FILES["data.py"])
    ]
    for number, wrong in enumerate(WRONG):
        place = folder / str(number)
        place.mkdir()
        lines.append(_section(wrong, told(wrong.files(), place)))
        if wrong.what in MENDED:
            file, old, new = MENDED[wrong.what]
            changed = f"`{_shown(new)}` in place of `{_shown(old)}`" if new else f"`{_shown(old)}` deleted"
            lines.append(f"Mended from the message: {changed}{_in(file)}.\n")
    return "\n".join(lines)


def _section(wrong: Wrong, message: str) -> str:
    changed = (
        f"`{_shown(wrong.new)}` in place of `{_shown(wrong.old)}`" if wrong.new else f"`{_shown(wrong.old)}` deleted"
    )
    return f"""\
## {wrong.what[0].upper()}{wrong.what[1:]}

{changed}{_in(wrong.file)}:

> {message}
"""


def _in(file: str) -> str:
    return "" if file == "mine.yaml" else f" in `{file}`"


def _shown(text: str) -> str:
    """Several lines as one, without the indentation."""
    return " ⏎ ".join(line.strip() for line in text.splitlines())


HEAD = """\
# Wrong recipes

<!-- Written by `python -m tests.wrong_recipes` from tests/wrong_recipes. -->

What is said of {count} wrong recipes, models and data, each one line away from files that build. All of them are
answered before the model is exported, most in well under a second: before the export, the model is called twice as a
stream would call it, with the recipe's own data, empty caches and counts of 0, for several rows. What fails inside the
model is shown with its line and with the shapes and whole numbers that it was given.

Where a line says how somebody mends it who has read the message alone, the files so changed are not refused any more:
{mended} of them. For the others a message cannot know what is meant.

Somebody who had not written the messages wrote 73 more wrong recipes and read what was said of each: 46 messages named
the cure, and 27 named another one or too little. These were mended; 19 recipes of theirs stand here with the others.

The files that build, `mine.yaml`:

```yaml
{recipe}```

and the model, `model.py`:

```python
{model}```

and the data, `data.py`:

```python
{data}```
"""
