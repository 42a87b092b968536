"""Checks that the contents of padded slots, free rows and other rows change no bit of an output."""

import dataclasses

from compiler.base.records.findings import Finding
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.invariance_check import POISONS
from compiler.graph.runners.stream import Advance


def _check(shipped: Shipped, advance: Advance) -> Checked:
    tried = shipped.graph.artefacts.invariance()
    return Checked(
        [
            Finding("invariance", shipped.name, bucket, holds=True, detail=f"{each.calls} calls, no bit changed")
            for bucket, each in tried.items()
        ],
        f"poison {', '.join(POISONS)}: no bit changed",
        {"invariance": {bucket: dataclasses.asdict(each) for bucket, each in tried.items()}},
    )


INVARIANCE = Gate("invariance", _check)
