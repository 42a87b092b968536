"""The attacks that tests and fuzzer make, collected once, with what each of them executes and what came of it.

A `NodeAttack` is one `check_node`, a `GraphAttack` one graph given to `PadAxes`; both know the lines of compiler/ they
reach, so that a change of a line is tried on the attacks that can notice it.
"""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Array, Lowered, Outcome
from compiler.passes import make_pass
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Verdict
from compiler.proof.propagation import propagate
from compiler.proof.propagation.judge import judge
from tests.kit import judged, soundness
from tests.kit.graphs import copy_of
from tests.kit.slots import Batch, evaluated
from tests.kit.soundness import Node
from tests.property.mutations import modules
from tests.zoo.family import Family, Given
from tests.zoo.prove import PASSES_TO_PADDING, lower

ROOT = Path(__file__).parents[2]

Line = tuple[str, int]
"""A module path such as compiler/proof/padding/lowerings/row_layout.py, and a line of it."""

Rule = Callable[[Case], Verdict]

TRACED = {str(ROOT / name): name for name in modules()}
"""The files whose lines are noted, and their modules."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What one attack showed: the verdicts by node, or the refusal, and a digest of what was written."""

    refused: bool
    verdicts: tuple[tuple[str, Verdict], ...]
    written: bytes


@dataclasses.dataclass(frozen=True)
class NodeAttack:
    """One node, its rule, and how it is attacked; `always_runs` when no draw was without meaning."""

    node: Node
    rule: Rule
    tolerance: float
    extremes: bool
    always_runs: bool
    seen: Seen
    lines: frozenset[Line]


@dataclasses.dataclass(frozen=True)
class GraphAttack:
    """One graph as it is handed to padding; `tolerance` of the comparison of rows.

    Attributes:
        name: for reports.
        lowered: the graph.
        tolerance: of the comparison of rows.
        seen: what padding said and wrote.
        lines: what it executes.
        inputs: what an exported graph takes; None where inputs of any content have a meaning.
    """

    name: str
    lowered: Lowered
    tolerance: float
    seen: Seen
    lines: frozenset[Line]
    inputs: Mapping[str, Given] | None = None


@dataclasses.dataclass
class Corpus:
    """All attacks."""

    nodes: list[NodeAttack] = dataclasses.field(default_factory=list)
    graphs: list[GraphAttack] = dataclasses.field(default_factory=list)


