"""A short deterministic run of the mutation test: what weakens is caught, what does not is told apart from it."""

import dataclasses

import pytest

from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Verdict, refuse
from tests.kit.patience import PATIENCE_S
from tests.property.corpus import ROOT, Corpus, Rule
from tests.property.equivalent import EQUIVALENT
from tests.property.mutate import Beside, Tried, harvest, share, table, trial_of, weakened_trial
from tests.property.mutate_derivation import CONDITIONS
from tests.property.mutate_streams import CARRYING, CHECKING
from tests.property.mutations import Mutation, modules, mutations_of
from tests.property.trial import Result, Trial, in_child
from tests.property.weakened import weakenings_of

PLACES = "compiler/proof/padding/valid_slots.py"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    files = [
        ROOT / "tests/compiler/proof/rules/test_convolution.py",
        ROOT / "tests/compiler/proof/padding/test_valid_slots.py",
    ]
    return harvest(files, graphs=8)


def tried(mutation: Mutation, corpus: Corpus) -> Result:
    return in_child(trial_of(mutation, corpus, 0).run, PATIENCE_S)


def only(module: str, function: str, before: str, after: str) -> Mutation:
    found = [
        each for each in mutations_of(module) if (each.function, each.before, each.after) == (function, before, after)
    ]
    return found[0]


@pytest.mark.slow
def test_every_module_is_mutated_and_every_mutation_has_a_name_of_its_own() -> None:
    keys = [each.key for module in modules() for each in mutations_of(module)]
    assert len(keys) == len(set(keys)) > 4000
    beside = {each.key for module in (*CONDITIONS, *CARRYING, *CHECKING) for each in mutations_of(module)}
    named = {key for key in EQUIVALENT if "/" in key}
    assert named <= {*keys, *beside}, "reasons for mutations that are gone"


@pytest.mark.slow
def test_a_slot_too_many_in_a_mask_is_caught_by_checker_and_comparison(corpus: Corpus) -> None:
    result = tried(only(PLACES, "ValidSlots._computed", "'Less'", "'LessOrEqual'"), corpus)
    assert {"checker", "comparison"} <= set(result.by), result


@pytest.mark.slow
def test_a_fill_that_is_left_out_is_caught(corpus: Corpus) -> None:
    fills = [each for each in mutations_of("compiler/proof/facts/case.py") if each.function == "Case.fill"]
    removed = next(each for each in fills if each.after == "pass")
    assert "checker" in tried(removed, corpus).by


@pytest.mark.slow
def test_a_refusal_that_did_not_come_before_is_stricter(corpus: Corpus) -> None:
    def refusing(rule: Rule) -> Rule:
        def refused(case: Case) -> Verdict:
            raise refuse("nothing is accepted", "accept something")

        return refused

    result = in_child(Trial(lambda: None, corpus.nodes[:20], corpus.graphs[:10], refusing).run, PATIENCE_S)
    assert result.outcome == "stricter", result


@pytest.mark.slow
def test_a_change_that_nothing_reaches_is_no_catch(corpus: Corpus) -> None:
    signal = mutations_of("compiler/proof/rules/signal.py")[-1]
    assert tried(signal, corpus).outcome == "unreached"


def test_a_process_that_ends_is_a_crash() -> None:
    def run() -> Result:
        raise SystemExit

    assert in_child(run, PATIENCE_S).outcome == "caught"


@pytest.mark.slow
def test_without_a_mutation_nothing_is_seen(corpus: Corpus) -> None:
    trial = Trial(lambda: None, corpus.nodes[:20], corpus.graphs[:10])
    assert in_child(trial.run, PATIENCE_S).outcome == "unseen"


@pytest.mark.slow
def test_verdicts_that_say_too_much_are_caught(corpus: Corpus) -> None:
    found = [each for each in weakenings_of(corpus) if each.rule.startswith("CV")]
    results = [
        Tried(each.kind, f"{each.rule}: {each.kind}", 0, in_child(weakened_trial(each, corpus, 0).run, PATIENCE_S))
        for each in found
        if each.kind in ("need 0 dropped", "one slot more", "rows forgotten", "valid entries on the other side")
    ]
    assert results
    assert share(results) == 1.0, table(results)


@pytest.mark.slow
def test_a_bound_that_no_test_tries_is_caught_by_attacks_beside_theirs(corpus: Corpus) -> None:
    found = mutations_of("compiler/proof/rules/convolution.py")
    (mutation,) = [each for each in found if each.function == "_weights" and "in `high = np.full(" in each.within]
    weights = [None if each is None else each.array for each in (each.node.operands[1] for each in corpus.nodes)]
    nodes = [each for each, array in zip(corpus.nodes, weights, strict=True) if array is None or array.any()]
    few = Corpus(nodes, corpus.graphs)  # without the one whose weights are zero, which tries it
    first = tried(mutation, few)
    assert first.outcome == "survived"
    assert Beside(few, 100, 0).again(mutation, first).by == ["attack"]


@pytest.mark.slow
def test_what_is_found_without_a_mutation_counts_for_nothing(corpus: Corpus) -> None:
    beside = Beside(corpus, 20, 0)
    attack = corpus.nodes[0]

    def unsound(case: Case) -> Verdict:
        verdict = attack.rule(case)
        return dataclasses.replace(verdict, outputs=tuple(Fact() for _ in verdict.outputs), needs=())

    mutation = mutations_of(PLACES)[0]
    seen = dataclasses.replace(attack.seen, written=b"another")
    wrong = dataclasses.replace(attack, rule=unsound, seen=seen, lines=frozenset({(PLACES, mutation.line)}))
    beside.made[PLACES], beside.grown = [wrong], []
    assert beside.again(mutation, Result()).by == []
    assert beside.useless == [wrong]
