"""The mutation test of padding: whatever weakens a rule, a mask or a fill must be noticed.

`python -m tests.property.mutate --limit 300` collects the attacks of the tests and of the fuzzer, mutates the rules and
what is inserted, and tries on every mutant the attacks that reach it. Tests of texts and refusals count for nothing:
only an attack on a rule, the certificate checker, a comparison of whole graphs, or an error catches a mutant.
"""

import argparse
import collections
import dataclasses
import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from compiler.errors import Refused
from compiler.graph.stages import Lowered
from compiler.proof.propagation.judge import judge
from tests.kit.patience import PATIENCE_S
from tests.property.chains import RULES, chain
from tests.property.corpus import ROOT, Corpus, GraphAttack, Harvest, NodeAttack
from tests.property.equivalent import EQUIVALENT
from tests.property.fuzz import as_padded, grow, mixture_of
from tests.property.mutations import Mutation, modules, mutations_of, plant
from tests.property.neighbours import holds, neighbours
from tests.property.nodes import nodes as edge_nodes
from tests.property.small_graphs import corpus as small_graphs
from tests.property.spelled_graphs import SPELLED, graph
from tests.property.trial import TRIALS, WAYS, Result, Trial, in_child, is_sound
from tests.property.weakened import Weakening, weakenings_of
from tests.zoo.families import FAMILIES

TESTS = ("proof/rules/test_*.py", "proof/facts/test_*.py", "proof/propagation/test_*.py", "graph/lengths/test_*.py",
         "proof/padding/**/test_*.py", "passes/test_pad_axes*.py", "checker/test_check.py")  # fmt: skip
EXPORTED = (
    "sentence_max_pooling", "tacotron2_encoder", "alibi_encoder", "mirrored_frames", "flipped_gru", "voice_conversion",
    "upsampled_nearest", "fnet", "sentence_last_pooling", "wave_unet", "linear_attention", "stft_front_end",
    "crnn_tagger", "frames_times_length", "gpt2_classifier", "ecapa_tdnn", "mobilebert", "cif_predictor",
    "bert_classifier", "torch_transformer_decoder", "rnn_ctc", "upsampled_linear", "mpt", "espnet_conformer_maskless",
    "lengths_as_input", "xglm", "hazard_batch_mean", "hazard_batch_similarity", "llama_maskless", "convbert", "ctrl",
    "hazard_random_noise", "greedy_ctc_head", "mpnet", "speecht5_hifigan", "lfm2", "deberta_v2",
)  # fmt: skip
"""Graphs of the zoo that reach, with little time, the lines that any of them reaches."""

SMALL = 4
"""One small graph of a single row in this many is taken."""

CHAINS = 40
"""Chains of movements that are drawn."""

DRAWN = 20
"""Nodes of every kind that are drawn."""

FURTHER = 100_000
"""The first seed of the graphs that are grown beside those of a corpus."""

MISSED = ("survived", "unseen", "unreached")

Mutant = TypeVar("Mutant", Mutation, Weakening)


@dataclasses.dataclass(frozen=True)
class Tried:
    """A mutant by module, name and kind, and what became of it."""

    group: str
    name: str
    line: int
    result: Result

    @property
    def outcome(self) -> str:
        """As of the result, or `equivalent` where it is shown by hand that nothing can differ."""
        told = self.result.outcome
        return "equivalent" if told in MISSED and self.name in EQUIVALENT else told


def harvest(
    files: Sequence[Path], graphs: int, exported: Sequence[str] = (), times: int = 1, small: bool = False
) -> Corpus:
    """The attacks of test files, the first graphs of the fuzzer and some of the zoo; only what is sound by itself."""
    found = Harvest(times)
    started = time.monotonic()
    found.tests(files)
    _say(started, "tests collected")
    if small:
        found.nodes(map(chain, range(CHAINS)), RULES)
        found.nodes(edge_nodes(DRAWN), (judge,))
    _say(started, "nodes drawn")
    for seed in range(graphs):
        _is_kept(found, seed)
    of_today = [each for each in small_graphs() if "opset" not in each.name] if small else []
    of_rows = [each for each in of_today if "literal batch" not in each.name]
    of_one = [each for each in of_today if "literal batch" in each.name]
    for each in (*of_rows, *of_one[::SMALL]):
        found.graph(f"small graph, {each.name}", each.make())
    for name, body in SPELLED.items() if small else ():
        found.graph(f"spelled graph, {name}", graph(body))
    for family in FAMILIES:
        if family.name in exported:
            found.exported(family)
    _say(started, "graphs collected")
    corpus = found.corpus
    corpus.graphs = [each for each in corpus.graphs if is_sound(each)]
    _say(started, f"{len(corpus.nodes)} attacks on nodes, {len(corpus.graphs)} graphs")
    return corpus


