"""The gate on what has been quantised: it runs on integers in the graph that ONNX Runtime makes of it."""

from compiler.recipe.record import Recipe
from compiler.records.findings import Finding
from compiler.runners.stream import Advance
from compiler.verify.gate import Checked, Gate, Shipped
from compiler.verify.integer_kernels import check_integer_kernels


def is_rounded_here(recipe: Recipe, shipped: Shipped) -> bool:
    """Whether a pass has rounded what runs on this machine as it ships."""
    return shipped.graph.lowered.lossy and shipped.graph.is_timed_here


def _check(shipped: Shipped, advance: Advance) -> Checked:
    files = [shipped.folder / emitted.file for emitted in shipped.graph.built.artifacts]
    count = max(check_integer_kernels(file, shipped.name) for file in files)
    detail = f"{count} integer kernels"
    return Checked([Finding("integer kernels", shipped.name, measured=count, holds=True, detail=detail)], detail)


INTEGER_KERNELS = Gate(
    "integer kernels", _check, lambda recipe, graph: (), is_rounded_here, phases=("bundle",), stage="against float"
)
