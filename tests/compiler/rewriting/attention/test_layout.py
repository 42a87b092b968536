"""layout: where heads lie on their way."""

import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.rewriting.attention.attention import Attention, find_attentions
from compiler.rewriting.attention.layout import axes_of_cache, heads_along
from tests.kit.attention import LONGEST, attention
from tests.kit.derived import steps_of


def found_in(graph: Lowered) -> Attention:
    graphs.infer_shapes(graph.model)
    (found,) = find_attentions(graph.model, graph.states).attentions
    return found


def test_heads_are_followed_through_movements_and_joins() -> None:
    key = found_in(steps_of(attention("turned"), LONGEST)).key
    assert [node.op_type for node, _ in heads_along(key)][-2:] == ["Transpose", "Concat"]
    assert {axis for _, axis in heads_along(key)} == {1}


def test_caches_have_heads_frames_and_channels_in_any_order() -> None:
    found = found_in(steps_of(attention(), LONGEST))
    assert axes_of_cache(found.key) == (1, 3, 2)
    assert axes_of_cache(found.value) == (1, 2, 3)


def test_a_path_that_does_not_keep_heads_apart_is_refused() -> None:
    keys = """  listed = Concat<axis = 0>(row, whole, frames, whole)
        stated = Abs(listed)  joined = Reshape(k_turned, stated)"""
    with pytest.raises(Refused, match="keep the heads apart"):
        heads_along(found_in(attention(key="joined", keys=keys)).key)
