"""One mutation under attack: what it changes is looked at first, and attacked only where it changed.

Each trial runs in a process of its own, forked off with all attacks at hand.
"""

import dataclasses
import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.proof.facts.facts import Fact, Rewrite, Verdict
from tests.kit.contract import ContractBroken, check_meaning, check_padding, check_rows
from tests.kit.graphs import copy_of
from tests.kit.offline import Differs, Edges, check_padded
from tests.kit.soundness import Unsound
from tests.property.corpus import GraphAttack, NodeAttack, Prepared, Rule, Seen, look_at_graph
from tests.property.fuzz import EDGES
from tests.property.mutations import Stillborn
from tests.zoo.families import FAMILIES
from tests.zoo.family import DEFAULT_SIZES
from tests.zoo.measure import Attack, WrongSize, runs

TRIALS = 8
"""Batches drawn per node."""

CONTENTS: tuple[Edges, ...] = ("none", "none", *EDGES)
"""What whole graphs hold at valid places, one batch after the other."""

LONGEST = 40
"""Seconds of the processor after which a mutant is taken not to end, however busy the machine is."""

WAYS = ("attack", "checker", "comparison", "crash")
"""What can catch a mutant: an attack on one rule, the certificate checker, the comparison of whole graphs, an error."""


@dataclasses.dataclass
class Result:
    """What became of one mutant.

    Attributes:
        by: which of `WAYS` caught it.
        reached: attacks that execute it.
        changed: attacks in which it changed a verdict or a graph.
        stricter: those of them in which it only refused or said less.
        detail: the first thing that caught it, or was changed and not caught.
        stillborn: there was nothing to change.
        by_node: the place among the attacks on nodes of the one that caught it; -1 where none did.
        by_graph: the place among the graphs of the one that caught it; -1 where none did.
    """

    by: list[str] = dataclasses.field(default_factory=list)
    reached: int = 0
    changed: int = 0
    stricter: int = 0
    detail: str = ""
    stillborn: bool = False
    by_node: int = -1
    by_graph: int = -1

    @property
    def outcome(self) -> str:
        """`caught`, `stricter`, `unseen` where nothing changed, `unreached`, or `survived`."""
        if self.stillborn:
            return "stillborn"
        if self.by:
            return "caught"
        if not self.reached:
            return "unreached"
        if not self.changed:
            return "unseen"
        return "stricter" if self.stricter == self.changed else "survived"

    def caught(self, way: str, detail: str) -> None:
        """Note what caught it."""
        if not self.by or (not self.detail and detail):
            self.detail = " ".join(detail.split())[:160]
        if way not in self.by:
            self.by.append(way)


def as_it_is(rule: Rule) -> Rule:
    """No change of a rule."""
    return rule


