"""Rules PL: pooling over windows."""

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import ZERO, Interval
from compiler.analysis.layout import Axis
from compiler.analysis.registry import Table
from compiler.analysis.rules.convolution import Window, spatial
from compiler.ir import Dim


def pool(case: Case) -> Verdict:
    """MaxPool, AveragePool, LpPool: a window that reads past the valid entries must read what it reads alone."""
    window = Window(case, case.ints_attribute("kernel_shape"))
    if case.fact().axis(1) is not None:
        case.refuse_rows(0, 1, "pools beside")
    axes: dict[int, Axis] = {at: axis for at, axis in case.fact().axes if at < 2}
    neutral = case.lowest() if case.op == "MaxPool" else 0.0
    sizes: list[Dim] = []
    for at in range(len(window.kernel)):
        if case.fact().axis(at + 2) is None:
            continue
        if case.int_attribute("ceil_mode", 0):
            raise refuse(f"{case.op} in ceil mode along a padded axis", "pool in floor mode")
        counts_padding = case.int_attribute("count_include_pad", 0)
        if case.op == "AveragePool" and window.ends[at] > 0 and not counts_padding:
            raise refuse("AveragePool that leaves padding out of its count", "set count_include_pad")
        layout = spatial(case, window, at, sizes, neutral)
        if layout is not None:
            axes[at + 2] = layout
    if len(case.node.outputs) > 1 and case.node.outputs[1].uses():
        raise refuse("MaxPool whose indices are read", "compute indices by ArgMax")
    fact = case.fact()
    sees_zeros = case.op != "MaxPool" and (any(window.begins) or any(window.ends))

    def content(region: Region) -> Interval:
        read = iv.hull(*(fact.content(each) for each in fact.regions if each <= region))
        if case.op == "LpPool":
            return iv.ANYTHING
        return iv.hull(read, ZERO) if sees_zeros else read

    return case.verdict("PL", "windows see what they see alone", case.output(axes, content), at_least_one=sizes)


TABLE: Table = {("", "MaxPool"): pool, ("", "AveragePool"): pool, ("", "LpPool"): pool}
