"""Fuses the nodes of attention (MatMul, mask, Softmax, MatMul) into one ai.onnx Attention node.

Before:
    scores = MatMul(q [batch, 16, time, 64], Transpose(k [batch, 16, slots, 64]))
    weights = Softmax(Where(seen, (scores + positions) * 0.125, lowest))
    y = MatMul(weights, v)
After:
    y = Attention<scale = 0.125>(q, k, v, Where(seen, positions * 0.125, lowest / 2))

The nodes between scores and softmax run as before, on 0 in place of the scores: their result is the mask. Heads that
share keys and values, broadcast along axes of size 1 or repeated, are given to the operator as numbers of heads.

Requires: sizes that are numbers but for the rows.
Ensures: opset 23, where a place was rewritten.
Keeps: products of dequantised values; scores that are capped, or read elsewhere; weights that are read elsewhere; masks
    by numbers that do not hide; a graph with an operator that opset 23 reads otherwise.
Numerics: order of summation for scores of less than 1e8 in size. Half of the lowest number swallows a score that it is
    added to, so that rows in which nothing is seen give the mean of all values as before; to a runtime it is no sign,
    as the lowest number itself is. Where -infinity hides, such a row gives 0 and not NaN. A score that is hidden must
    be a number, as it reaches the sum: keys that come from a padded input by a way without a selection are filled with
    0 where a mask hides them from every query.
Source: the function body of Attention, ONNX operator specification.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import changed_axes, perm_of
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.rewriting.attention.repeated_heads import before_repeats
from compiler.rewriting.attention.scores import HIDES, Scores, Step, read_scores, weights_for_values

OPSET = 23

READ_OTHERWISE = frozenset({"GroupNormalization"})
"""Operators whose meaning changed between the oldest opset that passes see and 23."""

LOWEST = float(np.finfo(np.float32).min)


@dataclasses.dataclass(frozen=True)
class FuseAttention:
    """One operator for attention."""

    name: ClassVar[str] = "fuse_attention"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace attention subgraphs by Attention operators, in place."""
        model = lowered.model
        graphs.infer_shapes(model)
        work = _Fusing(model, _padded_inputs(lowered))
        for node in graphs.nodes_of(model):
            if graphs.is_op(node, "Softmax") and weights_for_values(node) is not None:
                work.visit(node)
        if work.rewritten:
            model.graph.opset_imports[""] = max(OPSET, model.graph.opset_imports[""])
            graphs.prune(model)
            graphs.infer_shapes(model)
        return Outcome(lowered, work.rewritten + len(work.refused), work.rewritten, tuple(work.refused))


def _padded_inputs(lowered: Lowered) -> frozenset[ir.Value]:
    """Return the graph inputs whose padding may hold anything."""
    if not lowered.is_padded:
        return frozenset()
    states = {state.input: state.cache is not None for state in lowered.states}
    is_padded = bool(lowered.padded_axes)
    inputs = lowered.model.graph.inputs
    return frozenset(value for value in inputs if states.get(str(value.name), is_padded))


