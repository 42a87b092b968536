"""Implements `build.py simplify IN.onnx OUT.onnx`: simplifies a file exactly, and compares before it writes.

Both graphs run on random numbers and on edge feeds, without ONNX Runtime's own rewrites; nothing is written unless they
agree.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import onnx
import onnx_ir as ir
from rich.markup import escape
from rich.table import Table

from compiler.build.report.files import require_place
from compiler.build.verify.differences import compare, worst_of
from compiler.build.verify.edge_agreement import agreement_words, edge_cases, first_disagreement
from compiler.build.verify.edge_feeds import CALLS
from compiler.errors import GateFailed, Location, Refused
from compiler.front.commands.example_feeds import random_feeds, require_sizes, unanswered
from compiler.front.commands.onnx_signature import open_file, read_file
from compiler.front.commands.shared_axes import axes_that_meet
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of, runners_of
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.runners.structure import written
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes.simplify import simplify_model
from compiler.recipe.gates import EdgeKind, Tolerance
from compiler.recipe.user_code.callables import shown_path
from runtime_lite.format.atomic_file import replace_file

STAGE = "simplify"

CURE = "report it with the file: its rules are exact; nothing was written"


@dataclasses.dataclass(frozen=True)
class Simplified:
    """The result of simplifying a file.

    Attributes:
        before: nodes by operator.
        after: the same of the written file.
        opsets: the version of the standard operators before and after.
        compared: the compared outputs, in words.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    opsets: tuple[int, int]
    compared: str

    @property
    def conversion(self) -> str:
        """Return the conversion of the opset as text; empty where there was none."""
        before, after = self.opsets
        return "" if before == after else f", converted from opset {before} to {after}"


def simplify_file(source: Path, target: Path, sizes: Mapping[str, int], tolerance: float) -> Simplified:
    """Simplify a file into another, which is written as a whole or not at all.

    Args:
        source: the file.
        target: a new name, or an ONNX file, which is replaced.
        sizes: sizes of its axes, for the feeds to compare on.
        tolerance: largest difference, times the larger of 1 and the largest value of a tensor.

    Raises:
        RecipeError: the file cannot be read, an axis has no size, or the target cannot be written.
        DataError: the model fails at these sizes.
        Refused: ONNX Runtime cannot run it, or it is too large for one file.
        GateFailed: the results of the graphs differ.
    """
    require_place("OUT.onnx", target, is_onnx)
    model, signature = read_file(source, STAGE)
    require_sizes(shown_path(source), signature.inputs, sizes, lambda: axes_that_meet(model))
    feeds = random_feeds(signature.inputs, sizes, 0, CALLS)
    outputs = tuple(tensor.name for tensor in signature.outputs)
    before = Lowered(graph=source.stem, model=model, data_outputs=outputs)
    after = dataclasses.replace(before, model=graphs.clone(model))
    simplify_model(after.model)
    compared = _require_same(source, before, after, feeds, Tolerance(max_abs=tolerance))
    content = _content(after.model, source)
    with replace_file(target) as file:
        file.write(content)
    opset = onnx.load(source, load_external_data=False).opset_import
    standard = next((opset_import.version for opset_import in opset if opset_import.domain in ("", "ai.onnx")), 0)
    opsets = (standard, after.model.opset_imports.get("", standard))
    return Simplified(_operators(model), _operators(after.model), opsets, compared)


def is_onnx(content: bytes) -> bool:
    """Whether a file holds an ONNX model, which a simplified one may replace."""
    try:
        found = onnx.load_model_from_string(content)
    except Exception:  # noqa: BLE001  (whatever a file of unknown origin makes the parser raise)
        return False
    return bool(found.ir_version and found.opset_import and found.HasField("graph"))


def _require_same(source: Path, before: Lowered, after: Lowered, feeds: list[Feed], limits: Tolerance) -> str:
    """Compare the file with its simplified graph on random and on edge feeds; return a report as text."""
    session, names = open_file(source, STAGE, optimize=False), list(before.data_outputs)

    def run(given: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for feed in given:
            yield dict(zip(names, session.run(names, dict(feed)), strict=True)), {}

    try:
        steps = [OriginalCall(feed, *answer) for feed, answer in zip(feeds, run(feeds), strict=True)]
    except Exception as error:
        raise unanswered(STAGE, shown_path(source), feeds[0], error) from error
    worst = worst_of(compare(after, runner_of(after), steps), limits)
    if not worst.holds(limits):
        raise GateFailed(
            f"expected {worst.tensor} {worst.exceeded(limits)}",
            cure=CURE,
            place=Location(stage=STAGE, graph=after.graph),
        )
    kinds: tuple[EdgeKind, ...] = get_args(EdgeKind)
    cases = edge_cases(kinds, feeds, {}, run, before)
    disagreement = first_disagreement(after, runners_of(after), cases, limits)
    if disagreement is not None:
        raise disagreement.failure(after.graph, STAGE, CURE)
    return f"{len(steps)} calls of random numbers agree within {limits.max_abs:g}; {agreement_words(cases)}"


def _content(model: ir.Model, source: Path) -> bytes:
    """Return the file's content without our metadata on its nodes."""
    for node in model.graph.all_nodes():
        for key in (graphs.SOURCE_KEY, graphs.PASS_KEY):
            node.metadata_props.pop(key, None)
    try:
        return written(ir.serde.serialize_model(model))
    except Refused as error:
        raise Refused(
            f"expected {shown_path(source)} with its weights to fit into one file, got {error}",
            cure="simplify it in a recipe's build, which ships weights beside the graph",
            place=Location(stage=STAGE),
        ) from error


def _operators(model: ir.Model) -> dict[str, int]:
    return dict(collections.Counter(node.op_type for node in model.graph.all_nodes()))


def simplified_table(simplified: Simplified) -> Table:
    """Return the number of nodes before and after, per operator and in total, as a table."""
    table = Table(box=None, pad_edge=False)
    table.add_column("operator", overflow="fold")
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    before, after = simplified.before, simplified.after
    for name in sorted(before.keys() | after.keys()):
        table.add_row(escape(name), str(before.get(name, 0)), str(after.get(name, 0)))
    table.add_row("all", str(sum(before.values())), str(sum(after.values())))
    return table