def _is_kept(found: Harvest, seed: int) -> bool:
    """Collect a graph of the fuzzer; whether there is one."""
    grown = of_seed(seed)
    if grown is not None:
        found.graph(f"fuzzer, seed {seed}", grown)
    return grown is not None


def of_seed(seed: int) -> Lowered | None:
    """A graph of the fuzzer as padding meets it; None where it is refused in front of padding."""
    try:
        return as_padded(grow(seed, mixture=mixture_of(seed)))
    except Refused:
        return None


def test_files(only: str | None) -> list[Path]:
    """All test files with attacks, or those that are named as a module and the ones over whole graphs."""
    files = [path for pattern in TESTS for path in sorted((ROOT / "tests/compiler").glob(pattern))]
    if only is None or "/rules/" not in only:
        return files
    return [path for path in files if path.parent.name != "rules" or path.stem == f"test_{Path(only).stem}"]


def chosen(mutants: Sequence[Mutant], limit: int | None, seed: int) -> list[Mutant]:
    """So many of all mutants, in their order; drawn by name, so that the others stay when some come or go."""

    def drawn(at: int) -> bytes:
        return hashlib.sha256(f"{seed} {mutants[at].key}".encode()).digest()

    picked = sorted(range(len(mutants)), key=drawn)[:limit]
    return [mutants[at] for at in sorted(picked)]


def trial_of(mutation: Mutation, corpus: Corpus, seed: int) -> Trial:
    """The attacks that reach a mutation, in any order."""
    wanted = {(mutation.module, line) for line in range(mutation.line, mutation.last + 1)}
    nodes = [each for each in corpus.nodes if not wanted.isdisjoint(each.lines)]
    graphs = [each for each in corpus.graphs if not wanted.isdisjoint(each.lines)]
    return Trial(lambda: plant(mutation), _shuffled(nodes, seed), _shuffled(graphs, seed))


class Beside:
    """Attacks beside those of a corpus, for mutants that these miss.

    Args:
        corpus: the attacks.
        count: how many are drawn beside those that reach a mutant, and as many beside those that reach its module; as
            many graphs of the fuzzer.
        seed: of the draws.
    """

    def __init__(self, corpus: Corpus, count: int, seed: int) -> None:
        self.corpus, self.count, self.seed = corpus, count, seed
        self.made: dict[str, list[NodeAttack]] = {}
        self.grown: list[GraphAttack] | None = None
        self.useless: list[NodeAttack | GraphAttack] = []

    def again(self, mutation: Mutation, before: Result) -> Result:
        """What becomes of a mutant that was missed: attacks beside those that reach it, and beside its module's."""
        wanted = {(mutation.module, line) for line in range(mutation.line, mutation.last + 1)}
        beside = [each for each in self._of(mutation.module) if not wanted.isdisjoint(each.lines)]
        near = [each for each in self.corpus.nodes if not wanted.isdisjoint(each.lines)]
        drawn = neighbours([*near, *beside], self.count, self.seed)
        nodes = [*beside, *(each for each in drawn if not wanted.isdisjoint(each.lines))]
        found = self._tried(mutation, nodes, [])
        if found.outcome != "caught":
            graphs = [each for each in self._graphs() if not wanted.isdisjoint(each.lines)]
            found = _together(found, self._tried(mutation, [], graphs))
        return _together(before, found)

    def _tried(self, mutation: Mutation, nodes: list[NodeAttack], graphs: list[GraphAttack]) -> Result:
        """Try what finds nothing without the mutation."""
        while True:
            known = set(map(id, self.useless))
            nodes = [each for each in nodes if id(each) not in known]
            graphs = [each for each in graphs if id(each) not in known]
            found = _run(Trial(lambda: plant(mutation), nodes, graphs))
            wrong = _useless(found, nodes, graphs)
            if wrong is None:
                return found
            self.useless.append(wrong)

    def _of(self, module: str) -> list[NodeAttack]:
        if module not in self.made:
            reaching = [each for each in self.corpus.nodes if any(name == module for name, _ in each.lines)]
            self.made[module] = list(neighbours(reaching, self.count, self.seed))
        return self.made[module]

    def _graphs(self) -> list[GraphAttack]:
        """Graphs of the fuzzer that no other attack draws."""
        if self.grown is None:
            found = Harvest()
            for seed in range(FURTHER, FURTHER + self.count):
                if not _finds(functools.partial(_is_kept, Harvest(), seed)):  # a kernel may end its process
                    _is_kept(found, seed)
            self.grown = found.corpus.graphs
        return self.grown


