"""A gate for tests, as somebody adds one: no output of a node has a name longer than a limit."""

from compiler.base.records.findings import at_most
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.graph.runners.stream import Advance

LONGEST = 40


def _check(shipped: Shipped, advance: Advance) -> Checked:
    names = [str(value.name) for node in shipped.graph.lowered.model.graph for value in node.outputs]
    longest = max(names, key=len)
    found = at_most("short_names", shipped.name, longest, limit=LONGEST, measured=len(longest), detail="characters")
    return Checked([found], f"the longest of {len(names)} has {len(longest)} characters")


SHORT_NAMES = Gate("short_names", _check, cure="rename it in the model")
