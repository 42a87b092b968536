"""Lists the proven conditions under which chunked calls return the results of one call on the whole sequence.

Source: an induction over calls; the answer of a call is that part of the whole answer if frames read no later frames,
cached values do not change when frames follow, positions are counted from the first frame, and every operator that acts
along time is a window, a recurrence, or masked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from compiler.proof.derivation.caching import CachedValue
from compiler.proof.derivation.judging import Judging


def conditions(judging: Judging, results: Sequence[ir.Value], cached: Sequence[CachedValue]) -> dict[str, Any]:
    """Return the facts that the derivation relies on, by the name of the condition.

    Args:
        judging: of the graph over whole sequences, without offences.
        results: outputs of that graph.
        cached: values that a call hands to the next.
    """
    return {
        "bounded look-ahead": {str(value.name): _reaches(judging, value) for value in results},
        "cached values stay": {str(cached_value.value.name): str(cached_value.reach) for cached_value in cached},
        "places are counted": sorted(str(value.name) for value in judging.tables),
        "along time": dict(sorted(_along_time(judging).items())),
        "end of stream": "no frame is read that has not come, so that nothing is left to be called for",
    }


def _reaches(judging: Judging, value: ir.Value) -> Mapping[str, str]:
    return {str(axis): str(along.reach) for axis, along in sorted(judging.of(value).along.items())}


def _along_time(judging: Judging) -> dict[str, str]:
    """Return how each node that acts along time is computed in steps, by node name."""
    found = {str(node.name): "masked" for node, *_ in judging.rows}
    found |= {str(node.name): f"a window of {count} frames behind" for node, (_, count) in judging.kept.items()}
    found |= {str(node.name): "a recurrence" for node, (_, count) in judging.kept.items() if not count}
    found |= {str(node.name): "joins a prefix, or cuts it off" for node in judging.shifted}
    running = (node for node in judging.model.graph if node.op_type == "CumSum")
    return found | {str(node.name): "a running sum" for node in running if judging.of(node.outputs[0]).along}
