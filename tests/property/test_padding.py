"""A short deterministic draw of the fuzzer, and what it found once."""

import dataclasses

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.passes.pad_axes import PadAxes
from tests.kit.offline import Differs
from tests.property.fuzz import (
    BELOW,
    MIXTURES,
    as_padded,
    attack,
    grow,
    mixture_of,
    require_same_in_double,
)
from tests.property.graph_builder import Mixture

FOUND = {
    90: "rows that a causal mask hides whole are uniform over their own length, whatever constant hides them",
    139: "the same behind a pool",
    205992: "entries added to an axis that a cut left empty, whose size is not known",
    1137: "the last entries in steps of two",
    1000320: "a cut that keeps nothing, whose size no name tells",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_the_fuzzer_found_stays_mended(seed: int) -> None:
    assert attack(seed) in ("accepted", "refused")


@pytest.mark.parametrize("seed", [72003513, 81005557], ids=["by a length", "by sizes alone"])
def test_the_variance_of_what_a_mask_fills_in_is_rounding_and_refutes_no_proof(seed: int) -> None:
    assert attack(seed, mixture=MIXTURES[seed % len(MIXTURES)]) in ("accepted", "ill-conditioned")


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(81011703, "refused"), (81018159, "undefined"), (101003028, "refused")],
    ids=["a cut of the last entries that keeps none", "reflected frames of fewer than are added", "a size rounded up"],
)
def test_what_runs_at_no_length_is_no_dispute(seed: int, expected: str) -> None:
    assert attack(seed, mixture=MIXTURES[seed % len(MIXTURES)]) == expected


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(101011236, "accepted"), (101008562, "accepted")],
    ids=["chunks of three frames", "a recurrence of no chunks, which ends the process"],
)
def test_axes_that_are_not_padded_are_as_long_as_the_original_needs(seed: int, expected: str) -> None:
    assert attack(seed, mixture=mixture_of(seed)) == expected


def test_what_is_granted_is_asked_of_the_value_before_it_was_filled() -> None:
    assert attack(91000520, mixture=mixture_of(91000520)) == "accepted"


@pytest.mark.parametrize("seed", [100270, 104450, 215643])
def test_the_deviation_of_one_entry_is_noise_alone_and_exact_padded(seed: int) -> None:
    assert attack(seed) == "ill-conditioned"


def test_numbers_whose_sums_overflow_by_order_are_the_same_in_double_precision() -> None:
    assert attack(111003530, mixture=mixture_of(111003530)) == "ill-conditioned"


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(41006602, "accepted"), (51015908, "ill-conditioned")],
    ids=["the count of a mask of lengths, less one, as a divisor", "the sign of zeros in sums from the last frame on"],
)
def test_what_a_long_run_found_stays_mended(seed: int, expected: str) -> None:
    assert attack(seed, mixture=mixture_of(seed)) == expected


def test_noise_excuses_nothing_that_differs_in_double_precision_too() -> None:
    # regression: where the reference knows an operator badly, or a row alone is noise, everything was excused
    origin = as_padded(grow(100270))
    outcome = PadAxes().apply(dataclasses.replace(origin, model=graphs.clone(origin.model)))
    told = Differs("output 0")
    require_same_in_double(origin, outcome, told, seed=100270, rows=3, edges="none")
    (last,) = outcome.lowered.model.graph.outputs
    node = last.producer()
    assert node is not None and node.inputs[0] is not None
    insert = graphs.Inserter(outcome.lowered.model, "test", before=node)
    node.replace_input_with(
        0,
        insert.op(
            "Mul", [node.inputs[0], insert.constant(np.float32(1.01) * np.ones(1, np.float32), "more")], name="m"
        ),
    )
    with pytest.raises(Differs, match="output 0"):
        require_same_in_double(origin, outcome, told, seed=100270, rows=3, edges="none")


def test_whatever_is_accepted_runs_padded_as_alone() -> None:
    results = [attack(seed) for seed in range(120)]
    assert results.count("accepted") > 72, "the fuzzer draws what can be padded"


@pytest.mark.parametrize("mixture", [*MIXTURES, *BELOW], ids=lambda mixture: mixture.name)
def test_every_mixture_has_graphs_that_can_be_padded(mixture: Mixture) -> None:
    results = [attack(seed, 7, mixture) for seed in range(12)]
    assert results.count("accepted") >= 5
