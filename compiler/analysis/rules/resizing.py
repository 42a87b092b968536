"""Rules PD: entries added at the ends of axes."""

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import Interval
from compiler.analysis.layout import Axis, Frames, Segment, Side
from compiler.analysis.registry import Table


def pad(case: Case) -> Verdict:
    """Pad: what is added behind the valid entries must lie in the padding already."""
    mode = str(case.attribute("mode", "constant"))
    axes_given = case.constants(3, "axes") if case.has(3) else tuple(range(case.rank()))
    known = case.integers(1)
    if known is None:
        raise refuse("Pad by amounts computed from data", "pad by constants or sizes")
    count = len(axes_given)
    value = _value(case)
    fact = case.fact()
    axes: dict[int, Axis] = fact.tracked
    added = dict(
        zip((at % case.rank() for at in axes_given), zip(known[:count], known[count:], strict=True), strict=True)
    )
    cut: set[int] = set()
    for at, (begin, end) in added.items():
        if (begin, end) == (0, 0):
            continue
        case.refuse_rows(0, at, "pads")
        frames = case.simple_frames(0, at)
        if frames is None:
            made = case.layout(case.out_dims()[at])
            if made is not None:
                raise refuse(f"Pad adds {begin} and {end} entries to a fixed axis", "make the axis by Expand or Range")
            continue
        if not isinstance(begin, int) or not isinstance(end, int):
            raise refuse(f"Pad adds {begin} and {end} entries to {frames}", "pad by constants")
        if mode != "constant" and (end > 0 or not frames.is_suffix_padded):
            raise refuse(f"Pad by {mode} behind {frames}, where the slots are padding", "pad with a constant")
        if frames.is_suffix_padded:
            if end > 0:
                case.fill(0, at, value)
            side = Side.LEFT
        elif frames.is_prefix_padded:
            if begin > 0:
                case.fill(0, at, value)
            side = Side.RIGHT
        else:
            raise refuse(f"Pad of {frames}", "pad before joining")
        if end < 0 or begin < 0:
            cut.add(at)
        axes[at] = (Frames((Segment(case.out_dims()[at], side),)),)
    fact = case.fact()
    axes = {**fact.tracked, **{at: axes[at] for at in axes}}
    anything_added = mode == "constant" and any(begin != 0 or end != 0 for begin, end in added.values())

    def content(region: Region) -> Interval:
        regions = [region]
        for at in cut & region:
            regions += [each - {at} for each in regions]
        found = iv.hull(*(fact.content(each) for each in regions))
        return iv.hull(found, iv.constant(value)) if anything_added else found

    moved = any(added[at] != (0, 0) for at in added if at in axes)
    return case.verdict(
        "PD1", "added entries are what the padding holds", case.output(axes, content), pointwise=not moved
    )


def _value(case: Case) -> float:
    if not case.has(2):
        return 0.0
    array = case.array(2)
    if array is None or array.size != 1:
        raise refuse("Pad with a computed value", "pad with a constant")
    return float(array.reshape(-1)[0])


TABLE: Table = {("", "Pad"): pad}
