"""A change of what cuts caches is caught by a step graph; every module that is named has changes of its own names."""

from tests.property.mutate_streams import CARRYING, CHECKING, Attack, attacked, look
from tests.property.mutations import mutations_of
from tests.property.trial import in_child

CUTTING = "compiler/passes/window_states.py"
SEED = 13
"""Of a graph whose author leaves it to the recipe to cut a cache."""


def test_every_mutation_has_a_name_of_its_own() -> None:
    keys = [each.key for module in (*CARRYING, *CHECKING) for each in mutations_of(module)]
    assert len(keys) == len(set(keys)) > 1000


def test_a_window_that_is_cut_elsewhere_is_caught_by_the_comparison() -> None:
    kind, written, _ = look(SEED)
    mutation = next(
        each for each in mutations_of(CUTTING) if each.function == "_slice_state" and each.before == "least - want"
    )
    found = in_child(lambda: attacked(mutation, [Attack(SEED, "", kind, written, frozenset())]), 300)
    assert kind == "lowered"
    assert found.outcome == "caught", found
