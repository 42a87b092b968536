"""Measures for every node how much rounding its results to half precision changes the outputs of the graph.

One graph holds a switch behind every node: with the switch on, its results go through half precision. Each probe runs
one call with one switch on and compares outputs and states with the run without any. The shares of noise add up over
nodes as long as each is small (independent errors, first order): that is the model which
`compiler/numerics/precision/cut.py` minimises, and which the pass checks by running what came of it. Weights are not
rounded in a probe: their rounding is independent of that of the results and relatively as large, so the share of a node
that has weights counts twice.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.calib.deciding_numbers import with_deciding
from compiler.calib.noise import Noise
from compiler.graph import model as graphs
from compiler.graph.operators.traits import MAKING, ROUNDING_NOTHING
from compiler.graph.runners.ahead import on_all_cores
from compiler.graph.runners.instrumented import switch, switched
from compiler.graph.runners.session import open_model
from compiler.graph.stages import Array, Lowered


def rounding_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the nodes that compute floats which half precision would round."""
    return [
        node
        for node in model.graph
        if node.op_type not in ROUNDING_NOTHING
        and any(output.dtype == ir.DataType.FLOAT for output in node.outputs)
        and not graphs.is_op(node, *MAKING, "Cast")
    ]


def rounding_noise(
    model: ir.Model,
    kind: ir.DataType,
    feeds: Sequence[Mapping[str, Array]],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """Return, by node name, the noise share in the worst output or state when one node's results are rounded.

    For classes it is the noise in the floats that decide them.

    Args:
        model: the graph in float32.
        kind: FLOAT16 or BFLOAT16.
        feeds: calls to probe, with all inputs of the graph; the largest share over them counts.
        advance: called with the number of finished probes, and their total.
    """
    (decided,) = with_deciding(Lowered("probed", model))
    probed, switches = _with_switches(decided.model, kind)
    session = open_model(probed)
    off = {switch: np.array(False) for switch in switches.values()}
    names = [str(value.name) for value in decided.model.graph.outputs]
    shares = dict.fromkeys(switches, 0.0)
    sources = {str(node.name): 2.0 if _has_weights(node) else 1.0 for node in rounding_nodes(model)}
    for number, feed in enumerate(feeds):
        exact = session.run(names, {**feed, **off})

        def worst_of(switch: str, feed: Mapping[str, Array] = feed, exact: list[Array] = exact) -> float:
            return _worst(session.run(names, {**feed, **off, switch: np.array(True)}), exact)

        for index, (node, worst) in enumerate(zip(switches, on_all_cores(worst_of, switches.values()), strict=True)):
            shares[node] = max(shares[node], sources[node] * worst)
            advance(number * len(switches) + index + 1, len(feeds) * len(switches))
    return shares


def _has_weights(node: ir.Node) -> bool:
    """Whether a node multiplies by a constant matrix or kernel."""
    arrays = [graphs.array_of(value) for value in node.inputs]
    return any(array is not None and array.ndim >= 2 and array.dtype.kind == "f" for array in arrays)


def _with_switches(model: ir.Model, kind: ir.DataType) -> tuple[ir.Model, dict[str, str]]:
    """Return a copy with a switch behind every node that rounds, and the switches' input names by node."""
    copy = graphs.clone(model)

    def rounded(value: ir.Value) -> ir.Value:
        insert = graphs.Inserter.behind(copy, "with_switches", value)
        narrow = insert.op("Cast", [value], {"to": int(kind)}, name="narrow")
        return insert.op("Cast", [narrow], {"to": int(ir.DataType.FLOAT)}, name="wide")

    switches = {}
    for node in rounding_nodes(copy):
        by = switch(copy)
        switches[str(node.name)] = str(by.name)
        for output in node.outputs:
            if output.dtype == ir.DataType.FLOAT:
                switched(copy, output, by, rounded)
    return copy, switches


def _worst(rounded: Sequence[Array], exact: Sequence[Array]) -> float:
    """Return the largest noise share among results; entries that are NaN in both are padding."""
    shares = []
    for got, right in zip(rounded, exact, strict=True):
        noise = Noise()
        noise.add(got, right)
        shares.append(noise.share)
    return max(shares, default=0.0)