class Tracer:
    """Collects the lines of what is mutated that are executed while it is on.

    Args:
        files: whose lines are noted, and their modules.
    """

    def __init__(self, files: Mapping[str, str] = TRACED) -> None:
        self.files = files
        self.lines: set[Line] = set()

    def _enter(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        name = self.files.get(frame.f_code.co_filename)
        if name is None:
            return None
        self.lines.add((name, frame.f_lineno))

        def step(frame: types.FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                self.lines.add((name, frame.f_lineno))
            return step

        return step

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Trace within; nothing happens where tracing is on already."""
        if sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)


def written_by(model: ir.Model) -> bytes:
    """A digest of a graph."""
    return hashlib.sha256(graphs.serialized(model)).digest()


def look_at_graph(lowered: Lowered, wrap: Callable[[Rule], Rule] = lambda rule: rule) -> tuple[Seen, Outcome | None]:
    """Pad a copy: what was judged and written, and the outcome unless it was refused."""
    verdicts: list[tuple[str, Verdict]] = []

    rule = wrap(judge)

    def recording(case: Case) -> Verdict:
        verdict = rule(case)
        verdicts.append((str(case.node.name), verdict))
        return verdict

    copy = copy_of(lowered)
    try:
        with mock.patch.object(propagate, "judge", recording):
            outcome = PadAxes().apply(copy)
    except Refused:
        return Seen(True, tuple(verdicts), b""), None
    proof = json.dumps(outcome.records, sort_keys=True, default=str).encode()
    return Seen(False, tuple(verdicts), written_by(outcome.lowered.model) + hashlib.sha256(proof).digest()), outcome


class Prepared(soundness._Attack):
    """An attack up to its sessions, which take most of the time and are opened on demand."""

    def __init__(self, node: Node, rule: Rule) -> None:
        self.always_runs = True
        with mock.patch.object(soundness, "_session"):
            super().__init__(node, rule)

    freed: tuple[Dim, ...] = ()
    """Sizes that had to be 1 and need not any more: lengths are drawn for which they are not."""

    def _batch(self, rng: np.random.Generator, alike: bool) -> Batch | None:
        if not self.freed:
            return super()._batch(rng, alike)
        node = self.node
        self.node = dataclasses.replace(node, least=dict.fromkeys(self.names, 0))
        try:
            batch = super()._batch(rng, alike)
        finally:
            self.node = node
        if batch is None or batch.slots["batch"] < 1:
            return None
        return batch if any(evaluated(size, row) < 1 for size in self.freed for row in batch.rows) else None

    def open(self) -> None:
        """Open the sessions."""
        self.sessions = [soundness._session(model, self._fed()) for model in (self.padded, self.alone)]

    def _outputs(self, which: int, feeds: Mapping[str, Array]) -> list[Array]:
        try:
            return super()._outputs(which, feeds)
        except RuntimeError:
            self.always_runs = False
            raise

    @property
    def seen(self) -> Seen:
        """The verdict, and the forms that it asked for."""
        return Seen(False, (("target", self.verdict),), written_by(self.padded))


REFUSAL = Seen(True, (), b"")


class Harvest:
    """Runs test files and keeps their attacks.

    Args:
        times: how many times as many random nodes are drawn as the tests draw.
    """

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self.corpus = Corpus()
        self.known: set[str] = set()

    def tests(self, files: Sequence[Path]) -> None:
        """Collect every `check_node` and every graph that is padded in test files."""
        with (
            mock.patch.object(soundness, "_Attack", self._recorder()),
            mock.patch.object(PadAxes, "apply", self._padder()),
            mock.patch.object(judged, "TIMES", self.times),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *map(str, files)])

    def nodes(self, nodes: Iterable[Node], rules: Sequence[Rule]) -> None:
        """Collect nodes, each under every rule."""
        with mock.patch.object(soundness, "_Attack", self._recorder()):
            for node, rule in itertools.product(nodes, rules):
                try:
                    soundness.check_node(node, rule=rule, trials=1)
                except Refused:
                    continue
                except Exception as error:  # noqa: BLE001 - a node that the operator does not allow, or without lengths
                    print(f"does not run: {type(error).__name__}: {str(error)[:100]}", flush=True)

    def _recorder(self) -> type:
        harvest = self

        class Recorded(Prepared):
            def __init__(self, node: Node, rule: Rule) -> None:
                self.tracer = Tracer()
                self.told: tuple[Node, Rule] | None = (node, rule)
                try:
                    with self.tracer.on():
                        super().__init__(node, rule)
                except Refused:
                    harvest._keep(NodeAttack(node, rule, 1e-5, False, False, REFUSAL, frozenset(self.tracer.lines)))
                    raise
                self.open()

            def run(self, rng: Any, trial: int, tolerance: float, extremes: bool) -> None:
                if self.told is None:  # one batch shows whether it runs; the tests draw more
                    return
                super().run(rng, trial, tolerance, extremes)
                (node, rule), self.told = self.told, None
                lines = frozenset(self.tracer.lines)
                harvest._keep(NodeAttack(node, rule, tolerance, extremes, self.always_runs, self.seen, lines))

        return Recorded

    def _keep(self, attack: NodeAttack) -> None:
        arrays = [each.array for node in (attack.node, *attack.node.then) for each in node.operands if each]
        key = f"{attack.node!r}{arrays}{attack.rule.__qualname__}"
        if key not in self.known:
            self.known.add(key)
            self.corpus.nodes.append(attack)

    def _padder(self) -> Callable[[PadAxes, Lowered], Outcome]:
        apply = PadAxes.apply

        def padded(pass_: PadAxes, lowered: Lowered) -> Outcome:
            key = graphs.serialized(lowered.model).hex()
            if key not in self.known and not lowered.is_padded:
                self.known.add(key)
                with mock.patch.object(PadAxes, "apply", apply):
                    self.graph(f"a graph of the tests, {len(self.corpus.graphs)}", lowered)
            return apply(pass_, lowered)

        return padded

    def exported(self, family: Family) -> None:
        """Add an exported graph, as it comes to padding."""
        lowered = lower(family)
        for name in PASSES_TO_PADDING[:-1]:
            lowered = make_pass(name, {}).apply(lowered).lowered
        self.graph(family.name, lowered, inputs=family.inputs)

    def graph(
        self, name: str, lowered: Lowered, tolerance: float = 1e-4, inputs: Mapping[str, Given] | None = None
    ) -> None:
        """Add one graph."""
        tracer, origin = Tracer(), copy_of(lowered)
        with tracer.on():
            seen, _ = look_at_graph(lowered)
        self.corpus.graphs.append(GraphAttack(name, origin, tolerance, seen, frozenset(tracer.lines), inputs))
