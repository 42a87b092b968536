"""Every form that a rule may ask for is there."""

import re
from pathlib import Path

from compiler.proof import rules
from compiler.proof.padding.lowerings import NODE_LOWERINGS


def test_rules_ask_for_forms_that_exist() -> None:
    assert rules.__file__ is not None
    asked = set()
    for path in Path(rules.__file__).parent.rglob("*.py"):
        asked |= set(re.findall(r'\.rewrite\(\s*"(\w+)"', path.read_text()))
    assert asked
    assert asked <= NODE_LOWERINGS.keys(), asked - NODE_LOWERINGS.keys()
