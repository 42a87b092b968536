"""Proves how padding and batching act on LSTM, GRU and RNN, and refuses If, Loop and Scan (rules RN).

Rule ids: RN1 outputs see what came before only, RN2 true lengths are given, RN3 the model gives lengths that suffice.
"""

import dataclasses

import numpy as np

from compiler.graph.lengths.symbolic_values import same, symbolic_values_of
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames
from compiler.proof.facts.length_data import spread_per_row, uniform_source
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.rules.convolution import largest_sum

LONGEST = 2.0**24
"""Steps that a recurrence is taken to make at most."""

ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
"""Activations per direction where none are named; with them states are bounded."""

LENGTHS, HIDDEN, CELL = 4, 5, 6
"""Optional inputs: true lengths, initial states."""


@dataclasses.dataclass(frozen=True)
class Run:
    """How a network runs along time.

    Attributes:
        frames: layout of time, or None when it is fixed.
        batch: layout of the batch axis, or None.
        has_lengths: whether true lengths are given, by the model or by the padded form.
    """

    frames: Frames | None
    batch: Axis | None
    has_lengths: bool


def recurrent(case: Case) -> Verdict:
    """Judge LSTM, GRU, RNN over [time, batch, features].

    A forward output depends on earlier frames alone, so never on the padding behind. Final states and reverse
    directions depend on it, so they get true lengths.
    """
    if case.int_attribute("layout", 0):
        raise refuse(f"{case.op} with the batch in front (layout 1), which runtimes lack", "export time first")
    case.refuse_rows(0, 0, "runs along")
    frames, batch = case.simple_frames(0, 0), case.fact().axis(1)
    are_true = _lengths_per_row(case, frames)
    _check_operands(case)
    rule, reason = ("RN2", "true lengths are given") if are_true else _needed(case, frames)
    if rule == "RN2":
        if batch is None and case.batch is not None:
            raise refuse(f"{case.op} of a value that all rows share", "give the value a batch axis")
        case.rewrite("sequence_lens")
    run = Run(frames, batch, rule == "RN2" or case.has(LENGTHS))
    outputs = [_states(case, run), *(_last(case, run, output) for output in range(1, len(case.node.outputs)))]
    return case.verdict(rule, reason, *outputs, pointwise=frames is None)


def _lengths_per_row(case: Case, frames: Frames | None) -> bool:
    """Compute lengths that depend on axis lengths per row; return whether they are the true lengths of time."""
    if not case.has(LENGTHS) or not case.fact(LENGTHS).is_number:
        return False
    value = case.node.inputs[LENGTHS]
    alike = uniform_source(value)
    known = symbolic_values_of(value if alike is None else alike)
    is_true = frames is not None and frames.is_suffix_padded and known is not None and same(known[0], frames.size)
    if is_true:
        case.facts[LENGTHS] = None
    else:
        spread_per_row(case)
    return is_true


def _needed(case: Case, frames: Frames | None) -> tuple[str, str]:
    """Return the name of the rule that holds, and the reason.

    Raises:
        Refused: the recurrence would pass padding before a valid entry.
    """
    if frames is None:
        return "RN1", "time is not padded"
    direction = str(case.attribute("direction", "forward"))
    reads_last = any(output.uses() or output.is_graph_output() for output in case.node.outputs[1:])
    if frames.is_suffix_padded:
        if case.has(LENGTHS):
            return "RN3", "the lengths that the model gives end before the padding"
        if direction == "forward" and not reads_last:
            return "RN1", "a forward output sees what came before"
        return "RN2", "true lengths are given"
    if frames.is_prefix_padded and direction == "reverse" and not reads_last and not case.has(LENGTHS):
        return "RN1", "a reverse output sees what comes behind"
    raise refuse(
        f"{case.op} of direction {direction} along {frames}: it would pass padding first",
        "run over the new frames alone and carry the state",
    )


