"""Caches lie where a frame is smallest; what is kept of others has its size."""

from compiler.proof.derivation.derive import derive
from tests.kit.whole_sequences import LONGEST, Drawing, whole_graph

RECURRENT = Drawing(local="lstm", groups=1, positions="rotary")


def test_every_kind_of_cache_has_an_input_and_an_output() -> None:
    derived = derive(whole_graph(RECURRENT), "time", "past", LONGEST)
    kinds = {each.input: (each.is_state, each.kept, each.is_joined) for each in derived.cached}
    assert sorted(kinds.values()) == [(False, 0, True)] * 2 + [(True, 0, False)] * 2
    assert [value.name for value in derived.model.graph.inputs] == ["tokens", *kinds]
    assert [value.name for value in derived.model.graph.outputs] == [
        "scores",
        *(each.output for each in derived.cached),
    ]


def test_a_value_that_is_spread_is_cached_before() -> None:
    derived = derive(whole_graph(Drawing(groups=1)), "time", "past", LONGEST)
    sizes = [[dim for dim in each.value.shape or () if isinstance(dim, int)] for each in derived.cached]
    assert all(sorted(each)[-1] == 4 and each.count(2) == 0 for each in sizes)
