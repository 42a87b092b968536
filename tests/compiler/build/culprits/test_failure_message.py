"""parity_failure: one sentence with pass, nodes, source lines, statistics and the way to see it alone."""

from pathlib import Path

import pytest

from compiler.build.culprits import failure_message as module
from compiler.build.culprits.failure_message import explained
from compiler.build.verify.differences import compare, worst_of
from compiler.errors import GateFailed, Location
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Lowered
from compiler.recipe.gates import Tolerance
from tests.kit.deep_stream import change_axis, change_weight, deep_stream, in_half, round_weights, steps_of

BEFORE = deep_stream(4)
STEPS = steps_of(BEFORE, 4)


def failure(after: Lowered, max_abs: float, folder: Path | None = None) -> GateFailed:
    limits = Tolerance(max_abs=max_abs)
    worst = worst_of(compare(after, runner_of(after), STEPS), limits)
    error = GateFailed(
        f"expected {worst.tensor} {worst.exceeded(limits)}",
        cure="mend it",
        place=Location(stage="some_pass", graph="net", tensor=worst.tensor),
    )
    return explained(error, BEFORE, after, STEPS, limits, folder)


def spoiled(*weights: str) -> Lowered:
    after = deep_stream(4)
    for name in weights:
        change_weight(after.model, name, 1.5)
    return after


def test_one_node(tmp_path: Path) -> None:
    said = str(failure(spoiled("wk_2"), 1e-4, tmp_path / "out.failure"))
    for word in (
        "stage some_pass, graph net, node key_2_matmul, op MatMul, tensor key_2, source tiny.py:",
        "expected cache_3 within",
        "1 node is to blame of ",
        "has an error of its own of 0.63 (relative, root mean square), ",
        "without it the gate holds",
        " before, ",
        f"seen alone by python {tmp_path / 'out.failure' / 'reproduce.py'}",
    ):
        assert word in said, said
    assert said.endswith("; mend it")
    assert "\n" not in said


def test_two_nodes() -> None:
    after = spoiled("wk_2")
    change_axis(after.model, "weights_1", 1)
    said = str(failure(after, 1e-4))
    for word in ("2 nodes are to blame", "weights_1_softmax", "key_2_matmul", "and not without any fewer"):
        assert word in said, said
    assert "seen alone" not in said


def test_many_nodes_that_round_a_little() -> None:
    after = deep_stream(4)
    round_weights(after.model)
    said = str(failure(after, 1e-5))
    for word in ("no single node is to blame: 21 of 61 compared round a little", "and it adds up", " %"):
        assert word in said, said
    assert "node ," not in said


def test_a_defect_on_top_of_too_much_rounding() -> None:
    after = spoiled("wk_2")
    in_half(after.model)
    said = str(failure(after, 1e-4))
    assert "key_2_matmul" in said
    assert "the rest still takes" in said


def test_the_failure_is_told_even_when_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ValueError("no\nway")

    monkeypatch.setattr(module, "find_culprits", broken)
    said = str(failure(spoiled("wk_2"), 1e-4))
    assert "expected cache_3 within" in said
    assert "the search for the nodes to blame ended with ValueError: no way; mend it" in said
