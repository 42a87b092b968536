"""Finds everything in a strongly typed ONNX graph that TensorRT's parser or builder would refuse or silently change.

All violations are found in one run, each with its node, tensor, source line and cure, before the vendor is called.
"""

from collections.abc import Iterable

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.targets.tensorrt.element_types import TYPE_RULES
from compiler.targets.tensorrt.operators import OPERATOR_RULES
from compiler.targets.tensorrt.quantization import QUANTIZATION_RULES
from compiler.targets.tensorrt.rule import DeviceLimits, Rule, Violation

RULES: tuple[Rule, ...] = (*OPERATOR_RULES, *TYPE_RULES, *QUANTIZATION_RULES)
"""Every rule, in the order in which violations are listed."""


class Unbuildable(Refused):
    """A graph breaks rules of the target.

    Args:
        violations: all of them.
        graph: name of the graph.
    """

    def __init__(self, violations: tuple[Violation, ...], graph: str) -> None:
        listed = "".join(f"\n  {violation}" for violation in violations)
        super().__init__(
            f"expected a graph that TensorRT builds as it is written, got {len(violations)} "
            f"violation{'s' if len(violations) > 1 else ''}:{listed}",
            place=Location(stage="tensorrt", graph=graph),
        )
        self.violations = violations


def lint(model: ir.Model, limits: DeviceLimits) -> tuple[Violation, ...]:
    """Return every violation of every rule, without duplicates.

    Args:
        model: an ONNX graph with types on all values.
        limits: limits of the device that the engine is built for.
    """
    return tuple(dict.fromkeys(finding.named(rule.name) for rule in RULES for finding in rule.check(model, limits)))


def require_buildable(models: Iterable[ir.Model], limits: DeviceLimits, graph: str) -> None:
    """Lint the graphs of all buckets; common violations are reported once.

    Raises:
        Unbuildable: there are violations; the error holds all of them.
    """
    violations = tuple(dict.fromkeys(found for model in models for found in lint(model, limits)))
    if violations:
        raise Unbuildable(violations, graph)
