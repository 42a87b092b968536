"""Rules IX6 and IX7: entries chosen by what follows from lengths are those of every row; shared ones are refused."""

import pytest

from compiler.graph import model as graphs
from tests.kit.judged import check_refused, integers, layouts, rewrites
from tests.kit.soundness import Node, Operand, check_node, number

RUNS: dict[str, tuple[int | str, int | str, int, str]] = {
    "backwards": (-1, -graphs.END - 1, -1, "0: rows(batch), 1: [time, left]"),
    "the second half": ("time//2", graphs.END, 1, "0: rows(batch), 1: [time - floor(time/2), left]"),
    "the middle": ("time//2", "time//2 + 1", 1, "0: rows(batch)"),
}


def run(start: int | str, end: int | str, step: int, shape: tuple[int | str, ...] = ("batch", "time", 3)) -> Node:
    """A Slice of the second axis."""
    bounds = [number(each, shape=(1,)) if isinstance(each, str) else integers(each) for each in (start, end)]
    return Node("Slice", [Operand(shape), *bounds, integers(1), integers(step)])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_entries_begins_where_it_begins_in_the_row(name: str) -> None:
    start, end, step, axes = RUNS[name]
    verdict = check_node(run(start, end, step))
    assert (verdict.rule, rewrites(verdict), layouts(verdict)) == ("IX6", ["run_of_entries"], axes)


def test_entries_that_rows_share_have_no_place_for_one_row() -> None:
    check_refused(run("time//2", "time//2 + 1", 1, (1, "time", 3)), "by slot, not by position")
