"""Rules of the linter against the genuine builder: it refuses what breaks one, or the rule says why it stays."""

import pytest

from compiler.graph.stages import Lowered
from compiler.targets.tensorrt.lint import RULES
from compiler.targets.tensorrt.target import Tensorrt
from tests.compiler.targets.tensorrt.planted import PLANTED, STAYS
from tests.rtx.installed import NEEDS_RTX
from tests.zoo.engines import outcome

pytestmark = [NEEDS_RTX, pytest.mark.slow]


NAMES = [rule.name for rule in RULES if rule.name != "profile"]
"""Without those about what no build plan can say."""


@pytest.mark.parametrize("rule", NAMES)
def test_what_breaks_a_rule_is_refused_or_the_rule_says_why_it_stays(rule: str) -> None:
    said = outcome(Lowered("net", PLANTED[rule][0].model()), Tensorrt(compute_capability="8.6"))
    assert rule in said
    assert ("refuses what is built" in said) == (rule in STAYS), said


@pytest.mark.parametrize("rule", NAMES)
def test_the_nearest_graph_that_keeps_a_rule_is_built(rule: str) -> None:
    assert outcome(Lowered("net", PLANTED[rule][1].model()), Tensorrt(compute_capability="8.6")) == "taken"
