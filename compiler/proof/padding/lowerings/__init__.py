"""Maps the names by which rules request lowerings to the functions that write them."""

from compiler.proof.padding.lowerings import lookup, newest, number, recurrence, reduction, windows_and_borders
from compiler.proof.padding.lowerings.site import NodeLowering

NODE_LOWERINGS: dict[str, NodeLowering] = {
    **windows_and_borders.NODE_LOWERINGS,
    **lookup.NODE_LOWERINGS,
    **newest.NODE_LOWERINGS,
    **number.NODE_LOWERINGS,
    **recurrence.NODE_LOWERINGS,
    **reduction.NODE_LOWERINGS,
}
