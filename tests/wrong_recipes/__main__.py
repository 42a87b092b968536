"""Writes docs/generated/wrong_recipes.md again: `python -m tests.wrong_recipes`."""

import tempfile
from pathlib import Path

from tests.wrong_recipes.refused import PAGE, page

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(Path(folder).resolve()), encoding="utf-8")
