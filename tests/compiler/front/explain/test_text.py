"""The text: complete without colour, at any width."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from compiler.front.explain.explanation import Explanation, Link
from compiler.front.explain.text import LONGEST_CHAIN, print_explanation
from tests.compiler.front.explain.test_explanation import SOFTMAX, explained, refused
from tests.kit.offline import offline

LARGEST = {"k": np.array([1], np.int64)}


def text_of(found: Explanation, *, width: int = 160, every_node: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_explanation(found, console, every_node=every_node)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_proof_shows_what_was_inserted_and_numbers() -> None:
    lines = [" ".join(line.split()) for line in text_of(explained(offline(SOFTMAX))).splitlines()]
    assert lines[0] == "tiny: proved; certificate replayed: holds (3 steps)"
    assert "time valid first, padding behind x [batch, time, 4] time_length 1 any" in lines
    assert any(line.startswith("y_softmax Softmax padding of scores (axis 2) := ") for line in lines)
    assert "y [batch, time, time]" in lines
    assert lines[-1].startswith("3 of 3 nodes judged, ")
    assert lines[-1].endswith("1 fills over 1 shared masks; rows are independent")


def test_what_a_proof_takes_for_granted_is_said() -> None:
    largest = offline("(float[batch,time,4] x, int64[1] k) => (float[batch,1,4] y) { y = ReduceMax(x, k) }", LARGEST)
    lines = text_of(explained(largest)).splitlines()
    at = lines.index("Taken for granted")
    assert lines[at + 1].startswith("minimum <= true length <= slots")
    assert lines[at + 2].startswith("no valid entry is NaN in 'x', which") and "(ReduceMax)" in lines[at + 2]


def test_a_refusal_shows_the_way_in_order_then_reason_and_cure() -> None:
    text = text_of(refused())
    assert text.startswith("tiny: refused in 2 places\n")
    way = [text.index(word) for word in ("Refused 1 of 2", "x  ", "a_relu", "b_exp", "=>", "reason: ", "what to do: ")]
    assert way == sorted(way)
    assert "tiny.py:2 in forward: Exp" in text
    assert text.index("what to do: ") < text.index("Refused 2 of 2")


def test_long_ways_are_cut_in_the_middle() -> None:
    found = refused()
    links = tuple(Link(f"n{at}", "Relu", "finite", "") for at in range(3 * LONGEST_CHAIN))
    long = dataclasses.replace(found, refusals=(dataclasses.replace(found.refusals[0], chain=links),))
    short = text_of(long)
    assert f"... {2 * LONGEST_CHAIN} nodes ..." in short
    assert " n0 " in short and f" n{len(links) - 1} " in short and f" n{LONGEST_CHAIN} " not in short
    assert f" n{LONGEST_CHAIN} " in text_of(long, every_node=True)


def test_a_node_takes_one_line_whatever_its_code() -> None:
    found = refused()
    links = (*(Link(f"n{at}", "Relu", "finite", f"net.py:{at} in forward: {'x' * 300}") for at in range(9)),)
    long = dataclasses.replace(found, refusals=(dataclasses.replace(found.refusals[0], chain=links),))
    lines = [line for line in text_of(long).splitlines() if "net.py" in line]
    assert len(lines) == 9
    assert all(line.rstrip().endswith("x...") and len(line) <= 160 for line in lines)


def test_every_node_shows_its_rule_and_facts() -> None:
    assert "Every node" not in text_of(explained(offline(SOFTMAX)))
    text = text_of(explained(offline(SOFTMAX)), every_node=True)
    assert "Every node" in text and "turned_transpose" in text and "scores: {0: rows(batch)" in text


@pytest.mark.parametrize("width", [30, 80])
def test_narrow_terminals_lose_nothing_of_the_reason(width: int) -> None:
    text = text_of(refused(), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert refused().refusals[0].reason in " ".join(text.split())


def test_brackets_in_names_are_not_markup() -> None:
    found = explained(offline(SOFTMAX))
    step = dataclasses.replace(found.steps[-1], node="[bold]x[/]")
    assert "[bold]x[/]" in text_of(dataclasses.replace(found, steps=(step,)))


def test_nothing_to_pad_and_a_rejected_proof_are_said() -> None:
    nothing = explained(dataclasses.replace(offline(SOFTMAX, axes=()), batch_axis=None))
    assert text_of(nothing).startswith("tiny: nothing is padded\n")
    rejected = dataclasses.replace(explained(offline(SOFTMAX)), rejected="step 3 differs")
    assert text_of(rejected).startswith("tiny: the certificate does not hold: step 3 differs\n")
