"""What every gate has: when it runs, what it promises, and that nothing passes that does not hold."""

import dataclasses
from pathlib import Path

import pytest

from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.gate import Checked, Gate, Shipped, require
from compiler.errors import GateFailed
from tests.kit.shipped import emitted, feeds, relu, shipped, silent, stream_artefacts


@pytest.fixture
def whole(tmp_path: Path) -> Shipped:
    one = emitted(tmp_path, relu(1), {"batch": 1})
    return shipped(tmp_path, stream_artefacts(tmp_path, [one], [feeds(3)]), [one])


def gate_that_finds(*findings: Finding) -> Gate:
    return Gate("weight", lambda shipped, advance: Checked(findings), cure="make it lighter")


def test_a_finding_that_does_not_hold_fails_in_its_own_words(whole: Shipped) -> None:
    light, heavy = (at_most("weight", "net", f"w{kg}", limit=5.0, measured=kg) for kg in (4.0, 6.5))
    assert gate_that_finds(light).run(whole, silent).findings == (light,)
    with pytest.raises(GateFailed) as caught:
        gate_that_finds(light, heavy).run(whole, silent)
    expected = "stage weight, graph net: expected weight of w6.5 of at most 5, got 6.5; make it lighter"
    assert str(caught.value) == expected
    assert caught.value.findings == (light, heavy)


def test_a_finding_without_a_number_says_its_detail() -> None:
    with pytest.raises(GateFailed, match="expected names of a_b to hold, got an underscore; rename it"):
        require([Finding("names", "net", "a_b", holds=False, detail="an underscore")], "names", "rename it")


def test_a_finding_that_nobody_has_looked_at_does_not_hold() -> None:
    with pytest.raises(GateFailed, match="expected names to hold, got that it does not"):
        require([Finding("names", "net")], "names", "look")


def test_a_gate_is_in_force_and_runs_unless_it_says_otherwise(whole: Shipped) -> None:
    recipe = whole.loaded.recipe
    plain = gate_that_finds()
    assert plain.promises(recipe, "net") == [Finding("weight", "net")]
    assert plain.is_wanted(recipe, whole) and plain.line == "weight"
    unasked = dataclasses.replace(plain, promised=lambda recipe, graph: ())
    assert not unasked.is_wanted(recipe, whole)
    wanted = dataclasses.replace(unasked, wanted=lambda recipe, shipped: shipped.name == "net")
    assert wanted.is_wanted(recipe, whole)


def test_a_bundle_is_looked_at_graph_by_graph(whole: Shipped) -> None:
    bundle = dataclasses.replace(whole, name="")
    (alone,) = bundle.alone()
    assert (alone.name, alone.graph, alone.original) == ("net", bundle.graphs["net"], bundle.originals["net"])
