"""Wraps a rule so that operands computed from axis lengths are replaced by their values per row before the rule runs.

A value computed from lengths that is equal for every row, such as the distance of two frames of a window, is data like
any other.
"""

import functools

from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fill, Verdict, refuse
from compiler.proof.facts.length_data import lengths_alone, spread_per_row
from compiler.proof.facts.registry import Rule
from compiler.proof.facts.row_value_plans import RULES
from compiler.proof.facts.shift_invariant_values import fact_alike


def on_data(rule: Rule) -> Rule:
    """Wrap a rule so that it sees data alone: operands computed from axis lengths are resolved first.

    Raises:
        Refused: an axis length is used next to data.
    """

    @functools.wraps(rule)
    def guarded(case: Case) -> Verdict:
        if case.op not in RULES:
            spread_per_row(case)
        alone = lengths_alone(case)
        if alone is not None:
            return alone
        spread_per_row(case)
        numbers = [operand for operand in case.present if case.fact(operand).is_number]
        for operand in numbers:
            case.facts[operand] = fact_alike(case, operand) or NUMBER
        verdict = None if any(case.fact(operand).is_number for operand in numbers) else rule(case)
        if verdict is None or any(isinstance(need, Fill) and need.operand in numbers for need in verdict.needs):
            raise refuse(
                f"{case.op} uses an axis length as its input {numbers[0]}, and lengths differ from row to row",
                "expand it to the batch in front, or use it in elementwise operators",
            )
        return verdict

    return guarded