@dataclasses.dataclass(frozen=True)
class Trial:
    """A mutant and what to try on it.

    Attributes:
        plant: puts the mutation in place.
        wrap: of the rule that judges; for verdicts that are weakened.
        nodes: attacks that reach it.
        graphs: graphs that reach it.
        seconds: of the processor to spend while nothing catches it.
    """

    plant: Callable[[], None]
    nodes: Sequence[NodeAttack]
    graphs: Sequence[GraphAttack]
    wrap: Callable[[Rule], Rule] = as_it_is
    seconds: float = 8.0

    def run(self) -> Result:
        """Plant the mutation and attack. To be called in a process that ends afterwards."""
        result = Result(reached=len(self.nodes) + len(self.graphs))
        try:
            self.plant()
        except Stillborn:
            return Result(stillborn=True)
        stop = time.process_time() + self.seconds
        for at, node in enumerate(self.nodes):
            if time.process_time() > stop or result.by:
                break
            self._node(node, result)
            result.by_node = at if result.by else -1
        stop = time.process_time() + 1 if result.by else stop + 6  # exported graphs take a second each
        tried = 0
        by_nodes = list(result.by)
        for at, graph in enumerate(self.graphs):
            if time.process_time() > stop or tried >= (1 if result.by else 20):
                break
            tried += self._graph(graph, result)
            if result.by_graph < 0 and result.by != by_nodes:
                result.by_graph = at
        return result

    def _node(self, attack: NodeAttack, result: Result) -> None:
        try:
            prepared = Prepared(attack.node, self.wrap(attack.rule))
        except Refused:
            _count(result, changed=not attack.seen.refused, stricter=True)
            return
        except Exception as error:  # noqa: BLE001 - whatever stops the compiler is noticed
            result.changed += 1
            result.caught("crash", f"{type(error).__name__}: {error}")
            return
        seen = prepared.seen
        if seen == attack.seen:
            return
        _count(result, changed=True, stricter=says_no_more(seen, attack.seen))
        if not attack.seen.refused and _same_but_told(seen, attack.seen):
            return
        try:
            prepared.open()
            required = set(prepared.verdict.at_least_one)
            prepared.freed = tuple(
                size for _, was in attack.seen.verdicts for size in was.at_least_one if size not in required
            )
            rng = np.random.default_rng(0)
            for trial in range(TRIALS):
                prepared.run(rng, trial, max(attack.tolerance, 1e-5), attack.extremes)
        except Unsound as error:
            result.caught("attack", f"{attack.node.op}: {error}")
        except AssertionError as error:
            if "no lengths and contents" not in str(error):
                result.caught("crash", f"AssertionError: {error}")
        except Exception as error:  # noqa: BLE001 - a graph that does not load was written by the mutant
            result.caught("crash", f"{type(error).__name__}: {error}")
        if attack.always_runs and not prepared.always_runs and not attack.seen.refused:
            result.caught("attack", f"{attack.node.op}: lengths are allowed that have no meaning")

    def _graph(self, attack: GraphAttack, result: Result) -> int:
        try:
            seen, outcome = look_at_graph(attack.lowered, self.wrap)
        except Exception as error:  # noqa: BLE001 - whatever stops the compiler is noticed
            result.changed += 1
            result.caught("crash", f"{type(error).__name__}: {error}")
            return 1
        if seen.written == attack.seen.written and seen.refused == attack.seen.refused:
            return 0
        _count(result, changed=True, stricter=outcome is None or says_no_more(seen, attack.seen))
        if outcome is None:
            return 0
        for way, message in found_in(attack, outcome):
            result.caught(way, f"{attack.name}: {message}")
        return 1


def _count(result: Result, *, changed: bool, stricter: bool) -> None:
    result.changed += changed
    result.stricter += changed and stricter


def _same_but_told(seen: Seen, before: Seen) -> bool:
    """Whether only the name of the rule or its reason is another."""
    plain = [
        [dataclasses.replace(verdict, rule="", reason="") for _, verdict in each.verdicts] for each in (seen, before)
    ]
    return plain[0] == plain[1] and seen.written == before.written


def says_no_more(seen: Seen, before: Seen) -> bool:
    """Whether every verdict claims no more than before, and needs no less."""
    if seen.refused:
        return True
    if before.refused or [name for name, _ in seen.verdicts] != [name for name, _ in before.verdicts]:
        return False
    pairs = zip(seen.verdicts, before.verdicts, strict=True)
    told = [(verdict, was) for (_, verdict), (_, was) in pairs if verdict != was]
    return bool(told) and all(_is_weaker(verdict, was) for verdict, was in told)


def _is_weaker(verdict: Verdict, was: Verdict) -> bool:
    if len(verdict.outputs) != len(was.outputs) or (verdict.pointwise and not was.pointwise):
        return False
    rewritten = [[need for need in each.needs if isinstance(need, Rewrite)] for each in (verdict, was)]
    return (
        rewritten[0] == rewritten[1]
        and set(was.needs) <= set(verdict.needs)
        and set(was.at_least_one) <= set(verdict.at_least_one)
        and all(_allows(fact, old) for fact, old in zip(verdict.outputs, was.outputs, strict=True))
    )


