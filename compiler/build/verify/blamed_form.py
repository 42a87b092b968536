"""Finds the variant that breaks a gate, by running the gate on the graph with none, one, two, ... of its variants."""

import dataclasses
from collections.abc import Sequence

from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import GateFailed
from compiler.graph.runners.stream import Advance


def run_blaming(gate: Gate, shipped: Shipped, advance: Advance) -> Checked:
    """Run a gate on graphs as they are emitted.

    Raises:
        GateFailed: a finding does not hold; the message names the variant that broke it, where the gate holds without
            forms.
    """
    try:
        return gate.run(shipped, advance)
    except GateFailed as error:
        raise _blamed(gate, shipped, error, advance) from None


def _blamed(gate: Gate, shipped: Shipped, error: GateFailed, advance: Advance) -> GateFailed:
    forms = shipped.graph.forms
    for count in range(len(forms) + 1) if forms else ():
        found = _failure(gate, shipped, count, advance)
        if found is not None:
            return _named(found, forms[count - 1], forms) if count else found
    return error


def _failure(gate: Gate, shipped: Shipped, count: int, advance: Advance) -> GateFailed | None:
    """Return how the gate fails on the graph with only its first `count` variants; None where it holds."""
    with shipped.graph.with_variants(shipped.graph.forms[:count]) as (folder, graph):
        in_part = dataclasses.replace(shipped, folder=folder, graphs={**shipped.graphs, shipped.name: graph})
        try:
            gate.run(in_part, advance)
        except GateFailed as found:
            return found
    return None


def _named(error: GateFailed, variant: str, forms: Sequence[str]) -> GateFailed:
    rest = ", ".join(each for each in forms if each != variant)
    return GateFailed(
        f"{error.message}; before the form {variant} it holds",
        cure=f"take it out of the target's forms, as in forms: [{rest}], and report it; it is what broke this",
        place=dataclasses.replace(error.place, stage=variant),
        findings=error.findings,
    )