def _together(before: Result, found: Result) -> Result:
    """What two rounds of attacks saw."""
    return dataclasses.replace(
        found, reached=before.reached + found.reached, changed=before.changed + found.changed,
        stricter=before.stricter + found.stricter, detail=found.detail or before.detail,
    )  # fmt: skip


def _useless(
    found: Result, nodes: Sequence[NodeAttack], graphs: Sequence[GraphAttack]
) -> NodeAttack | GraphAttack | None:
    """The attack that caught a mutant, where it finds something without any mutation, too.

    Looked at apart, for it may end its process.
    """
    if found.by_node >= 0:
        node = nodes[found.by_node]
        return node if _finds(lambda: holds(node, TRIALS)) else None
    if found.by_graph >= 0:
        graph = graphs[found.by_graph]
        return graph if _finds(lambda: is_sound(graph)) else None
    return None


def _finds(is_right: Callable[[], bool]) -> bool:
    return in_child(lambda: Result(reached=1) if is_right() else Result(["attack"]), PATIENCE_S).by != []


def weakened_trial(weakening: Weakening, corpus: Corpus, seed: int) -> Trial:
    """The attacks in which a rule spoke, or an operator was refused."""

    def concerns(attack: NodeAttack | GraphAttack) -> bool:
        if weakening.of_refusals:
            return isinstance(attack, NodeAttack) and attack.seen.refused and attack.node.op == weakening.rule
        return any(verdict.rule == weakening.rule for _, verdict in attack.seen.verdicts)

    nodes, graphs = filter(concerns, corpus.nodes), filter(concerns, corpus.graphs)
    return Trial(lambda: None, _shuffled(list(nodes), seed), _shuffled(list(graphs), seed), weakening.wrap)


def _shuffled(attacks: list, seed: int) -> list:  # type: ignore[type-arg]
    """In any order, but those over exported graphs last, as they take longest."""
    order = np.random.default_rng(seed).permutation(len(attacks))
    return sorted((attacks[at] for at in order), key=lambda each: getattr(each, "inputs", None) is not None)


def share(tried: Iterable[Tried]) -> float:
    """Caught mutants among those that are weaker: neither stricter, nor equivalent, nor without code."""
    counts = collections.Counter(each.outcome for each in tried)
    missed = sum(counts[each] for each in MISSED)
    return counts["caught"] / max(counts["caught"] + missed, 1)


