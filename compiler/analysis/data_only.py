"""Rules for operands that are data: an axis length alone stays a number, among rows it is one per row."""

import functools

from compiler.analysis.case import Case
from compiler.analysis.facts import Verdict, refuse
from compiler.analysis.length_data import lengths_alone, spread_per_row
from compiler.analysis.registry import Rule
from compiler.analysis.row_numbers import RULES


def on_data(rule: Rule) -> Rule:
    """The rule, for operands without axis lengths.

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
        number = next((operand for operand in case.present if case.fact(operand).is_number), None)
        if number is not None:
            raise refuse(
                f"{case.op} uses an axis length as its input {number}, and lengths differ from row to row",
                "expand it to the batch in front, or use it in elementwise operators",
            )
        return rule(case)

    return guarded
