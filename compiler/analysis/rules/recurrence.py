"""Rules RN: recurrent networks, and bodies that run more than once."""

from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import ANYTHING, Interval
from compiler.analysis.layout import Axis
from compiler.analysis.registry import Table, named_refusal


def recurrent(case: Case) -> Verdict:
    """LSTM, GRU, RNN over [time, batch, features] with true lengths per row where the padding could be seen.

    Forward outputs never see suffix padding. Final states and reverse directions do, so `sequence_lens` is given.
    """
    if case.int_attribute("layout", 0):
        raise refuse(f"{case.op} of batch-first layout", "export time first")
    for operand in (1, 2, 3):
        if case.has(operand) and (case.fact(operand).axes or case.fact(operand).is_number):
            raise refuse(f"{case.op} with computed weights", "use constant weights")
    fact = case.fact()
    case.refuse_rows(0, 0, "runs along")
    frames = case.simple_frames(0, 0)
    if fact.axis(2) is not None:
        raise refuse(f"{case.op} of padded or batched features", "keep time, batch and features apart")
    for operand in (5, 6):
        if case.has(operand) and case.fact(operand).padded:
            raise refuse(f"{case.op} with a padded initial state", "use an initial state per row")
    rows = fact.axis(1)
    needs_lengths = frames is not None and (
        str(case.attribute("direction", "forward")) != "forward"
        or any(output.uses() or output.is_graph_output() for output in case.node.outputs[1:])
    )
    if frames is not None and not frames.is_suffix_padded:
        raise refuse(f"{case.op} along {frames}", "run over the new frames and carry its state")
    if needs_lengths:
        if case.has(4):
            raise refuse(f"{case.op} with sequence_lens of its own", "leave sequence_lens out")
        if rows is None and case.batch is not None:
            raise refuse(f"{case.op} of a value that all rows share", "give the value a batch axis")
        case.rewrite("sequence_lens")
    axes: dict[int, Axis] = {} if frames is None else {0: (frames,)}
    states: dict[int, Axis] = {}
    if rows is not None:
        axes[2] = rows
        states[1] = rows
    bounded = Interval(-1.0, 1.0) if fact.valid.is_finite and case.op != "RNN" else ANYTHING

    def content(region: Region) -> Interval:
        return bounded if not region or needs_lengths else ANYTHING

    outputs = [case.output(axes, content)]
    outputs += [case.output(states, lambda region: bounded) for _ in case.node.outputs[1:]]
    reason = "true lengths are given" if needs_lengths else "a forward output sees what came before"
    sizes = [] if frames is None else [frames.size]
    return case.verdict("RN1", reason, *outputs, at_least_one=sizes)


def if_(case: Case) -> Verdict:
    """If is judged by its branches, which are folded away when the condition is known before."""
    raise refuse("If on a condition that is not known when the graph is built", "export the branch that runs")


TABLE: Table = {
    ("", "LSTM"): recurrent,
    ("", "GRU"): recurrent,
    ("", "RNN"): recurrent,
    ("", "If"): if_,
    ("", "Loop"): named_refusal("runs its body as often as its inputs say", "unroll the loop, or run it outside"),
    ("", "Scan"): named_refusal("carries a state through padded steps", "write the recurrence as LSTM, GRU or RNN"),
}