def table(tried: Sequence[Tried]) -> str:
    """Markdown: one line per group."""
    heads = ["", "mutants", "caught", *WAYS, "stricter", "equivalent", "survived", "unseen", "unreached", "share"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    groups: dict[str, list[Tried]] = {}
    for each in tried:
        if each.outcome != "stillborn":
            groups.setdefault(each.group, []).append(each)
    for name, members in [*groups.items(), ("all", [each for group in groups.values() for each in group])]:
        counts = collections.Counter(each.outcome for each in members)
        by = collections.Counter(way for each in members for way in each.result.by)
        cells = [name, len(members), counts["caught"], *(by[way] for way in WAYS)]
        cells += [counts[each] for each in ("stricter", "equivalent", *MISSED)]
        lines.append(f"| {' | '.join(map(str, cells))} | {100 * share(members):.1f} % |")
    return "\n".join(lines)


def report(weakened: Sequence[Tried], mutated: Sequence[Tried], command: str) -> str:
    """The page docs/generated/mutants.md."""
    left = [each for each in (*weakened, *mutated) if each.outcome in MISSED]
    same = [each for each in (*weakened, *mutated) if each.outcome == "equivalent"]
    parts = [
        "# Mutants of padding\n", f"Written by `{command}`.\n", INTRODUCTION,
        "## Verdicts, weakened while graphs run\n", table(weakened), seen_share(weakened),
        "\n## Code, mutated\n", table(mutated), seen_share(mutated), "\n## Survivors\n",
        *(f"- `{each.name}`{f' (line {each.line})' if each.line else ''}: {_why(each.result)}." for each in left),
        "\n## Equivalent mutants\n", *(f"- `{each.name}`: {EQUIVALENT[each.name]}" for each in same),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def seen_share(tried: Sequence[Tried]) -> str:
    """A sentence: caught mutants among those that changed what an attack saw."""
    counts = collections.Counter(each.outcome for each in tried)
    seen = counts["caught"] + counts["survived"]
    return f"\nOf {seen} that changed what an attack saw, and not only to stricter, {counts['caught']} were caught."


def _why(result: Result) -> str:
    """Why a mutant was missed."""
    if result.outcome == "unreached":
        return "unreached: no attack executes it"
    if result.outcome == "unseen":
        return f"unseen: the {result.reached} attacks that execute it get the same verdict and graph"
    changed = f"survived: another verdict or graph in {result.changed} of {result.reached} attacks"
    return f"{changed}, {result.stricter} of them only stricter, and none refutes it"


STREAMS = "## Streams"
"""Where the part of the page begins that `tests.property.mutate_streams` writes."""

DERIVATION = "## Derived steps"
"""Where the part of the page begins that `tests.property.mutate_derivation` writes."""


def with_part(page: str, heading: str, part: str) -> str:
    """The page with one of its parts written anew; parts of others stay.

    Args:
        page: in Markdown.
        heading: with which the part begins, `STREAMS` or `DERIVATION`.
        part: what it becomes.
    """
    parts = {STREAMS: "", DERIVATION: ""}
    kept, current = "", ""
    for line in page.splitlines(keepends=True):
        current = line.strip() if line.strip() in parts else current
        if current:
            parts[current] += line
        else:
            kept += line
    parts[heading] = part
    return "\n\n".join(each.strip() for each in (kept, *parts.values()) if each.strip()) + "\n"


INTRODUCTION = """Padding is sound as every rule, mask and fill says what has to hold. This test weakens them one at a
time and asks whether it is noticed. Two sorts of mutants are made.

1. **Verdicts.** While nodes and graphs are judged, every verdict of one rule is weakened in one way: a need is dropped,
   a fill has another number or lies on another axis, padding is claimed to be zero, half as wide or free of NaN, slots
   are miscounted or lie on the other side, rows or padding are forgotten, a size need not be 1, a node that is refused
   is taken as elementwise. All of these mutants are tried.
2. **Code.** One constant, comparison, condition, operator or sign in `compiler/proof` (facts, rules, propagation,
   padding) or `compiler/passes/pad_axes.py` is another one. Of these a sample is drawn by name. Left out of the draw is
   what can only refuse more or claim less, texts of messages, and limits of choice such as 1e-30 that are hit exactly
   (`tests/property/weaker.py`). Unlike verdicts, most of these mutants weaken nothing that is needed by itself: they
   change a computation that another guard covers, or a case that no attack draws.

A mutant is caught by an attack on one rule (`tests/kit/soundness.py`), by the certificate checker
(`compiler/checker`), by the comparison of padded rows with rows alone (graphs of the fuzzer, of the tests, of the zoo
and of every spelling of an operator), or by an error; several may catch it. Of code that these attacks miss, others
are drawn beside them, with another content, layout, size, constant or attribute (`tests/property/neighbours.py`).
Tests that expect a text or a verdict count for nothing. A mutant that only
refuses more or claims less in the attacks is stricter: it is sound and counts for nothing. The others were missed: they
changed something that no attack refutes (survived), changed no verdict and no graph in any attack that executes them
(unseen), or were not executed (unreached). The share is that of the caught among the caught and the missed, without
mutants that are shown by hand to be equivalent.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate and report; 1 when less than the wanted share of the weakened verdicts is caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, help="mutants of code; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one module, such as compiler/proof/padding/valid_slots.py")
    parser.add_argument("--graphs", type=int, default=300, help="graphs of the fuzzer")
    parser.add_argument("--times", type=int, default=1, help="times as many random nodes as the tests draw")
    parser.add_argument("--beside", type=int, default=300, help="attacks drawn beside those that reach a module")
    parser.add_argument("--least", type=float, default=0.95, help="share of the verdicts that has to be caught")
    parser.add_argument("--write", type=Path, help="a page for the report")
    parser.add_argument("--save", type=Path, help="a file for the results")
    parser.add_argument("--saved", type=Path, nargs="*", default=[], help="results of parts of a run, for its page")
    parser.add_argument("--no-weakened", action="store_true", help="code only")
    parser.add_argument("--no-code", action="store_true", help="verdicts only")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    weakened, mutated = _loaded(options.saved)
    if not (options.no_weakened and options.no_code):
        corpus = harvest(test_files(options.only), options.graphs, EXPORTED, options.times, small=True)
        if options.only is None and not options.no_weakened:
            weakened += _weakened(corpus, options.seed)
            _say(started, "verdicts done")
        names = [] if options.no_code else [options.only] if options.only else modules()
        found = chosen([each for name in names for each in mutations_of(name)], options.limit, options.seed)
        mutated += _mutated(found, corpus, options.beside, options.seed)
    if options.save is not None:
        parts = [[dataclasses.asdict(each) for each in part] for part in (weakened, mutated)]
        options.save.write_text(json.dumps(parts))
    command = f"python -m tests.property.mutate {' '.join(arguments if arguments is not None else sys.argv[1:])}"
    page = report(weakened, mutated, command.strip())
    if options.write is not None:
        _, heading, streams = options.write.read_text().partition(f"\n{STREAMS}\n")
        options.write.write_text(f"{page}{heading}{streams}")
    print(page)
    reached = share(weakened) if weakened else 1.0
    _say(started, f"{100 * reached:.1f} % of the verdicts and {100 * share(mutated):.1f} % of the code caught")
    return 0 if reached >= options.least else 1


def _loaded(paths: Sequence[Path]) -> tuple[list[Tried], list[Tried]]:
    """What parts of a run saved: verdicts, and code."""
    both: tuple[list[Tried], list[Tried]] = ([], [])
    for path in paths:
        for part, saved in zip(both, json.loads(path.read_text()), strict=True):
            part += [Tried(**{**each, "result": Result(**each["result"])}) for each in saved]
    return both


def _weakened(corpus: Corpus, seed: int) -> list[Tried]:
    """Try every weakening of the verdicts."""
    tried = []
    for weakening in weakenings_of(corpus):
        result = _run(weakened_trial(weakening, corpus, seed))
        tried.append(Tried(weakening.kind.split(" 0")[0], weakening.key, 0, result))
        _tell(tried[-1])
    return tried


def _mutated(found: Sequence[Mutation], corpus: Corpus, count: int, seed: int) -> list[Tried]:
    """Try mutations of code, those that are missed on attacks beside."""
    tried, beside = [], Beside(corpus, count, seed)
    for mutation in found:
        result = _run(trial_of(mutation, corpus, seed))
        if result.outcome in MISSED:
            result = beside.again(mutation, result)
        tried.append(Tried(mutation.module, mutation.key, mutation.line, result))
        _tell(tried[-1])
    for attack in beside.useless:
        told = attack.node if isinstance(attack, NodeAttack) else attack.name
        print(f"does not run, or is refuted, without a mutation: {told}", flush=True)
    return tried


def _run(trial: Trial) -> Result:
    return in_child(trial.run, trial.seconds * 20)


def _tell(tried: Tried) -> None:
    if tried.outcome in MISSED:
        print(f"{tried.outcome}: line {tried.line} {tried.name} | {tried.result}", flush=True)


def _say(started: float, text: str) -> None:
    print(f"{time.monotonic() - started:.0f} s: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
