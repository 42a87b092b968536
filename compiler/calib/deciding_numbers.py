"""Finds the float values that decide an integer or boolean output, such as the logits behind labels.

logits -> ArgMax -> labels         what is asked of the noise of labels is asked of that of logits
"""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Lowered

SIZE_OF = ("Shape", "Size")
"""Operators whose results do not depend on the numbers that they read."""


def measured_on(model: ir.Model) -> dict[str, tuple[str, ...]]:
    """Return the values on which noise is measured, by output: a float itself, or what decides its classes.

    It is empty where classes depend on inputs and classes alone.
    """
    return {
        str(value.name): (str(value.name),) if _is_real(value) else _deciding(value) for value in model.graph.outputs
    }


def with_deciding(lowered: Lowered, *others: Lowered) -> tuple[Lowered, ...]:
    """Return copies of graphs that also output the floats that decide the first one's classes, if all compute them.

    Without such values the graphs themselves are returned.
    """
    names = {name for measured in measured_on(lowered.model).values() for name in measured}
    names -= {str(value.name) for value in lowered.model.graph.outputs}
    for each in others:
        real = (output for node in each.model.graph for output in node.outputs if _is_real(output))
        names &= {str(output.name) for output in real}
    return tuple(exposed(each, names) if names else each for each in (lowered, *others))


def _is_real(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _deciding(value: ir.Value) -> tuple[str, ...]:
    """Return the first computed floats on the way back from a value."""
    names: dict[str, None] = {}
    seen, waiting = {value}, [value]
    while waiting:
        node = waiting.pop().producer()
        if node is None or graphs.is_op(node, *SIZE_OF):
            continue
        for read in node.inputs:
            if read is None or read in seen:
                continue
            seen.add(read)
            if not _is_real(read):
                waiting.append(read)
            elif read.producer() is not None and graphs.array_of(read) is None:
                names[str(read.name)] = None
    return tuple(names)
