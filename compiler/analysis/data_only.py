"""Rules for operands that are data: an axis length that reaches one alone stays a number, among data it is refused."""

import functools

from compiler.analysis.case import Case
from compiler.analysis.facts import Verdict, refuse
from compiler.analysis.length_data import lengths_alone
from compiler.analysis.registry import Rule


def on_data(rule: Rule) -> Rule:
    """The rule, for operands without axis lengths.

    Raises:
        Refused: an axis length is used next to data.
    """

    @functools.wraps(rule)
    def guarded(case: Case) -> Verdict:
        alone = lengths_alone(case)
        if alone is not None:
            return alone
        number = next((operand for operand in case.present if case.fact(operand).is_number), None)
        if number is not None:
            raise refuse(
                f"{case.op} uses an axis length as its input {number}, and lengths differ from row to row",
                "use it in elementwise operators, or give a constant",
            )
        return rule(case)

    return guarded
