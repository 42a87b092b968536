"""What a rule says of one node, in short: attacked first, then compared with what a test expects."""

from collections.abc import Callable

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.proof.facts.facts import Rewrite, Verdict
from tests.kit.soundness import Node, Operand, Unsound, check_node
from tests.kit.soundness import constant as content_of


def integers(*numbers: int) -> Operand:
    """A 1-D int64 initializer."""
    return content_of(np.array(numbers, np.int64), np.int64)


def layouts(verdict: Verdict, output: int = 0) -> str:
    """The tracked axes of an output, such as `0: rows(batch), 1: [time, left]`."""
    fact = verdict.outputs[output]
    return "number" if fact.is_number else ", ".join(f"{at}: {' * '.join(map(str, axis))}" for at, axis in fact.axes)


def rewrites(verdict: Verdict) -> list[str]:
    """The forms that a verdict asks for."""
    return [need.kind for need in verdict.needs if isinstance(need, Rewrite)]


def check(node: Node, rule: str, axes: str, *, trials: int = 8, extremes: bool = True) -> Verdict:
    """The verdict holds under attack, and is the expected one."""
    verdict = check_node(node, trials=trials, extremes=extremes)
    assert (verdict.rule, layouts(verdict)) == (rule, axes)
    return verdict


def check_refused(node: Node, message: str) -> None:
    """The rule refuses, says why and gives a cure."""
    with pytest.raises(Refused) as raised:
        check_node(node)
    assert message in raised.value.message, raised.value
    assert raised.value.cure


TIMES = 1
"""How many times as many random nodes are drawn; more where attacks are collected."""


def attack(
    draw: Callable[[np.random.Generator], Node],
    draws: int,
    fewest: int,
    *,
    extremes: bool = True,
    tolerance: float = 1e-5,
) -> None:
    """Random nodes are judged soundly or refused, and at least some are not refused."""
    accepted = 0
    for seed in range(draws * TIMES):
        node = draw(np.random.default_rng(seed))
        try:
            check_node(node, trials=2, seed=seed, extremes=extremes, tolerance=tolerance)
        except Refused:
            continue
        except Unsound as unsound:
            pytest.fail(f"seed {seed}: {node}\n{unsound}")
        except AssertionError as error:
            if "no lengths" in str(error):  # drawn without meaning
                continue
            raise
        accepted += 1
    assert accepted >= fewest, f"{accepted} of {draws} accepted"