@dataclasses.dataclass(frozen=True)
class _Site:
    """One attention that can be fused.

    Attributes:
        scores: what lies around its softmax.
        heads: of queries.
        groups: heads of keys and values.
        times: frames of queries, and of keys.
        apart: whether the queries that share a head have an axis of their own, [batch, groups, heads / groups, ..].
        guards: conditions by which keys are filled with 0.
        repeated: keys and values before each head was repeated for the queries that share it, where they were.
    """

    scores: Scores
    heads: int
    groups: int
    times: tuple[int, int]
    apart: bool
    guards: tuple[ir.Value, ...]
    repeated: tuple[ir.Value, ir.Value] | None = None

    @property
    def operands(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the values of queries, transposed keys, and values."""
        query, keys = self.scores.product.inputs
        values = self.scores.context.inputs[1]
        assert query is not None and keys is not None and values is not None
        return query, keys, values


class _Fusing:
    """The nodes and masks that have been fused so far.

    Attributes:
        masks: the written masks, by the steps that they replace.
        rewritten: places.
        refused: places that stay, and why.
        unraised: why the graph must keep its opset; empty where it need not.
    """

    def __init__(self, model: ir.Model, padded: frozenset[ir.Value]) -> None:
        self.model, self.padded = model, padded
        self.masks: dict[tuple[object, ...], ir.Value] = {}
        self.rewritten = 0
        self.refused: list[Refusal] = []
        kept = sorted({node.op_type for node in model.graph if graphs.is_op(node, *READ_OTHERWISE)})
        is_old = model.graph.opset_imports.get("", 0) < OPSET
        self.unraised = f"opset {OPSET} reads {', '.join(kept)} otherwise" if kept and is_old else ""

    def visit(self, softmax: ir.Node) -> None:
        """Replace the attention around a softmax by one operator, or record why that is not possible."""
        scores = read_scores(softmax)
        site = scores if isinstance(scores, str) else _site(scores, self.padded)
        site = self.unraised or site
        if isinstance(site, str):
            place = Location(node=str(softmax.name), op=softmax.op_type, source=graphs.source_of(softmax))
            self.refused.append(Refusal(site, place))
        else:
            self._write(site)
            self.rewritten += 1

    def _write(self, site: _Site) -> None:
        context = site.scores.context
        old = context.outputs[0]
        write = _Writer(self.model, site)
        mask = write.mask(self.masks)
        inputs = [write.query(), write.keys(), write.values(), *([] if mask is None else [mask])]
        result = write.op("Attention", inputs, {"scale": site.scores.scale})
        if site.apart:
            _, width = _ends(old)
            repeats = site.heads // site.groups
            target = write.insert.int64s(0, site.groups, repeats, site.times[0], width)
            result = write.op("Reshape", [result, target])
        result.shape = old.shape
        graphs.take_over(self.model, old, result)


class _Writer:
    """Writes the operands of one attention."""

    def __init__(self, model: ir.Model, site: _Site) -> None:
        self.site = site
        self.insert = graphs.Inserter(model, FuseAttention.name, before=site.scores.context)

    def op(
        self,
        kind: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, int | float | Sequence[int]] | None = None,
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """Return the output of a new node, named after its operator."""
        name = f"{self.site.scores.context.outputs[0].name}_{kind.lower()}"
        return self.insert.op(kind, inputs, attributes, name=name, dtype=dtype)

    def number(self, number: float, *shape: int) -> ir.Value:
        """Return a constant filled with one number."""
        return self.insert.constant(np.full(shape, number, np.float32), "number")

    def query(self) -> ir.Value:
        """Return queries [batch, heads, time, d]."""
        query = self.site.operands[0]
        if not self.site.apart:
            return query
        frames, width = _ends(query)
        return self.op("Reshape", [query, self.insert.int64s(0, self.site.heads, frames, width)])

    def keys(self) -> ir.Value:
        """Return keys [batch, groups, slots, d], with zeros where a mask hides a position from all queries."""
        source, order = _transposed_back(self.parted(self.site.operands[1]))
        source = self.site.repeated[0] if self.site.repeated else source
        found = source if order == (0, 1, 2, 3) else self.op("Transpose", [source], {"perm": order})
        for seen in self.site.guards:
            first = 0 if len(graphs.dims_of(seen) or ()) > 3 else 1
            along = self.op("Reshape", [seen, self.insert.int64s(first, 1, -1, 1)], dtype=ir.DataType.BOOL)
            found = self.op("Where", [along, found, self.number(0.0)])
        return found

    def values(self) -> ir.Value:
        """Return values [batch, groups, slots, d]."""
        return self.site.repeated[1] if self.site.repeated else self.parted(self.site.operands[2])

    def parted(self, value: ir.Value) -> ir.Value:
        """Return an operand without the axis of size 1 for the queries that share a head."""
        if not self.site.apart:
            return value
        maker = value.producer()
        added = (
            maker is not None and graphs.is_op(maker, "Unsqueeze") and changed_axes(maker, graphs.integers_of) == (2,)
        )
        if added and maker is not None and maker.inputs[0] is not None:
            return maker.inputs[0]
        return self.op("Squeeze", [value, self.insert.int64s(2)])

    def mask(self, written: dict[tuple[object, ...], ir.Value]) -> ir.Value | None:
        """Return the mask to add to the scores, [.., time, slots]: the steps applied to 0.

        Args:
            written: masks written before, by their steps, which are shared.
        """
        scores = self.site.scores
        fills = [self._fill(place) for place in range(len(scores.steps))]
        steps = list(zip(scores.steps, fills, strict=True))
        key = (self.site.heads, self.site.times, *((step.node.op_type, step.other, fill) for step, fill in steps))
        if key in written:
            return written[key]
        mask: ir.Value | None = None
        for step, fill in steps:
            mask = self._step(step, fill, mask)
        if mask is None:
            return None
        written[key] = self._shaped(mask)
        return written[key]

    def _step(self, step: Step, fill: float, found: ir.Value | None) -> ir.Value | None:
        """Return a step applied to the result of the steps before it; None stands for 0."""
        if step.is_mask:
            inner = self.number(0.0, self.site.times[0], 1) if found is None else found
            return self.op("Where", [step.other, inner, self.number(fill)])
        if found is None:
            return None if step.is_factor else step.other
        return self.op(step.node.op_type, [found, step.other])

    def _fill(self, place: int) -> float:
        """Return the score that a mask step gives hidden positions: half of the lowest number, or more."""
        scores = self.site.scores
        step = scores.steps[place]
        if not step.is_mask:
            return 0.0
        if scores.clears is not None or math.isinf(step.number):
            return -math.inf
        lower = {other for other in scores.fills if other < step.number * scores.factor_from(place)}
        return float(LOWEST / 2.0 ** (1 + len(lower)) / max(1.0, scores.factor_from(place)))

    def _shaped(self, mask: ir.Value) -> ir.Value:
        """Return the mask with at most four axes and one entry per score of a head."""
        site = self.site
        dims = _mask_dims(site.scores, site.times)
        if dims[-2:] != site.times:
            mask = self.op("Add", [mask, self.number(0.0, *site.times)])
        if site.apart and dims[-4:-2] == (site.groups, site.heads // site.groups):
            return self.op("Reshape", [mask, self.insert.int64s(0 if len(dims) > 4 else 1, site.heads, *site.times)])
        return self.op("Squeeze", [mask, self.insert.int64s(1)]) if len(dims) > 4 else mask


def _site(scores: Scores, padded: frozenset[ir.Value]) -> _Site | str:
    """Return the parts of an attention, or why it is not fused."""
    query, keys = scores.product.inputs
    values = scores.context.inputs[1]
    if query is None or keys is None or values is None:
        return "expected queries, keys and values"
    dims = [graphs.dims_of(value) or () for value in (query, keys, values)]
    apart = len(dims[0]) == 5
    if any(len(shape) != (5 if apart else 4) for shape in dims):
        return f"expected heads apart, [batch, heads, time, d], got {[len(shape) for shape in dims]} axes"
    if len({shape[0] for shape in dims}) != 1 or any(not isinstance(size, int) for shape in dims for size in shape[1:]):
        return f"expected sizes that are numbers but for the rows, got {dims}"
    sizes = [tuple(int(size) for size in shape[1:]) for shape in dims]
    shared = [inner_sizes[:-2] for inner_sizes in sizes]
    if shared[1] != shared[2] or (shared[1] not in (shared[0], (1,)) if not apart else shared[1] != (shared[0][0], 1)):
        return f"expected heads that share keys and values alike, got {shared}"
    heads, times = math.prod(shared[0]), (sizes[0][-2], sizes[1][-1])
    if sizes[2][-2] != times[1] or sizes[1][-2] != sizes[0][-1]:
        return f"expected as many values as keys, got {sizes}"
    guards = _reason(scores, shared[0], times) or _guards(scores, keys, padded)
    if isinstance(guards, str):
        return guards
    site = _Site(scores, heads, shared[1][0], times, apart, guards)
    return site if apart else _without_repeats(site)


def _without_repeats(site: _Site) -> _Site:
    """Return the attention with the shared heads of keys and values in place of their repetitions."""
    (source, order), values = _transposed_back(site.operands[1]), site.operands[2]
    found = before_repeats(source), before_repeats(values)
    if order[:2] != (0, 1) or found[0] is None or found[1] is None:
        return site
    groups = [(graphs.dims_of(value) or (0, 0))[1] for value in found if value is not None]
    if groups[0] != groups[1] or not isinstance(groups[0], int):
        return site
    return dataclasses.replace(site, groups=groups[0], repeated=(found[0], found[1]))


def _transposed_back(transposed: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    """Return the value, and the permutation of its axes, that equals a value with its last two axes swapped."""
    maker = transposed.producer()
    perm = perm_of(maker, 4) if maker is not None and graphs.is_op(maker, "Transpose") else ()
    source = maker.inputs[0] if maker is not None and perm else transposed
    assert source is not None
    return source, tuple(perm[axis] if perm else axis for axis in (0, 1, 3, 2))


def _reason(scores: Scores, heads: Sequence[int], times: tuple[int, int]) -> str:
    """Return why the steps between the products do not fit the operator; empty where they do."""
    if graphs.dims_of(scores.softmax.outputs[0]) != graphs.dims_of(scores.product.outputs[0]):
        return "a term spreads the scores"
    if not 0 < scores.scale < math.inf:
        return f"expected a scale above 0, got {scores.scale}"
    for fill in scores.fills:
        if not fill <= HIDES:
            return f"expected hidden places to get {HIDES:g} or less, got {fill:g}"
    dims = _mask_dims(scores, times)
    by_head = (1,) * (len(heads) + 2 - len(dims)) + dims[-2 - len(heads) : -2]
    if len(heads) == 2 and by_head[-2:] not in ((1, 1), tuple(heads)):
        return f"expected a mask of one size for all heads or of all, got {dims}"
    return ""


def _mask_dims(scores: Scores, times: tuple[int, int]) -> tuple[Dim, ...]:
    """Return the shape of the mask before it is expanded to all scores."""
    steps = [step for step in scores.steps if not step.is_factor]
    others = [graphs.dims_of(step.other) or () for step in steps]
    if steps and steps[0].is_mask:
        others.append((times[0], 1))
    transposed = itertools.zip_longest(*(reversed(dims) for dims in others), fillvalue=1)
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in transposed)[::-1]


def _guards(scores: Scores, keys: ir.Value, padded: frozenset[ir.Value]) -> tuple[ir.Value, ...] | str:
    """Return the conditions by which keys have to be filled with zeros, or why the masks do not give them."""
    if not scores.masks or not _may_be_padding(keys, padded):
        return ()
    for step in scores.masks:
        dims = graphs.dims_of(step.other) or ()
        if any(size != 1 for size in dims[1 if len(dims) > 3 else 0 : -1]):
            return "keys may hold padding, and are hidden from one query and not from another"
    return tuple(step.other for step in scores.masks)


def _may_be_padding(value: ir.Value, padded: frozenset[ir.Value]) -> bool:
    """Whether a value depends on a padded input without a selection that replaces the padding."""
    waiting, passed = [value], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in padded:
            return True
        node = value.producer()
        if value in passed or node is None:
            continue
        passed.add(value)
        fill = graphs.array_of(node.inputs[2]) if graphs.is_op(node, "Where") else None
        if fill is None or not np.all(np.isfinite(fill)):
            waiting += [operand for operand in (*node.inputs, *graphs.read_inside(node)) if operand is not None]
    return False


def _ends(value: ir.Value) -> tuple[int, int]:
    """Return the last two sizes, which are fixed."""
    dims = graphs.dims_of(value)
    assert dims is not None
    rows, columns = dims[-2:]
    assert isinstance(rows, int) and isinstance(columns, int)
    return rows, columns
