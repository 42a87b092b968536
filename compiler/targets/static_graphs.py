"""Writes static ONNX graphs, one file per combination of bucket sizes, with one shared weights file per graph.

Every target that runs or compiles fixed shapes starts from these files. Where a target's runtime takes it, one file
serves all numbers of rows: its batch axis stays open, everything else is a number.
"""

import dataclasses
import itertools
from collections.abc import Mapping

from compiler.base.pieces import Content
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.mapped_weights import map_weights
from compiler.graph.spec import check_static
from compiler.graph.stages import Lowered, Refusal
from compiler.targets.base import Built, Emitted, Target
from compiler.targets.formed_graphs import apply_variants, outcomes_of
from compiler.targets.open_rows import open_rows
from compiler.targets.weights_file import WeightsFile, places_read
from runtime_lite.format.manifest import bucket_name

Sizes = Mapping[str, int]


def write_static(
    target: Target,
    lowered: Lowered,
    buckets: Mapping[str, tuple[int, ...]],
    *,
    opens_rows: bool = False,
    weights: WeightsFile | None = None,
) -> Built:
    """Run the target's passes and variants for every combination of bucket sizes, check the graphs, and write them.

    Writes `graphs/<graph>.<sizes>.onnx` and `graphs/<graph>.weights`, or adds to the weights that are shared. A file
    whose rows are open names the batch axis without a size; where the graph does not allow that, every number of rows
    has a file, and the reason is kept.

    Args:
        target: target of the graphs.
        lowered: the graph, all bucketed axes symbolic.
        buckets: sizes by axis.
        opens_rows: whether one file may serve all numbers of rows.
        weights: file to which weights are added, shared with other graphs; None for a file of the graph's own.

    Raises:
        Refused: the target rejects a graph.
    """
    return write_prepared(target, prepare_static(target, lowered, buckets, opens_rows=opens_rows), weights)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The graphs of all combinations of bucket sizes, before their forms.

    Attributes:
        origin: the graph that they were made of, all bucketed axes symbolic.
        graphs: for every combination the sizes that its graph is frozen to, and the graph.
        is_open: whether one graph serves all numbers of rows.
        refused: why not, where that was asked for.
    """

    origin: Lowered
    graphs: tuple[tuple[Sizes, Sizes, Lowered], ...]
    is_open: bool
    refused: tuple[Refusal, ...] = ()


def prepare_static(
    target: Target, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], *, opens_rows: bool = False
) -> Prepared:
    """Run the target's passes for every combination of bucket sizes, as in `write_static`, but no forms."""
    refused: tuple[Refusal, ...] = ()
    if opens_rows and len(buckets.get(str(lowered.batch_axis), ())) > 1:
        try:
            return Prepared(lowered, _opened(target, lowered, buckets), is_open=True)
        except Refused as error:
            refused = (Refusal(error.message, error.place),)
    graphs = ((sizes, sizes, _frozen(target, lowered, sizes)) for sizes in _combinations(buckets))
    return Prepared(lowered, tuple(graphs), is_open=False, refused=refused)


def write_prepared(target: Target, prepared: Prepared, weights: WeightsFile | None = None) -> Built:
    """Apply a target's plan to prepared graphs, check them, and write them.

    Args:
        target: target of the graphs.
        prepared: the prepared graphs; not changed.
        weights: as in `write_static`.

    Raises:
        Refused: a dimension stays symbolic, or the target rejects a graph.
    """
    lowered = prepared.origin
    done = {id(graph): apply_variants(target.plan, graph) for _, _, graph in prepared.graphs}
    graphs = [(sizes, fixed, done[id(graph)]) for sizes, fixed, graph in prepared.graphs]
    map_weights(*(entry.lowered.model for entry in done.values()))
    made = [entry.lowered for entry in done.values()]
    for graph in () if prepared.is_open else made:
        check_static(graph.model, graph.graph)
    target.accept(made)
    weights = WeightsFile(f"{lowered.graph}.weights") if weights is None else weights
    files: dict[str, Content] = {}
    artifacts = []
    for sizes, fixed, entry in graphs:
        label = "".join(f".{axis}{fixed.get(axis, '')}" for axis in sizes) or ".static"
        file = f"graphs/{lowered.graph}{label}.onnx"
        if file not in files:
            files[file] = weights.externalise(entry.lowered.model)
        artifacts.append(Emitted(sizes, file, (f"graphs/{weights.name}",), entry.lowered))
    files[f"graphs/{weights.name}"] = weights.content
    models = [entry.lowered.model for entry in done.values()]
    versions = {
        "opset": max(model.opset_imports[""] for model in models),
        "ir_version": max(model.ir_version for model in models),
    }
    refused = tuple(map(str, prepared.refused))
    return Built(tuple(artifacts), files, versions, refused=refused, forms=outcomes_of(done.values()))


def _frozen(target: Target, lowered: Lowered, sizes: Mapping[str, int]) -> Lowered:
    frozen = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
    for each in target.passes(sizes):
        frozen = each.apply(frozen).lowered
    return frozen


def _opened(
    target: Target, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[Sizes, Sizes, Lowered], ...]:
    """Return, for every combination of bucket sizes, the frozen sizes, without the rows, and the graph.

    Raises:
        Refused: a graph needs the number of rows.
    """
    rows = str(lowered.batch_axis)
    others = {axis: sizes for axis, sizes in buckets.items() if axis != rows}
    opened = {
        bucket_name(fixed): open_rows(_frozen(target, lowered, fixed), buckets[rows]) for fixed in _combinations(others)
    }
    opened_graphs: list[tuple[Sizes, Sizes, Lowered]] = []
    for sizes in _combinations(buckets):
        fixed = {axis: size for axis, size in sizes.items() if axis != rows}
        opened_graphs.append((sizes, fixed, opened[bucket_name(fixed)]))
    return tuple(opened_graphs)


def _combinations(buckets: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    axes = list(buckets)
    return [dict(zip(axes, sizes, strict=True)) for sizes in itertools.product(*buckets.values())]


def bytes_of_graphs(built: Built) -> int:
    """Return the bytes of the graph files and of the weights that they read, including shared ones."""
    graphs = {emitted.file: (bytes(built.files[emitted.file]), emitted.files) for emitted in built.artifacts}
    read = {(files, *place) for content, files in graphs.values() for place in places_read(content)}
    return sum(len(content) for content, _ in graphs.values()) + sum(length for *_, length in read)
