"""Passes that spoil what they leave behind: what a defect in a pass does to a build."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import onnx_ir as ir
import pytest

from compiler import passes
from compiler.graph.stages import Lowered, Outcome, Pass

Spoil = Callable[[ir.Model], None]


@dataclasses.dataclass(frozen=True)
class Saboteur:
    """Stands in for a pass: lets it work, then spoils the graph."""

    name: ClassVar[str] = ""
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    real: Pass
    spoil: ClassVar[Spoil]

    def apply(self, lowered: Lowered) -> Outcome:
        outcome = self.real.apply(lowered)
        type(self).spoil(outcome.lowered.model)
        return outcome


def sabotage(monkeypatch: pytest.MonkeyPatch, name: str, spoil: Spoil) -> None:
    """Let a pass spoil the graph once it has done its work."""
    real = passes.pass_kinds()[name]

    def with_options(self: Saboteur, **options: Any) -> None:
        object.__setattr__(self, "real", real(**options))

    members = {"name": name, "after": real.after, "spoil": staticmethod(spoil), "__init__": with_options}
    spoilt = type("Saboteur", (Saboteur,), members)
    monkeypatch.setattr(passes, "PASSES", [spoilt if kind is real else kind for kind in passes.PASSES])