def _allows(fact: Fact, was: Fact) -> bool:
    if (fact.axes, fact.is_number) != (was.axes, was.is_number) or fact.index not in (None, was.index):
        return False
    for region in was.regions:
        now, then = fact.content(region), was.content(region)
        if now.low > then.low or now.high < then.high or (then.nan and not now.nan):
            return False
    return True


# --- whole graphs -----------------------------------------------------------------------------------------------------


def found_in(attack: GraphAttack, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """What the checker and the comparison with rows alone say against a padded graph."""
    origin = copy_of(attack.lowered)
    graphs.infer_shapes(origin.model)
    before = ir.serde.serialize_model(origin.model)
    after = ir.serde.serialize_model(outcome.lowered.model)
    try:
        check(before, after, json.loads(json.dumps(outcome.records[0], default=str)))
    except Rejected as error:
        yield "checker", str(error)
    except Exception as error:  # noqa: BLE001 - a certificate that cannot be read is none
        yield "checker", f"{type(error).__name__}: {error}"
    try:
        if attack.inputs is not None:
            measure(attack, outcome)
        else:
            compare(attack.lowered, outcome, attack.tolerance)
    except (Differs, ContractBroken, WrongSize) as error:
        yield "comparison", str(error)
    except Exception as error:  # noqa: BLE001 - it ran before the mutation
        yield "comparison", f"does not run: {type(error).__name__}: {error}"


def compare(lowered: Lowered, outcome: Outcome, tolerance: float) -> None:
    """Compare a padded graph with its rows alone.

    Raises:
        Differs: a row of a graph over whole utterances differs.
        ContractBroken: a stream differs.
    """
    if not lowered.caches:
        rows = 1 if lowered.batch_axis is None else 3
        for seed, edges in enumerate(CONTENTS):
            check_padded(lowered, outcome, seed=seed, rows=rows, tolerance=tolerance, edges=edges)
        return
    rows = 1 if lowered.batch_axis is None else 2
    check_meaning(lowered, outcome.lowered, tolerance, 8, rows)
    if lowered.batch_axis is not None:
        check_rows(outcome.lowered, 4)
    check_padding(outcome.lowered, 6)


def measure(attack: GraphAttack, outcome: Outcome) -> None:
    """Compare an exported graph, as the zoo does.

    Raises:
        Differs: a row differs, or shows what lies in the padding or in other rows.
    """
    assert attack.inputs is not None
    padded = outcome.lowered
    graphs.infer_shapes(padded.model)
    attacked = Attack(attack.lowered.model, padded.model, attack.inputs, padded.padded_axes)
    sizes = {**DEFAULT_SIZES, **next(each.sizes for each in FAMILIES if each.name == attack.name)}
    rows = 1 if padded.batch_axis is None else 3
    batches = list(runs(padded.padded_axes, sizes, np.random.default_rng(1), rows=rows))[1:2]
    measured = attacked.measure(batches)
    if not measured.is_sound:
        raise Differs(f"{measured}")


def is_sound(attack: GraphAttack) -> bool:
    """Whether nothing is said against a graph without any mutation; others are of no use."""
    _, outcome = look_at_graph(attack.lowered)
    return outcome is None or (bool(outcome.records) and not list(found_in(attack, outcome)))


# --- processes --------------------------------------------------------------------------------------------------------


def in_child(run: Callable[[], Result], seconds: float) -> Result:
    """Run in a forked process; one that ends early or not at all counts as caught by a crash."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            try:
                gc.disable()  # a session of the parent has threads that are not here: to free it ends the process
                resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
                result = run()
            except Exception as error:  # noqa: BLE001 - whatever a mutant raises ends its process
                result = Result(["crash"], 1, 1, 0, f"{type(error).__name__}: {error}")
            os.write(write, json.dumps(dataclasses.asdict(result)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], seconds)
        text = os.read(read, 1 << 16) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(read)
        os.waitpid(child, 0)
    if not text:
        return Result(["crash"], 1, 1, 0, "the process ended" if ready else "the process did not end")
    return Result(**json.loads(text))
