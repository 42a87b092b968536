"""Scores that pads and reshapes move are looked up by distance where that is the same, and nowhere else."""

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.shifted_scores import in_terms_of_movements, look_up, require_masked, restore
from tests.kit.whole_sequences import LONGEST, PREFIX, SHIFTED, Drawing, session, whole_graph

TIME = graphs.symbol("time")


@pytest.mark.parametrize("positions", SHIFTED)
def test_lookups_answer_as_the_movements_do_and_leave_the_graph_as_it_was(positions: str) -> None:
    whole = whole_graph(Drawing(positions=positions, layers=2))
    written, tokens = graphs.serialized(whole), {"tokens": np.arange(2 * 9).reshape(2, 9) % 13}
    (expected,) = session(whole).run(["scores"], tokens)
    lookups = look_up(whole, TIME, LONGEST)
    assert [each.support.all() for each in lookups] == [positions == "moved"] * 2
    read = {node for each in lookups for node in graphs.consumers_of(each.moved)}
    assert read == set()
    assert np.allclose(session(whole).run(["scores"], tokens)[0], expected, atol=1e-5)
    restore(whole, lookups)
    before = ir.from_proto(onnx.load_model_from_string(written)).graph
    assert [node.op_type for node in whole.graph] == [node.op_type for node in before]
    assert np.array_equal(session(whole).run(["scores"], tokens)[0], expected)


def test_only_what_the_movements_leave_to_other_rows_is_told_apart() -> None:
    whole = whole_graph(Drawing(positions="skewed"))
    (lookup,) = look_up(whole, TIME, LONGEST)
    assert np.array_equal(lookup.support, np.tri(LONGEST, dtype=bool))
    unmasked = require_masked(Judging(whole, "time", LONGEST), [lookup])
    assert {value.producer().op_type for value in unmasked} == {"GatherElements", "Add"}  # type: ignore[union-attr]
    values = [{"value": str(each.name)} for each in (*unmasked, *lookup.made, whole.graph.outputs[0])]
    assert in_terms_of_movements(values, [lookup], unmasked) == [{"value": "scores"}]


def test_in_terms_of_movements_a_lookup_is_what_is_moved() -> None:
    (lookup,) = look_up(whole_graph(Drawing(positions="moved")), TIME, LONGEST)
    values = [{"value": str(lookup.looked_up.name), "step": "looked"}]
    assert in_terms_of_movements(values, [lookup], ()) == [{"value": str(lookup.moved.name), "step": "looked"}]


def test_scores_of_other_rows_that_a_mask_shows_are_refused() -> None:
    whole = whole_graph(Drawing(positions="skewed", mask=PREFIX, width=4))
    with pytest.raises(Refused, match="entries of other rows, and Softmax reads those unmasked") as refused:
        derive(whole, "time", "past", LONGEST)
    assert refused.value.place.op == "Softmax"


def test_scores_by_distance_that_later_rows_read_are_refused() -> None:
    """Attention that is turned reads the scores of all rows; where it shows each row its own alone, it is a stream."""
    turned = Drawing(positions="skewed", mask="band", width=1, writing="factor", keys_turned=True, spoiler="wrong_axis")
    with pytest.raises(Refused, match="later rows read scores of earlier rows that were moved by distance") as refused:
        derive(whole_graph(turned), "time", "past", LONGEST)
    assert refused.value.place.op == "Slice"


SPOILED = {
    "distances that are scaled with the length": "far_scaled",
    "distances that begin at the other end": "far_turned",
    "a row too many taken off": "far_cut",
}


@pytest.mark.parametrize("positions", SHIFTED)
@pytest.mark.parametrize("name", SPOILED)
def test_other_distances_are_not_looked_up(name: str, positions: str) -> None:
    drawing = Drawing(positions=positions, spoiler=SPOILED[name])
    assert look_up(whole_graph(drawing), TIME, LONGEST) == []
    with pytest.raises(Refused, match="no steps can be derived") as refused:
        derive(whole_graph(drawing), "time", "past", LONGEST)
    assert refused.value.place.node
    plain = dataclasses.replace(drawing, spoiler="")
    assert len(look_up(whole_graph(plain), TIME, LONGEST)) == 1