def _check_operands(case: Case) -> None:
    """Require that weights are shared by all rows, and that states and lengths have the layout of the batch."""
    rows = case.fact().axis(1)
    if case.fact().axis(2) is not None or case.fact().is_number:
        raise refuse(f"{case.op} of features that are padded or hold the batch", "keep time, batch and features apart")
    for operand in case.present[1:]:
        fact = case.fact(operand)
        expected = {LENGTHS: {0: rows}, HIDDEN: {1: rows}, CELL: {1: rows}}.get(operand, {})
        if fact.is_number or fact.tracked != {
            axis_number: axis for axis_number, axis in expected.items() if axis is not None
        }:
            what = {LENGTHS: "lengths", HIDDEN: "an initial state", CELL: "an initial cell state"}.get(
                operand, "weights"
            )
            raise refuse(
                f"{case.op} with {what} laid out as {fact}, not as the batch axis",
                "let all rows share weights, and make states and lengths of the size of the batch",
            )
    if case.has(LENGTHS) and case.fact(LENGTHS).padded:
        raise refuse(f"{case.op} with lengths of padded rows", "leave sequence_lens out")


def _states(case: Case, run: Run) -> Fact:
    """Return the fact of output 0, [time, directions, batch, hidden]."""
    axes: dict[int, Axis] = {}
    if run.frames is not None:
        axes[0] = (run.frames,)
    if run.batch is not None:
        axes[2] = run.batch

    def content(region: Region) -> Interval:
        if run.has_lengths and 0 in region:
            return ZERO
        bounds = _hidden(case, frozenset({1}) if 2 in region else frozenset(), with_padding=0 in region)
        return iv.hull(bounds, ZERO) if case.has(LENGTHS) else bounds

    return case.output(axes, content)


def _last(case: Case, run: Run, output: int) -> Fact:
    """Return the fact of output 1 or 2, [directions, batch, hidden]; unbounded where nothing reads it."""
    axes: dict[int, Axis] = {} if run.batch is None else {1: run.batch}
    is_known = run.frames is None or run.has_lengths

    def content(region: Region) -> Interval:
        bounds = _hidden(case, region, with_padding=False) if is_known else ANYTHING
        if output == 2 and bounds.is_finite:
            cell = case.fact(CELL).content(region).magnitude if case.has(CELL) else 0.0
            return iv.bounded(cell + LONGEST)
        return iv.hull(bounds, ZERO) if bounds.is_finite else bounds

    return case.output(axes, content)


def _hidden(case: Case, rows: Region, *, with_padding: bool) -> Interval:
    """Return bounds of a hidden state in a region of rows, from the activations, if no sum overflows."""
    fact = case.fact()
    regions = [
        operand_region
        for operand_region in fact.regions
        if operand_region - {0} == rows and (with_padding or 0 not in operand_region)
    ]
    read = iv.hull(*(fact.content(operand_region) for operand_region in regions))
    start = case.fact(HIDDEN).content(rows) if case.has(HIDDEN) else ZERO
    cell = case.fact(CELL).content(rows) if case.has(CELL) else ZERO
    if not (read.is_finite and start.is_finite and cell.is_finite) or not _has_default_activations(case):
        return ANYTHING
    hidden = max(1.0, start.magnitude)
    peephole = _largest_row(case, 7) * (cell.magnitude + LONGEST) if case.has(7) else 0.0
    sums = _largest_row(case, 1) * read.magnitude + _largest_row(case, 2) * hidden + peephole
    sums += 2 * case.fact(3).valid.magnitude if case.has(3) else 0.0
    if not sums <= largest_sum(case):
        return ANYTHING
    return iv.bounded(hidden if case.op == "GRU" else 1.0)


def _has_default_activations(case: Case) -> bool:
    named = case.attribute("activations", ())
    assert isinstance(named, list | tuple)
    names = tuple(str(each).lower() for each in named)
    default = ACTIVATIONS[case.op]
    return names == default * (len(names) // len(default))


def _largest_row(case: Case, operand: int) -> float:
    """Return the largest sum of absolute weights in a row."""
    array = case.array(operand)
    if array is not None:
        return float(np.abs(array.astype(np.float64)).sum(-1).max())
    last = case.dims(operand)[-1]
    return case.fact(operand).valid.magnitude * (last if isinstance(last, int) else LONGEST)


TABLE: Table = {
    ("", "LSTM"): recurrent,
    ("", "GRU"): recurrent,
    ("", "RNN"): recurrent,
    ("", "If"): named_refusal(
        "branches on a condition that is known only when the graph runs, or differs between rows",
        "export the branch that runs, or choose by Where",
    ),
    ("", "Loop"): named_refusal(
        "runs its body as often as lengths or data say", "unroll the loop, or write it as LSTM, GRU, RNN or CumSum"
    ),
    ("", "Scan"): named_refusal(
        "carries its state through padded steps", "write the recurrence as LSTM, GRU, RNN or CumSum"
    ),
}
