"""Defines the records of a search for culprits: the errors of subgraphs, and the subgraphs to blame."""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.runners.forced_values import TeacherForcedRun
from compiler.graph.stages import Array, Lowered


@dataclasses.dataclass(frozen=True)
class TensorStatistics:
    """What one tensor holds in one call."""

    tensor: str
    low: float
    high: float
    max_abs: float
    non_finite: int
    elements: int

    @classmethod
    def of(cls, tensor: str, array: Array) -> "TensorStatistics":
        """Return statistics over the finite elements."""
        exact = array.astype(np.float64)
        finite = exact[np.isfinite(exact)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return cls(tensor, low, high, max(abs(low), abs(high)), int(exact.size - finite.size), int(exact.size))

    def __str__(self) -> str:
        bad = f", {self.non_finite} of {self.elements} not finite" if self.non_finite else ""
        return f"{self.low:.3g}..{self.high:.3g}{bad}"


@dataclasses.dataclass(frozen=True)
class LocalError:
    """The error that a section makes on correct inputs.

    Attributes:
        tensor: the value that it ends in.
        error: root mean square of the error, in the worst call; infinite where a number is not finite.
        signal: root mean square of the right value over all calls.
        explained: root mean square of the error that rounding explains.
        step: the worst call.
    """

    tensor: str
    error: float
    signal: float
    explained: float
    step: int

    @property
    def relative(self) -> float:
        """Return the error relative to the signal."""
        return self.error / self.signal if self.signal else self.error

    @property
    def beyond(self) -> float:
        """Return the error as a multiple of the explained error."""
        if not self.error:
            return 0.0
        return self.error / self.explained if self.explained else float("inf")


@dataclasses.dataclass(frozen=True)
class Culprit:
    """One section that is responsible.

    Attributes:
        local: its error.
        node: the node of it to look at first.
        nodes: all of it, in order.
        share: of the power of the error that goes when its own error goes; None where no number was finite.
        before: tensors that it reads and makes, in the graph before the pass.
        after: the same after it.
    """

    local: LocalError
    node: ir.Node
    nodes: tuple[ir.Node, ...]
    share: float | None
    before: tuple[TensorStatistics, ...]
    after: tuple[TensorStatistics, ...]

    def place(self) -> Location:
        """Return the location for the error message."""
        return Location(
            node=str(self.node.name),
            op=self.node.op_type,
            tensor=self.local.tensor,
            source=self.source,
        )

    @property
    def source(self) -> str:
        """Return the model's source line of the node, or of one beside it."""
        return next((line for node in (self.node, *reversed(self.nodes)) if (line := graphs.source_of(node))), "")


@dataclasses.dataclass(frozen=True)
class Findings:
    """The result of a search.

    Attributes:
        culprits: the smallest set, the largest local error first; empty where the error is spread.
        beyond: whether their errors are larger than rounding explains.
        parts: where the error is spread, the sections that contribute most.
        sections: how many were compared.
        differing: how many of them have an error of their own.
        worst: the largest local error by what rounding explains; None without any.
        used: share of the limits that the worst tensor uses.
        left: the same without the culprits' own errors.
        names: values between the sections.
        forced_run: the call with the worst local error of the first section that is named.
        before: the graph before, as it was searched.
        after: the graph after.
    """

    culprits: tuple[Culprit, ...]
    beyond: bool
    parts: tuple[Culprit, ...]
    sections: int
    differing: int
    worst: LocalError | None
    used: float
    left: float
    names: tuple[str, ...]
    forced_run: TeacherForcedRun | None
    before: Lowered
    after: Lowered
