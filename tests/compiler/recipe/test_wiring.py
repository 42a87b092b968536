"""Wires of a recipe lead from an output to an input that can take it; a wrong one is answered with its line."""

from pathlib import Path

import pytest

from compiler.recipe.load import load_recipe
from tests.kit.recipes import WIRE, refusal, wired, write


def test_graphs_are_wired_by_the_names_of_their_outputs_and_inputs(tmp_path: Path) -> None:
    state = "from_graph: encoder, output: next_1, to_graph: codec, input: past"
    recipe = load_recipe(write(tmp_path, wired(WIRE, state))).recipe
    assert [(wire.from_graph, wire.output, wire.to_graph, wire.input) for wire in recipe.wiring] == [
        ("encoder", "logits", "codec", "logits"),
        ("encoder", "next_1", "codec", "past"),
    ]


def test_wired_graphs_have_a_promise_together_and_no_others_do(tmp_path: Path) -> None:
    text = wired(WIRE)
    gate = next(line for line in text.splitlines(keepends=True) if line.startswith("  pipeline: "))
    got = refusal(tmp_path, text.replace(gate, ""))
    assert "wiring: expected gates.pipeline for graphs that are held to a promise together, got none" in got
    got = refusal(tmp_path, text[: text.index("wiring:")])
    assert "gates.pipeline: expected wiring for graphs that are held to a promise together, got gates.pipeline" in got


WRONG = {
    "an unknown graph": ((WIRE.replace("codec", "codek"),), "wiring.0.to_graph: expected the name of a graph, got"),
    "an unknown output": (
        (WIRE.replace("output: logits", "output: logit"),),
        "wiring.0.output: expected the name of an output, got 'logit'; did you mean 'logits'?",
    ),
    "an unknown input": (
        (WIRE.replace("input: logits", "input: sound"),),
        "wiring.0.input: expected the name of an input, got 'sound'",
    ),
    "a state for data": (
        ("from_graph: encoder, output: next_0, to_graph: codec, input: logits",),
        "wiring.0.input: expected an input that is a state, as 'next_0' is one, got 'logits'",
    ),
    "data for a state": (
        ("from_graph: encoder, output: logits, to_graph: codec, input: past",),
        "wiring.0.input: expected an input that callers feed for the output 'logits', got 'past'",
    ),
    "states of other sizes": (
        ("from_graph: encoder, output: next_0, to_graph: codec, input: wide",),
        "wiring.0: expected states of one type and shape, got float32 ['batch', 'cache', 8] for float32 ['rows', 'c",
    ),
    "two wires to an input": ((WIRE, WIRE), "wiring.1: expected one wire to an input, got a second one"),
    "a circle": (
        (WIRE, "from_graph: codec, output: sound, to_graph: encoder, input: features"),
        "wiring: expected graphs that run one after the other, got a circle of codec, encoder",
    ),
    "a graph that takes from itself": (
        ("from_graph: codec, output: sound, to_graph: codec, input: logits",),
        "wiring: expected graphs that run one after the other, got a circle of codec",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_wire_is_answered_with_its_line(case: str, tmp_path: Path) -> None:
    wires, message = WRONG[case]
    got = refusal(tmp_path, wired(*wires))
    assert message in got
    assert got.startswith("tiny.yaml:4"), got
