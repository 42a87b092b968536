"""Checks the written bundle: opens it as a user does, and compares its results on the golden feeds in every bucket."""

from compiler.base.records.findings import Finding
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import InternalError
from compiler.graph.runners.stream import Advance
from runtime_lite.runtime import Runtime
from runtime_lite.verify import verify_model


def _check(shipped: Shipped, advance: Advance) -> Checked:
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(shipped.folder, shipped.executors)))
    failed = [comparison for comparison in comparisons if not comparison.holds]
    if failed:  # every gate on the graphs held, so it is the writing that went wrong
        raise InternalError(f"the bundle does not replay its own golden feeds: {failed[0]}").at(stage="replay")
    graphs = shipped.graphs.values()
    why = "there is no device" if any(graph.lacks_device for graph in graphs) else "no engine is built"
    on = "" if all(graph.runs_here for graph in graphs) else f" on the ONNX graphs, {why}"
    detail = f"{len(comparisons)} comparisons through runtime_lite{on}"
    return Checked([Finding("replay", holds=True, detail=detail)], detail)


REPLAY = Gate("replay", _check, phases=("written",), each_graph=False)
