"""Rewrites that are repeated end: settled, or given up with a report."""

from collections.abc import Iterator

from compiler.rewriting.rounds import Rounds, until_settled


def test_it_ends_when_nothing_changes() -> None:
    changes: Iterator[int] = iter([3, 2, 0])
    assert until_settled(lambda: next(changes)) == Rounds(5)


def test_rules_that_undo_each_other_are_given_up_and_reported() -> None:
    word = ["ab"]

    def change() -> int:
        word[0] = word[0][::-1]
        return 1

    done = until_settled(change, most=7)
    assert done.changes == 7
    assert [refusal.reason.split(":")[0] for refusal in done.refused] == [
        "given up after 7 rounds, of which the last changed 1 places"
    ]
