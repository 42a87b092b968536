"""Random graphs, lengths and buckets: whatever padding accepts must run padded and batched as it runs alone.

`python -m tests.property.fuzz --graphs 20000` draws many; the tests draw a few. A graph is grown node by node out of
values [batch, time-like, channels] or [batch, channels, time-like]; every value may feed several nodes. Some graphs
take lengths or masks of their rows, too, some have one row only, or inputs with axes of their own, and some are written
in older operator sets, and converted as captured ones are.
"""

import argparse
import collections
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.build.capture.constant_inputs import fix_inputs
from compiler.build.capture.onnx_source.opset_conversion import raised
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array, Lowered, Outcome, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from tests.kit.agreement import require_helpful
from tests.kit.offline import Differs, Edges, check_padded, difference_of, free_size, in_session
from tests.property.axis_kinds import AXIS_KINDS, ONE_ROW_KINDS
from tests.property.count_kinds import COUNT_KINDS
from tests.property.double_precision import InDouble
from tests.property.graph_builder import NEWEST, OLDEST, SINCE, WIDTH, GraphBuilder, Kinds, Mixture, since
from tests.property.length_kinds import HEAD_KINDS, LENGTH_KINDS, SIZE_KINDS, UNDECLARED
from tests.property.mask_kinds import MASK_KINDS, TAKEN
from tests.property.opset_kinds import OPSET_KINDS
from tests.property.rate_kinds import RATE_KINDS
from tests.property.write_kinds import WRITE_KINDS

EDGES: tuple[Edges, ...] = ("zeros", "ties", "infinities", "NaN")
"""Not numbers of which a sum may overflow, or not, by the order of its terms."""


def _elementwise(builder: GraphBuilder) -> None:
    found = builder.pick()
    op = str(
        builder.rng.choice(["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Softplus", "Erf", "Sin", "LeakyRelu"])
    )
    builder.keep(builder.op(op, [found.value]), found.frames_last)


def _dangerous(builder: GraphBuilder) -> None:
    """Functions that turn finite padding into infinities."""
    found = builder.pick()
    positive = builder.op("Abs", [found.value])
    shifted = builder.op("Add", [positive, builder.insert.constant(np.array(0.5, np.float32), "shift")])
    op = str(builder.rng.choice(["Log", "Sqrt", "Reciprocal"]))
    builder.keep(builder.op(op, [shifted]), found.frames_last)


def _constant(builder: GraphBuilder) -> None:
    found = builder.pick()
    op = str(builder.rng.choice(["Add", "Mul", "Sub", "Div", "Max", "Min"]))
    constant = np.array(builder.rng.choice([0.0, 1.0, 2.0, -1.5]) if op != "Div" else 2.0, np.float32)
    builder.keep(builder.op(op, [found.value, builder.insert.constant(constant, "c")]), found.frames_last)


def _binary(builder: GraphBuilder) -> None:
    a = builder.pick()
    b = builder.pick(a.frames_last)
    op = str(builder.rng.choice(["Add", "Mul", "Sub", "Max", "Min"]))
    builder.keep(builder.op(op, [a.value, b.value]), a.frames_last)


