"""Finds a minimal set of subgraphs of a graph whose own errors make a parity gate fail.

1. Local errors: every subgraph is run on the values of the graph before the pass (`forced_values`).
2. Suspects: subgraphs whose local error is larger than the rounding of the pass explains (`explained_rounding`).
3. Confirmation: the suspects' own errors are taken away (`corrections`); if the gate holds then, the set is
   thinned out until every member is needed. What stays is sufficient, and none of it is superfluous.
4. Without suspects that suffice: a few subgraphs that cause most of the error although each rounds no worse than it
   must (they must not be rounded); otherwise the error is spread over many nodes, and the search reports that.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from compiler.build.culprits.corrections import Injection, Trial, corrections
from compiler.build.culprits.local_errors import local_errors
from compiler.build.culprits.records import Culprit, Findings, LocalError, TensorStatistics
from compiler.build.culprits.reexpressed_values import reexpressed
from compiler.build.verify.differences import compare, worst_of
from compiler.build.verify.explained_rounding import rounding_of
from compiler.graph import model as graphs
from compiler.graph.operators.traits import MOVING, QUANTIZING
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.coded_states import codes_of
from compiler.graph.runners.forced_values import TeacherForcedRun, TeacherForcedRuns, common_values, read_by, section_of
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Array, Lowered
from compiler.recipe.gates import Tolerance

BEYOND = 8.0
"""A local error is a suspect from this multiple of the explained error on; as a confirmation follows, it may be low."""

SUSPECTS = 24
"""Regions that are corrected at most; each costs a run of the recorded calls or two."""

FEW = 3
"""Regions that may be named although their rounding explains them, if they cause most of the error."""

MOST = 0.75
"""Share of the power of the error that counts as most of it."""

LEADING = 0.5
"""Share of the power of the error from which on suspects are named although the rest is too much as well."""

BETTER = 0.05
"""Share of the power that must go for a suspect to be taken into account."""

LOOKED_AT = 2
"""Calls of which the first tells which values a pass holds in another form; one may be a first call of its own."""

CALLS = (12, 64)
"""Calls to look at, if the gate fails on so few; otherwise all."""

ROUNDED = 0.005
"""A constant that is off by no more of its largest number has been rounded: to eight bits, at the coarsest."""

NOT_TO_BLAME = MOVING | QUANTIZING | {"Cast"}
"""Operators that are not to blame while a section has others: they move numbers or change their type."""

Advance = Callable[[int, int], None]


def find_culprits(
    before: Lowered,
    after: Lowered,
    steps: Sequence[OriginalCall],
    limits: Tolerance,
    *,
    optimize: bool = False,
    advance: Advance = lambda done, total: None,
) -> Findings | None:
    """Find the nodes that make a graph fail its gate.

    Args:
        before: the graph that passes the gate.
        after: the graph that fails it.
        steps: the original's calls, in order.
        limits: tolerance of the gate, for `after`.
        optimize: whether the runtime may rewrite `after`.
        advance: called with the number of finished runs, and their total.

    Returns:
        The findings, or None where the gate holds on these steps.
    """
    if before.first_call is not None and after.first_call is not None and _fails(after, steps[:1], limits):
        alone = [dataclasses.replace(steps[0], states={})]
        return _Search(first_of(before), first_of(after), alone, limits, optimize, advance).run()
    if before.first_call is not None and after.first_call is None:
        merged = dataclasses.replace(before, first_call=None)  # the later call on empty caches is the first
        before = before if _fails(merged, steps[: CALLS[0]], limits) else merged
    counts = [count for count in CALLS if count < len(steps)]
    for count in (*counts, len(steps)):
        search = _Search(before, after, steps[:count], limits, optimize, advance)
        if search.fails():
            return search.run()
    return None


def _fails(lowered: Lowered, steps: Sequence[OriginalCall], limits: Tolerance) -> bool:
    return not worst_of(compare(lowered, runner_of(lowered), steps), limits).holds(limits)


def first_of(lowered: Lowered) -> Lowered:
    """Return the graph of the first call as the only graph, with the outputs named as those of later calls."""
    assert lowered.first_call is not None
    model = graphs.clone(lowered.first_call)
    for value, name in zip(model.graph.outputs, graphs.outputs_named(lowered.model), strict=True):
        value.name = name
    return dataclasses.replace(lowered, model=model, first_call=None, states=(), caches=(), state_maps=())


class _Search:
    def __init__(
        self,
        before: Lowered,
        after: Lowered,
        steps: Sequence[OriginalCall],
        limits: Tolerance,
        optimize: bool,
        advance: Advance,
    ) -> None:
        self.before, self.after, self.steps, self.limits = before, after, steps, limits
        self.optimize, self.advance = optimize, advance
        self.names: list[str] = []
        self.kept: dict[tuple[str, ...], TeacherForcedRuns] = {}
        self.done, self.total = 0, 2 * len(steps) + 2 * SUSPECTS

    def run(self) -> Findings:
        common = common_values(self.before, self.after)
        other_form = reexpressed(self.after, common, self._first_forced_run)
        self.names = [name for name in common if name not in other_form]
        errors = self._local_errors()
        by_tensor = {local.tensor: local for local in errors}
        by_beyond = sorted(errors, key=lambda local: -local.beyond)
        suspects = [local.tensor for local in by_beyond if local.beyond > BEYOND][:SUSPECTS]
        by_size = [local.tensor for local in sorted(errors, key=lambda local: -local.relative) if local.error]
        others = [name for name in by_size if name not in suspects][: max(SUSPECTS - len(suspects), FEW)]
        injection = self._injection([*suspects, *others])
        whole = self._tried(injection, ())
        chosen, beyond, replace = self._sufficient(injection, suspects), True, False
        if chosen is None:
            chosen, replace = self._replaceable(injection, suspects), True
        if chosen is None:
            chosen, beyond, replace = self._dominating(injection, whole), False, False
        if chosen is None:
            chosen, beyond = self._leading(injection, suspects, whole), True
        ranked = sorted(injection.names, key=lambda name: self._tried(injection, (name,)).power)
        named = chosen or tuple(ranked[:FEW])
        forced_run = self._forced_run_of(by_tensor[named[0]].step) if named else None
        culprits = tuple(
            self._culprit(by_tensor[name], forced_run, _share(whole, self._tried(injection, (name,))))
            for name in named
            if forced_run is not None
        )
        return Findings(
            culprits=culprits if chosen else (),
            beyond=beyond,
            parts=() if chosen else culprits,
            sections=len(errors),
            differing=len(by_size),
            worst=by_beyond[0] if by_size else None,
            used=whole.used,
            left=self._tried(injection, chosen or (), replace=replace and bool(chosen)).used,
            names=tuple(self.names),
            forced_run=forced_run,
            before=self.before,
            after=self.after,
        )

    def fails(self) -> bool:
        """Whether the gate fails on these steps."""
        runner = runner_of(self.after, optimize=self.optimize)
        return not worst_of(compare(self.after, runner, self.steps), self.limits).holds(self.limits)

    def _forced_runs(self, names: Sequence[str] | None = None) -> TeacherForcedRuns:
        key = tuple(self.names if names is None else names)
        if key not in self.kept:
            self.kept = {key: TeacherForcedRuns(self.before, self.after, key, optimize=self.optimize)}  # one is large
        return self.kept[key]

    def _first_forced_run(self, names: Sequence[str]) -> TeacherForcedRun | None:
        return next(self._forced_runs(names).run(self.steps[:LOOKED_AT]), None)

    def _advance(self) -> None:
        self.done += 1
        self.advance(min(self.done, self.total), self.total)

    def _local_errors(self) -> list[LocalError]:
        roundings = {name: rounding_of(self._region(name)) for name in [*self.names, *self._states()]}
        return local_errors(self._forced_runs(), self.steps, roundings, self._advance)

    def _region(self, name: str) -> tuple[ir.Node, ...]:
        return section_of(self.after, name, set(self.names) - {name})

    def _states(self) -> list[str]:
        """Return the outputs that are states without a value of that name in the graph before, except codes."""
        made = {str(output.name) for node in self.after.model.graph for output in node.outputs} - set(self.names)
        states = [state for state in self.after.states if state.output in made]
        return [state.output for state in states if codes_of(self.after, state.input) is None]

    def _injection(self, names: Sequence[str]) -> Injection:
        kept = {}
        for forced_run in self._forced_runs().run(self.steps) if names else ():
            kept[forced_run.step] = corrections(forced_run, names)
            self._advance()
        return Injection(self.after, names, self.steps, kept, self.limits, optimize=self.optimize)

    def _tried(self, injection: Injection, corrected: Sequence[str], *, replace: bool = False) -> Trial:
        self._advance()
        return injection.without(corrected, replace=replace)

    def _sufficient(self, injection: Injection, suspects: Sequence[str]) -> tuple[str, ...] | None:
        """Return a minimal set of suspects whose correction suffices; None if there is none."""
        if not suspects:
            return None
        enough = self._prefix(injection, suspects) or self._improving(injection, suspects)
        if self._tried(injection, enough).used > 1.0:
            return None
        for name in reversed(enough):  # the least suspicious first
            fewer = tuple(each for each in enough if each != name)
            if fewer and self._tried(injection, fewer).used <= 1.0:
                enough = fewer
        return enough

    def _replaceable(self, injection: Injection, suspects: Sequence[str]) -> tuple[str, ...] | None:
        """Return suspects that each improve the result, and suffice if replaced by right values; else None."""
        chosen = self._improving(injection, suspects)
        return chosen if chosen and self._tried(injection, chosen, replace=True).used <= 1.0 else None

    def _leading(self, injection: Injection, suspects: Sequence[str], whole: Trial) -> tuple[str, ...] | None:
        """Return suspects that cause most of the error, where the rest fails as well; else None."""
        chosen = self._improving(injection, suspects) if suspects else ()
        left = self._tried(injection, chosen).power
        return chosen if chosen and left <= (1.0 - LEADING) * whole.power else None

    def _prefix(self, injection: Injection, suspects: Sequence[str]) -> tuple[str, ...] | None:
        """Return the fewest of the first suspects that suffice, by bisection."""
        if self._tried(injection, suspects).used > 1.0:
            return None
        low, high = 1, len(suspects)
        while low < high:
            middle = (low + high) // 2
            if self._tried(injection, suspects[:middle]).used <= 1.0:
                high = middle
            else:
                low = middle + 1
        return tuple(suspects[:high])

    def _improving(self, injection: Injection, suspects: Sequence[str]) -> tuple[str, ...]:
        """Return the suspects whose correction improves the result, added one after the other; errors may cancel."""
        chosen: tuple[str, ...] = ()
        best = self._tried(injection, ())
        for name in suspects:
            trial = self._tried(injection, (*chosen, name))
            if trial.power < (1.0 - BETTER) * best.power or trial.used <= 1.0 < best.used:
                chosen, best = (*chosen, name), trial
            if best.used <= 1.0:
                break
        return chosen

    def _dominating(self, injection: Injection, whole: Trial) -> tuple[str, ...] | None:
        """Return a few sections whose correction satisfies the gate and removes most of the error; else None."""
        ranked = sorted(injection.names, key=lambda name: self._tried(injection, (name,)).power)
        for count in range(1, FEW + 1):
            trial = self._tried(injection, ranked[:count])
            if ranked and trial.used <= 1.0 and trial.power <= (1.0 - MOST) * whole.power:
                return tuple(ranked[:count])
        return None

    def _forced_run_of(self, step: int) -> TeacherForcedRun:
        return next(forced_run for forced_run in self._forced_runs().run(self.steps) if forced_run.step == step)

    def _culprit(self, local: LocalError, forced_run: TeacherForcedRun, share: float | None) -> Culprit:
        nodes = self._region(local.tensor)
        read = [str(value.name) for value in read_by(nodes)]
        before, after = [], []
        for name in (*read, local.tensor):
            right = forced_run.before.get(name, forced_run.inputs_before.get(name))
            got = forced_run.own.get(name, forced_run.inputs_after.get(name))
            before += [] if right is None else [TensorStatistics.of(name, right)]
            after += [] if got is None else [TensorStatistics.of(name, got)]
        return Culprit(local, self._first_to_see(nodes), nodes, share, tuple(before), tuple(after))

    def _first_to_see(self, nodes: Sequence[ir.Node]) -> ir.Node:
        """Return the node of a section to report: the last that has changed, is new, or reads new values."""
        old = {str(output.name): node for node in self.before.model.graph for output in node.outputs}
        known = {node: old[str(node.outputs[0].name)] for node in nodes if str(node.outputs[0].name) in old}
        other = [node for node, was in known.items() if not _does_the_same(node, was)]
        added = [node for node in nodes if node not in known]
        reads = [node for node, was in known.items() if _names(node) != _names(was)]
        for group in (other, added, reads, nodes):
            computing = [node for node in group if node.op_type not in NOT_TO_BLAME]
            if computing:
                return computing[-1]
        return ([*other, *added, *reads] or list(nodes))[-1]


def _names(node: ir.Node) -> list[str]:
    return [str(value.name) for value in node.inputs if value is not None and graphs.array_of(value) is None]


def _does_the_same(node: ir.Node, old: ir.Node) -> bool:
    """Whether a node has the operator, attributes and, up to rounding, constants of a node before the pass."""
    if (node.op_type, node.domain) != (old.op_type, old.domain) or len(node.inputs) != len(old.inputs):
        return False
    if repr(sorted(node.attributes.items())) != repr(sorted(old.attributes.items())):
        return False
    pairs = [(graphs.array_of(a), graphs.array_of(b)) for a, b in zip(node.inputs, old.inputs, strict=True)]
    return all(a is None or b is None or _is_rounded(a, b) for a, b in pairs)


def _is_rounded(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    exact = b.astype(np.float64)
    return bool(np.allclose(a.astype(np.float64), exact, rtol=0.0, atol=ROUNDED * np.max(np.abs(exact), initial=0.0)))


def _share(whole: Trial, trial: Trial) -> float | None:
    if not np.isfinite(whole.power) or not np.isfinite(trial.power) or not whole.power:
        return None
    return 1.0 - trial.power / whole.power
