"""A weakened reach is caught by a graph whose frames see the next chunk; parts of the page are written one by one."""

from tests.kit.whole_sequences import Drawing, drawn_in_chunks
from tests.property.mutate import DERIVATION, STREAMS, Tried, with_part
from tests.property.mutate_derivation import CONDITIONS, attack_of, attacked, told
from tests.property.mutations import mutations_of
from tests.property.trial import Result, in_child

DEPENDENCE = "compiler/proof/derivation/dependence.py"


def test_every_mutation_of_a_condition_has_a_name_of_its_own() -> None:
    keys = [each.key for module in CONDITIONS for each in mutations_of(module)]
    assert len(keys) == len(set(keys)) > 1000


def test_a_reach_beyond_its_chunk_that_is_taken_for_less_is_caught_by_the_comparison() -> None:
    attack = attack_of(drawn_in_chunks(11, spoiled=True), "chunks")
    mutation = next(
        each for each in mutations_of(DEPENDENCE) if each.function == "Reach.behind" and each.before == "high - beyond"
    )
    assert not attack.outcome.written and (DEPENDENCE, mutation.line) in attack.lines
    found = in_child(lambda: attacked(mutation, [attack]), 300)
    assert (found.outcome, found.by, found.changed) == ("caught", ["comparison"], 1), found


def test_an_error_of_a_mutant_is_one_change_that_is_caught() -> None:
    attack = attack_of(drawn_in_chunks(1, spoiled=True), "chunks")
    mutation = next(each for each in mutations_of(DEPENDENCE) if each.function == "hull" and each.before == "not found")
    found = in_child(lambda: attacked(mutation, [attack]), 300)
    assert (found.by, found.changed) == (["crash"], 1), found


def test_a_change_by_which_streams_end_that_went_on_is_stricter() -> None:
    attack = attack_of(Drawing(mask="band", width=4, forgets=True), "sliding")
    mutation = next(
        each
        for each in mutations_of("compiler/proof/derivation/any_length.py")
        if each.function == "AnyLength._of" and each.after.startswith("along_axis.before == 0")
    )
    assert attack.outcome.is_endless
    found = in_child(lambda: attacked(mutation, [attack]), 300)
    assert (found.outcome, found.changed) == ("stricter", 1), found


def test_a_part_of_the_page_is_written_anew_and_the_others_stay() -> None:
    found = [Tried(DEPENDENCE, "dependence:hull: a -> b", 3, Result(reached=2))]
    part = told(found, set(), "python -m tests.property.mutate_derivation")
    page = with_part(f"# Mutants\n\n{STREAMS}\n\nof streams\n", DERIVATION, part)
    assert "`dependence:hull: a -> b` (line 3): unseen, 2 graphs" in page
    again = with_part(page, STREAMS, f"{STREAMS}\n\nothers\n")
    assert again == page.replace("of streams", "others")
    assert with_part(again, DERIVATION, part) == again