def _linear(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    builder.keep(builder.op("MatMul", [found.value, builder.weights(WIDTH, WIDTH)]), False)


@since(17)
def _layer_norm(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    inputs = [found.value, builder.weights(WIDTH), builder.weights(WIDTH)]
    builder.keep(builder.op("LayerNormalization", inputs, {"axis": -1}), False)


def _instance_norm(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    graphs.infer_shapes(builder.model)
    size = (graphs.dims_of(found.value) or (0, 0, 0))[2]
    known = size if isinstance(size, int) else size.subs(graphs.symbol("time"), 8)
    if not (isinstance(known, int) or known.is_Integer) or known < 1:
        return  # the kernel ends the process when there are no entries
    inputs = [found.value, builder.weights(WIDTH), builder.weights(WIDTH)]
    builder.keep(builder.op("InstanceNormalization", inputs), True)


def _conv(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    kernel, stride, dilation = (int(builder.rng.integers(1, top)) for top in (4, 3, 3))
    pads = [int(each) for each in builder.rng.integers(0, 3, 2)]
    grouped = bool(builder.rng.integers(0, 2))
    weights = builder.weights(WIDTH, 1 if grouped else WIDTH, kernel)
    inputs = [found.value, weights] + ([builder.weights(WIDTH)] if builder.rng.integers(0, 2) else [])
    attributes: dict[str, int | float | str | Sequence[int]] = {
        "pads": pads,
        "strides": [stride],
        "dilations": [dilation],
    }
    attributes["group"] = WIDTH if grouped else 1
    builder.keep(builder.op("Conv", inputs, attributes), True)


def _transposed_conv(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    kernel, stride = int(builder.rng.integers(1, 5)), int(builder.rng.integers(1, 4))
    most = (kernel - 1) // 2
    pads = [int(each) for each in builder.rng.integers(0, most + 1, 2)]
    inputs = [found.value, builder.weights(WIDTH, WIDTH, kernel)]
    extra = int(builder.rng.integers(0, stride))
    attributes = {"pads": pads, "strides": [stride], "output_padding": [extra]}
    builder.keep(builder.op("ConvTranspose", inputs, attributes), True)


def _pool(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    op = str(builder.rng.choice(["MaxPool", "AveragePool"]))
    kernel, stride = int(builder.rng.integers(1, 4)), int(builder.rng.integers(1, 3))
    attributes: dict[str, int | float | str | Sequence[int]] = {"kernel_shape": [kernel], "strides": [stride]}
    if kernel > 1:
        attributes["pads"] = [int(each) for each in builder.rng.integers(0, kernel // 2 + 1, 2)]
    if op == "AveragePool":
        attributes["count_include_pad"] = int(builder.rng.integers(0, 2))
    builder.keep(builder.op(op, [found.value], attributes), True)


def _pad(builder: GraphBuilder) -> None:
    found = builder.pick(True)
    mode = str(builder.rng.choice(["constant", "constant", "edge", "reflect"]))
    low = -1 if mode == "constant" else 0
    amounts = [0, 0, int(builder.rng.integers(low, 3)), 0, 0, int(builder.rng.integers(low, 3))]
    value = builder.insert.constant(np.array(builder.rng.choice([0.0, 1.5]), np.float32), "pad")
    inputs = [found.value, builder.insert.int64s(*amounts)] + ([value] if mode == "constant" else [])
    builder.keep(builder.op("Pad", inputs, {"mode": mode}), True)


def _attention(builder: GraphBuilder) -> None:
    query, key = builder.pick(False), builder.pick(False)
    turned = builder.op("Transpose", [key.value], {"perm": [0, 2, 1]})
    scores = builder.op("MatMul", [query.value, turned])
    if builder.rng.integers(0, 2) and query is key and builder.opset >= 14:
        ones = builder.op("Sub", [scores, scores])
        causal = builder.op("Trilu", [ones, builder.insert.constant(np.array(1, np.int64), "one")], {"upper": 1})
        scores = builder.op("Add", [scores, causal])
    weights = builder.op("Softmax", [scores], {"axis": -1})
    builder.keep(builder.op("MatMul", [weights, key.value]), False)


@since(12)
def _causal_attention(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    turned = builder.op("Transpose", [found.value], {"perm": [0, 2, 1]})
    scores = builder.op("MatMul", [found.value, turned])
    zero, one = (builder.insert.constant(np.array(n, np.int64), "n") for n in (0, 1))
    whole = ir.DataType.INT64
    size = builder.op("Squeeze", [builder.length(found.value, False)], dtype=whole)
    places = builder.op("Range", [zero, size, one], dtype=whole)
    rows = builder.op("Unsqueeze", [places, builder.insert.int64s(1)], dtype=whole)
    op = str(builder.rng.choice(["GreaterOrEqual", "Greater", "LessOrEqual"]))
    seen = builder.op(op, [rows, places], dtype=ir.DataType.BOOL)
    low = builder.insert.constant(np.array(builder.rng.choice([-1e30, -3.4e38, -10.0]), np.float32), "low")
    weights = builder.op("Softmax", [builder.op("Where", [seen, scores, low])], {"axis": -1})
    builder.keep(builder.op("MatMul", [weights, found.value]), False)


def _reduce(builder: GraphBuilder) -> None:
    """A statistic over frames or channels, spread again."""
    found = builder.pick()
    op = str(builder.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceL2"]))
    axis = builder.insert.int64s(int(builder.rng.integers(1, 3)))
    statistic = builder.op(op, [found.value, axis], {"keepdims": 1})
    builder.keep(builder.op("Sub", [found.value, statistic]), found.frames_last)


def _softmax(builder: GraphBuilder) -> None:
    found = builder.pick()
    builder.keep(builder.op("Softmax", [found.value], {"axis": int(builder.rng.integers(1, 3))}), found.frames_last)


@since(10)
def _slice(builder: GraphBuilder) -> None:
    found = builder.pick()
    axis = 2 if found.frames_last else 1
    start, end = int(builder.rng.integers(-2, 3)), int(builder.rng.choice([graphs.END, -1, -2]))
    bounds = [builder.insert.int64s(n) for n in (start, end, axis, int(builder.rng.integers(1, 3)))]
    builder.keep(builder.op("Slice", [found.value, *bounds]), found.frames_last)


def _concat(builder: GraphBuilder) -> None:
    a = builder.pick()
    b = builder.pick(a.frames_last)
    builder.keep(builder.op("Concat", [a.value, b.value], {"axis": 2 if a.frames_last else 1}), a.frames_last)


@since(10)
def _positions(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    table = builder.weights(1, 64, WIDTH)
    bounds = [builder.insert.int64s(int(builder.rng.integers(0, 2)) * 0), builder.length(found.value, False)]
    rows = builder.op("Slice", [table, *bounds, builder.insert.int64s(1)])
    builder.keep(builder.op("Add", [found.value, rows]), False)


@since(11)
def _cumulative(builder: GraphBuilder) -> None:
    found = builder.pick(False)
    axis = builder.insert.constant(np.array(1, np.int64), "axis")
    builder.keep(builder.op("CumSum", [found.value, axis], {"reverse": int(builder.rng.integers(0, 2))}), False)


def _merge(builder: GraphBuilder) -> None:
    """[batch, frames, channels] as [batch * frames, channels] and back."""
    found = builder.pick(False)
    flat = builder.op("Reshape", [found.value, builder.insert.int64s(-1, WIDTH)])
    done = builder.op("MatMul", [flat, builder.weights(WIDTH, WIDTH)])
    shape = builder.op("Shape", [found.value], dtype=ir.DataType.INT64)
    builder.keep(builder.op("Reshape", [done, shape]), False)


def _heads(builder: GraphBuilder) -> None:
    """[batch, frames, 4] as [batch, frames, 2, 2], turned to heads and back."""
    found = builder.pick(False)
    apart = builder.op("Reshape", [found.value, builder.insert.int64s(0, -1, 2, 2)])
    heads = builder.op("Transpose", [apart], {"perm": [0, 2, 1, 3]})
    weights = builder.op("Softmax", [heads], {"axis": int(builder.rng.choice([2, 3]))})
    back = builder.op("Transpose", [weights], {"perm": [0, 2, 1, 3]})
    builder.keep(builder.op("Reshape", [back, builder.insert.int64s(0, -1, WIDTH)]), False)


def _entry(builder: GraphBuilder) -> None:
    """The first or last frame, spread again."""
    found = builder.pick(False)
    index = builder.insert.int64s(int(builder.rng.choice([0, -1])))
    entry = builder.op("Gather", [found.value, index], {"axis": 1})
    builder.keep(builder.op("Add", [found.value, entry]), False)


def _rows_mixed(builder: GraphBuilder) -> None:
    """What must never be accepted: a statistic over the batch."""
    found = builder.pick()
    mean = builder.op("ReduceMean", [found.value, builder.insert.int64s(0)], {"keepdims": 1})
    builder.keep(builder.op("Sub", [found.value, mean]), found.frames_last)


KINDS: Kinds = (
    (_elementwise, 3), (_dangerous, 1), (_constant, 2), (_binary, 2), (_linear, 2), (_layer_norm, 1.5),
    (_instance_norm, 1), (_conv, 3), (_transposed_conv, 1), (_pool, 1), (_pad, 1), (_attention, 1.5),
    (_causal_attention, 1), (_reduce, 1.5), (_softmax, 1), (_slice, 1), (_concat, 0.7), (_positions, 1),
    (_cumulative, 0.5), (_merge, 1), (_heads, 1), (_entry, 1), (_rows_mixed, 0.1),
)  # fmt: skip


WIDER: Kinds = (*KINDS, *LENGTH_KINDS)
"""What grows where rows have lengths of their own to make something of."""

EVERYTHING: Kinds = (*WIDER, *AXIS_KINDS, *OPSET_KINDS, *WRITE_KINDS)
ONE_ROW: Kinds = (*KINDS, *UNDECLARED, *ONE_ROW_KINDS)

MIXTURES: tuple[Mixture, ...] = (
    Mixture("plain", KINDS),
    Mixture("lengths", WIDER),
    Mixture("other axes", (*KINDS, *AXIS_KINDS)),
    Mixture("old operator sets", (*WIDER, *OPSET_KINDS), opsets=range(OLDEST, graphs.OLDEST_OPSET)),
    Mixture("literal batch", ONE_ROW, "literal"),
    Mixture("no batch", ONE_ROW, "none"),
    Mixture("everything", EVERYTHING, opsets=range(graphs.OLDEST_OPSET, NEWEST + 1)),
)
"""What grows, and on what ground; seeds take turns, and in five turns of eight all are of one of those below."""

OF_SIZES = Mixture("types of sizes", (*KINDS, *SIZE_KINDS))
OF_HEADS = Mixture("merged heads", (*KINDS, *HEAD_KINDS))
OF_RATES = Mixture("rates and fixed inputs", (*KINDS, *RATE_KINDS))
OF_MASKS = Mixture("masks", (*WIDER, *((kind, 3 * weight) for kind, weight in MASK_KINDS)))

OF_COUNTS = Mixture("counts", (*KINDS, *COUNT_KINDS))
OF_OWN_COUNTS = Mixture("counts of one row", (*KINDS, *COUNT_KINDS), "literal")
BELOW = (OF_SIZES, OF_HEADS, OF_RATES, OF_MASKS, OF_COUNTS, OF_OWN_COUNTS)


def mixture_of(seed: int) -> Mixture:
    """On what the graph of a seed grows in a long run."""
    counts = OF_COUNTS if seed % 2 else OF_OWN_COUNTS
    turns = {1: OF_RATES, 3: OF_HEADS, 4: counts, 5: OF_SIZES, 6: OF_MASKS}
    return turns.get(seed // len(MIXTURES) % 8, MIXTURES[seed % len(MIXTURES)])


def grow(seed: int, nodes: int = 7, mixture: Mixture = MIXTURES[0]) -> Lowered:
    """A random graph with the last value, and whatever else grew to be returned, as outputs."""
    builder = GraphBuilder(seed, mixture.rows, mixture.opsets)
    known = [(kind, weight) for kind, weight in mixture.kinds if SINCE.get(kind, OLDEST) <= builder.opset]
    growing, weights = [kind for kind, _ in known], np.array([weight for _, weight in known])
    for _ in range(int(builder.rng.integers(1, nodes + 1))):
        growing[int(builder.rng.choice(len(growing), p=weights / weights.sum()))](builder)
    builder.graph.outputs.insert(0, _last(builder))
    fix_inputs(builder.model, builder.constants)
    for line, node in enumerate(builder.model.graph, start=1):
        node.metadata_props[graphs.SOURCE_KEY] = f"fuzz.py:{line}"
    graphs.prune(builder.model)
    graphs.infer_shapes(builder.model)
    inputs = graphs.inputs_named(builder.model)
    declared = tuple(name for name in inputs if name == "n")
    masks, pad_masks = (tuple(name for name in inputs if TAKEN.get(name, (0, None))[1] == shown) for shown in (1, 0))
    axes = [PaddedAxis("time", declared[0] if declared else "time_length", masks, pad_masks, declared)]
    if any("later" in map(str, value.shape or ()) for value in inputs.values()):
        axes.append(PaddedAxis("later", "later_length"))
    batch = "batch" if mixture.rows == "batch" else None
    return Lowered("fuzz", builder.model, batch_axis=batch, padded_axes=tuple(axes))


def _last(builder: GraphBuilder) -> ir.Value:
    """The value that the graph returns; where inputs have no batch, now and then without one."""
    last = builder.values[-1].value
    if builder.rows == "none" and builder.rng.integers(0, 2):
        return builder.op("Squeeze", [last, builder.insert.int64s(0)])
    return last


def attack(seed: int, nodes: int = 7, mixture: Mixture = MIXTURES[0]) -> str:
    """Pad one random graph, have the checker replay the certificate, and compare with the graph as it grew.

    Valid places hold ordinary numbers first, then zeros, ties, infinities and NaN.

    Returns:
        `accepted`; `refused`; `undefined` where it does not run alone; `ill-conditioned` where the row alone holds
        numbers whose sums overflow by order, or is noise at its shortest lengths, as the deviation of one entry is, and
        all longer rows hold.

    Raises:
        Differs: an unsound accept.
        Rejected: the checker does not find what the prover claims.
        AssertionError: a refusal has no cure, or one that no user can follow.
        Exception: anything else, of which the prover crashed.
    """
    grown = grow(seed, nodes, mixture)
    try:
        origin = as_padded(grown)
        outcome = PadAxes().apply(dataclasses.replace(origin, model=graphs.clone(origin.model)))
    except Refused as refused:
        require_helpful(refused)
        return "refused"
    certificate = json.loads(json.dumps(outcome.records[0]))
    before, after = (ir.serde.serialize_model(each.model) for each in (origin, outcome.lowered))
    is_told = _is_told(grown.padded_axes[0])
    alone = origin if is_told else grown
    try:
        check(before, after, certificate)
    except Rejected:
        if any(_runs_alone(alone, outcome)):
            raise
        return "undefined"  # nothing is claimed of a graph that runs at no length; capture runs it before padding
    if is_told:
        _check_declared(grown, origin, outcome.lowered.padded_axes[0].minimum)
    count = 3 if mixture.rows == "batch" else 1
    edges: Edges = "none"
    try:
        for edges in ("none", *EDGES):
            proved = None if edges == "none" else origin
            check_padded(alone, outcome, seed=seed, rows=count, tolerance=1e-4, edges=edges, proved=proved)
    except Differs as differs:
        if _holds_without_signs(alone, origin, outcome, seed=seed, rows=count, edges=edges):
            return "ill-conditioned"
        if differs.row is not None and _is_noise(origin, differs.row):
            require_same_in_double(origin, outcome, differs, seed=seed, rows=count, edges=edges)
            return "ill-conditioned"
        if not any(_is_noise(origin, row) for row in _drawn_rows(origin, outcome)):
            raise
        shortest = outcome.lowered.padded_axes[0].minimum + 2
        check_padded(alone, outcome, seed=seed, rows=count, tolerance=1e-4, shortest=shortest)
        return "ill-conditioned"
    except Exception as error:
        if all(_runs_alone(alone, outcome)):
            raise Differs(f"runs alone, but not padded: {str(error)[:300]}") from error
        return "undefined"
    return "accepted"


def as_padded(grown: Lowered) -> Lowered:
    """The graph as padding takes it: in an operator set of today, and without declared lengths.

    Raises:
        Refused: an operator has no counterpart, or a length cannot be made of the other inputs.
    """
    model = raised(grown.model)
    graphs.infer_shapes(model)
    today, (axis, *others) = dataclasses.replace(grown, model=model), grown.padded_axes
    if not _is_told(axis):
        return today
    folded = RemoveMaskInputs().apply(dataclasses.replace(today, model=graphs.clone(model))).lowered
    bare = dataclasses.replace(axis, mask_inputs=(), pad_mask_inputs=(), length_inputs=())
    return dataclasses.replace(folded, padded_axes=(bare, *others))


def _is_told(axis: PaddedAxis) -> bool:
    """Whether the model takes lengths or masks along an axis."""
    return bool(axis.length_inputs or axis.masks)


def _check_declared(grown: Lowered, origin: Lowered, least: int) -> None:
    """Compare a graph with declared lengths and masks with the one without them, from a length on.

    Raises:
        Differs: it does not compute what it computed.
    """
    before, after = (open_session(graphs.serialized(each.model)) for each in (grown, origin))
    for length in (least, least + 1, least + 4, least + 7):
        given = _feeds(origin, length, np.random.default_rng(length))
        try:
            told = {name: np.array([length]) for name in grown.padded_axes[0].length_inputs}
            for name, shown in grown.padded_axes[0].masks.items():
                told[name] = np.full((1, length), shown, TAKEN[name][0].numpy())
            wanted = before.run(None, given | told)
        except Exception:  # noqa: BLE001 - it does not run alone at this length
            continue
        for expected, got in zip(wanted, after.run(None, given), strict=True):
            if not np.allclose(expected, got, 1e-4, 1e-5, equal_nan=True):
                raise Differs(f"without declared lengths, {length} frames: {got} instead of {expected}")


def require_same_in_double(
    origin: Lowered, outcome: Outcome, differs: Differs, *, seed: int, rows: int, edges: Edges
) -> None:
    """Excuse a difference that is rounding: in double precision there is none.

    Raises:
        Differs: there is one, too, or that cannot be told.
    """
    try:
        check_padded(origin, outcome, seed=seed, rows=rows, tolerance=1e-4, edges=edges, proved=origin, opened=InDouble)
    except Exception as error:
        raise differs from error


def _holds_without_signs(
    alone: Lowered, origin: Lowered, outcome: Outcome, *, seed: int, rows: int, edges: Edges
) -> bool:
    """Whether a graph differs padded by nothing but the sign of zeros.

    Sums so far that begin in padding begin with 0.0; of entries that are all -0.0 they are -0.0 alone. Where the
    padding of an operand is overwritten, a Where does it, and that of ONNX Runtime makes 0.0 of -0.0.
    """
    model = graphs.clone(alone.model)
    filled = {(record["node"], need["fill"]) for record in outcome.records[0]["records"]
              for need in record["needs"] if "fill" in need}  # fmt: skip
    unsigned = [(node, at) for node in model.graph for at in range(len(node.inputs))
                if (node.name, at) in filled or (at == 0 and graphs.is_op(node, "CumSum"))]  # fmt: skip
    for node, at in unsigned:
        value = node.inputs[at]
        insert = graphs.Inserter(model, "fuzz", before=node)
        zero = insert.constant(np.zeros((), np.float32), "unsigned")
        if value is not None and value.dtype == ir.DataType.FLOAT:
            node.replace_input_with(at, insert.op("Add", [value, zero], name="unsigned"))
    try:
        changed = dataclasses.replace(alone, model=model)
        check_padded(changed, outcome, seed=seed, rows=rows, tolerance=1e-4, edges=edges, proved=origin)
    except Differs:
        return False
    return bool(unsigned)


def _is_noise(origin: Lowered, row: Mapping[str, Array]) -> bool:
    """Whether the graph alone is far from what double precision gives for a row."""
    single, wanted = (opened(origin.model).run(None, row) for opened in (in_session, InDouble))
    return any(not difference_of(*each) <= 2e-5 for each in zip(single, wanted, strict=True))


def _drawn_rows(origin: Lowered, outcome: Outcome) -> Iterator[dict[str, Array]]:
    """Rows at the shortest lengths, where deviations are of one entry or two."""
    rng, least = np.random.default_rng(0), outcome.lowered.padded_axes[0].minimum
    for length in [least, least + 1] * 40:
        scale = np.float32(rng.choice([0, 1, 3]))  # rounding grows with the inputs; equal entries have no variance
        yield {name: array * scale for name, array in _feeds(origin, length, rng).items()}


def _feeds(origin: Lowered, length: int, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs of one row."""
    known, free = {"batch": 1, "time": length, "later": length}, free_size(origin)
    shapes = {
        str(each.name): [dim if isinstance(dim, int) else known.get(str(dim), free) for dim in each.shape or ()]
        for each in origin.model.graph.inputs
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _runs_alone(origin: Lowered, outcome: Outcome) -> list[bool]:
    """Whether the graph runs alone at its minimum and each of a few lengths more."""
    least, runs = outcome.lowered.padded_axes[0].minimum, []
    try:
        session = open_session(graphs.serialized(origin.model))
    except Exception:  # noqa: BLE001
        return [False]
    for length in range(least, least + 6):
        given = _feeds(origin, length, np.random.default_rng(0))
        try:
            session.run(None, {name: np.ones_like(array) for name, array in given.items()})
        except Exception:  # noqa: BLE001
            runs.append(False)
        else:
            runs.append(True)
    return runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw many graphs and print what became of them; 1 when one was unsound, disputed or crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--nodes", type=int, default=7, help="most nodes of a graph")
    options = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    apart: dict[str, collections.Counter[str]] = {
        mixture.name: collections.Counter() for mixture in (*MIXTURES, *BELOW)
    }
    started = time.monotonic()
    for seed in range(options.seed, options.seed + options.graphs):
        found, told = _outcome(seed, options.nodes)
        counts[found] += 1
        apart[mixture_of(seed).name][found] += 1
        if found in DEFECTS:
            least = next(n for n in range(1, options.nodes + 1) if _outcome(seed, n)[0] == found)
            print(f"seed {seed}, {found} from {least} nodes on: {told}", flush=True)
        done = seed - options.seed + 1
        if done % 500 == 0 or done == options.graphs:
            print(f"{done} graphs, {time.monotonic() - started:.0f} s: {dict(sorted(counts.items()))}", flush=True)
    for name, found_there in apart.items():
        print(f"{name}: {dict(sorted(found_there.items()))}")
    return 1 if any(counts[each] for each in DEFECTS) else 0


DEFECTS = ("unsound", "disputed", "crashed")


def _outcome(seed: int, nodes: int) -> tuple[str, str]:
    """What became of a graph, and what was said."""
    try:
        return attack(seed, nodes, mixture_of(seed)), ""
    except Differs as difference:
        return "unsound", str(difference)
    except Rejected as rejected:
        return "disputed", str(rejected)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
        return "crashed", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
