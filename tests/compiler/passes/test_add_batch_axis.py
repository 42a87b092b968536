"""add_batch_axis: a graph for one row answers many rows as it answers each alone, or is refused."""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.stream import Stepper
from compiler.graph.stages import Lowered, Outcome, PaddedAxis, RowAxis, State
from compiler.passes.add_batch_axis import AddBatchAxis
from compiler.passes.pad_axes import PadAxes
from compiler.passes.simplify import Simplify
from compiler.passes.window_states import WindowStates
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import verify_refusal, verify_untouched
from tests.kit.graphs import BATCH, copy_of, ops_of, parse, random_weights, streaming
from tests.kit.offline import check_padded
from tests.kit.one_row import Differs, check_rows, one_row

WEIGHTS = random_weights({"w": (4, 4), "v": (4,), "k": (4, 4, 3)})

HARD_ONES = """(float[1,t,4] x, float[4,4] w, float[4] v) => (float[1,t,4] y, float[1,4] z)
<int64[4] heads = {1, -1, 2, 2}, int64[3] flat = {1, -1, 4}, int64[1] front = {0}, int64[1] time = {1}>
{
    h = Reshape(x, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(h)
    k = Transpose<perm = [0, 2, 3, 1]>(h)
    s = MatMul(q, k)
    p = Softmax<axis = -1>(s)
    m = MatMul(p, q)
    b = Transpose<perm = [0, 2, 1, 3]>(m)
    r = Reshape(b, flat)
    alone = Squeeze(r, front)
    n = Gemm(alone, w, v)
    y = Unsqueeze(n, front)
    z = ReduceMean<keepdims = 0>(y, time)
}"""
NO_AXIS = """(float[6,4] x, float[4,4] w, float[4,4,3] k) => (float[6,4] y, float last)
<int64[1] front = {0}, int64[6] pads = {0, 0, 2, 0, 0, 0}, int64[1] zero = {0}, int64[1] one = {1}>
{
    q = MatMul(x, w)
    turned = Transpose<perm = [1, 0]>(x)
    s = MatMul(q, turned)
    p = Softmax<axis = -1>(s)
    m = MatMul(p, x)
    channels = Transpose<perm = [1, 0]>(m)
    framed = Unsqueeze(channels, front)
    wide = Pad(framed, pads)
    c = Conv(wide, k)
    plain = Squeeze(c, front)
    y = Transpose<perm = [1, 0]>(plain)
    last = ReduceSum<keepdims = 0>(y)
}"""


def test_a_graph_with_hard_ones() -> None:
    lowered = one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS)
    outcome = check_rows(lowered)
    assert (outcome.matched, outcome.lowered.row_axes) == (13, ())
    assert ops_of(outcome.lowered.model).count("Gemm") == 0, "rows of one matrix are frames here"


def test_time_is_padded_in_what_the_batch_was_added_to() -> None:
    lowered = AddBatchAxis().apply(one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS)).lowered
    lowered = dataclasses.replace(lowered, padded_axes=(PaddedAxis("t", "t_length"),))
    check_padded(lowered, PadAxes().apply(copy_of(lowered)))


def test_a_graph_without_a_batch_axis_keeps_its_operators() -> None:
    lowered = one_row(NO_AXIS, {"x": None, "y": None, "last": None}, WEIGHTS)
    after = check_rows(lowered).lowered.model
    kept = [op for op in ops_of(lowered.model) if op not in ("Squeeze", "Unsqueeze")]
    assert ops_of(after) == kept, "a convolution of one row is a convolution of a batch"


@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_over_a_hard_one_never_sums_rows(axis: int) -> None:
    """With one row the sum changes nothing; over rows it would."""
    dims = "1,t,4" if axis == 0 else "t,1,4"
    text = f"(float[{dims}] x) => (float[o] y) <int64[1] a = {{{axis}}}> {{ y = ReduceSum<keepdims = 0>(x, a) }}"
    check_rows(one_row(text, {"x": axis, "y": None}))


def test_the_check_sees_a_sum_over_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are summed differ from the row alone."""

    def mixing(self: AddBatchAxis, lowered: Lowered) -> Outcome:
        outcome = apply(self, lowered)
        if lowered.row_axes:
            for node in outcome.lowered.model.graph:
                if node.op_type == "Relu":
                    insert = graphs.Inserter(outcome.lowered.model, AddBatchAxis.name, node)
                    total = insert.op("ReduceSum", [node.inputs[0], insert.int64s(0)], name="mixed")
                    node.replace_input_with(0, insert.op("Add", [node.inputs[0], total], name="mixed_back"))
        return outcome

    apply: Callable[[AddBatchAxis, Lowered], Outcome] = AddBatchAxis.apply
    monkeypatch.setattr(AddBatchAxis, "apply", mixing)
    with pytest.raises(Differs, match="y: differs by"):
        check_rows(one_row("(float[1,4] x) => (float[1,4] y) { y = Relu(x) }", {"x": 0, "y": 0}))


def test_nothing_is_done_unless_asked_for() -> None:
    verify_untouched(AddBatchAxis(), streaming())
    lowered = dataclasses.replace(one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS), row_axes=())
    verify_untouched(AddBatchAxis(), lowered)


def test_what_depends_on_no_input_is_repeated() -> None:
    text = """(float[1,4] x, float[4] v) => (float[1,4] y, float[4] z, float[1,4] same)
    { y = Relu(x)  z = Abs(v)  same = Identity(x) }"""
    check_rows(one_row(text, {"x": 0, "y": 0, "z": None, "same": 0}, WEIGHTS))


def test_two_outputs_that_become_one_tensor() -> None:
    text = """(float[1,4] x) => (float[1,4] y, float[4] z) <int64[1] front = {0}>
    { y = Relu(x)  z = Squeeze(y, front) }"""
    outcome = check_rows(one_row(text, {"x": 0, "y": 0, "z": None}))
    assert [value.name for value in outcome.lowered.model.graph.outputs] == ["y", "z"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("y = NonZero(x)", "NonZero"),
        ("n = ReduceSum<keepdims = 0>(x)  i = Cast<to = 7>(n)  y = Range(zero, i, step)", "Range"),
        ("n = ReduceSum<keepdims = 1>(x)  i = Cast<to = 7>(n)  y = ConstantOfShape(i)", "ConstantOfShape"),
        ("y = Unique(x)", "Unique"),
        ("y = com.acme.Mystery(x)", "Mystery"),
    ],
)
def test_an_operator_without_a_rule_is_refused(body: str, op: str) -> None:
    text = f"(float[4] x) => (float[o] y) <int64 zero = {{0}}, int64 step = {{1}}> {{ {body} }}"
    lowered = one_row(text, {"x": None, "y": None})
    verify_refusal(
        AddBatchAxis(), lowered, message=f"no rule that gives {op} a batch axis", cure="dynamic axis", op=op, axis=BATCH
    )


def test_a_body_that_reads_a_row_is_refused() -> None:
    text = """(float[4] x, bool c) => (float[4] y)
    {
        y = If(c) <
            then_branch = t () => (float[4] a) { a = Relu(x) }, else_branch = e () => (float[4] b) { b = Abs(x) }
        >
    }"""
    lowered = one_row(text, {"x": None, "y": None}, {"c": np.array(True)})
    verify_refusal(AddBatchAxis(), lowered, message="If", cure="dynamic axis", op="If", axis=BATCH)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_axis": None}, "names no batch axis"),
        ({"row_axes": (RowAxis("x", 1), RowAxis("y", 0), RowAxis("z", 0))}, "expected a 1 at axis 1 of 'x'"),
        ({"row_axes": (RowAxis("x", 0), RowAxis("y", 1), RowAxis("z", 0))}, "expected a 1 at axis 1 of 'y'"),
    ],
)
def test_records_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    lowered = one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS)
    with pytest.raises(Refused, match=message):
        AddBatchAxis().apply(dataclasses.replace(lowered, **change))  # type: ignore[arg-type]


def test_an_old_operator_set_is_refused() -> None:
    lowered = one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS)
    lowered.model.graph.opset_imports[""] = 11
    with pytest.raises(Refused, match="operator set 11"):
        AddBatchAxis().apply(lowered)


# --- streams ----------------------------------------------------------------------------------------------------------


def stream_of_one_row(cache: int | None) -> Lowered:
    """One attention layer over a cache: [frames, 1, 4] or [frames, 4], and a context [4, 2] without a batch."""
    shape, take = (
        ("cache,1,4", "old = Squeeze(past, middle)") if cache is not None else ("cache,4", "old = Identity(past)")
    )
    give = "next_past = Unsqueeze(joined, middle)" if cache is not None else "next_past = Identity(joined)"
    text = f"""(float[1,2,4] x, float[{shape}] past, float[4,2] context, float[4,4] w, float[4,4,3] k)
    => (float[1,2,4] y, float[{shape}] next_past, float[4,2] next_context)
    <int64[1] front = {{0}}, int64[1] middle = {{1}}, int64[1] newest = {{-2}}, int64[1] end = {{9223372036854775807}}>
    {{
        {take}
        new = Squeeze(x, front)
        joined = Concat<axis = 0>(old, new)
        {give}
        keys = MatMul(joined, w)
        turned = Transpose<perm = [1, 0]>(keys)
        scores = MatMul(new, turned)
        weights = Softmax<axis = -1>(scores)
        mixed = MatMul(weights, joined)
        channels = Transpose<perm = [1, 0]>(mixed)
        wide = Concat<axis = 1>(context, channels)
        next_context = Slice(wide, newest, end, middle)
        framed = Unsqueeze(wide, front)
        convolved = Conv(framed, k)
        y = Transpose<perm = [0, 2, 1]>(convolved)
    }}"""
    places = {"x": 0, "past": cache, "context": None, "y": 0, "next_past": cache, "next_context": None}
    lowered = one_row(text, places, WEIGHTS)
    return dataclasses.replace(
        lowered,
        states=(State("past", "next_past", 1, "cache"), State("context", "next_context", None)),
        caches=(CacheAxis("cache", 6, 2, "real_length", None),),
        data_outputs=("y",),
    )


@pytest.mark.parametrize("cache", [None, 1])
def test_a_stream_of_one_row_runs_in_a_batch(cache: int | None) -> None:
    """Every row of the padded, batched stream is the stream of one row, past the window."""
    origin = stream_of_one_row(cache)
    lowered = copy_of(origin)
    for pass_ in (AddBatchAxis(), Simplify(), PadAxes(), WindowStates()):
        lowered = pass_.apply(lowered).lowered
    assert lowered.rows_independent
    rng = np.random.default_rng(0)
    chunks = rng.standard_normal((6, 3, 1, 2, 4)).astype(np.float32)
    alone = [[runner.step({"x": chunk[row]})["y"] for chunk in chunks] for row in range(3) if (runner := fresh(origin))]
    together = runner_of(lowered, 3)
    for step, chunk in enumerate(chunks):
        got = together.step({"x": np.concatenate(chunk)})["y"]
        np.testing.assert_allclose(got, np.concatenate([alone[row][step] for row in range(3)]), atol=1e-5)


def fresh(lowered: Lowered) -> Stepper:
    """A stream of one row at its start."""
    return runner_of(lowered)


# --- random graphs ----------------------------------------------------------------------------------------------------

STEPS: list[tuple[str, Callable[[int], bool]]] = [
    ("{y} = Relu({x})", lambda rank: True),
    ("{y} = Softmax<axis = {axis}>({x})", lambda rank: True),
    ("{y} = CumSum({x}, number_{axis})", lambda rank: True),
    ("{y} = Transpose({x})", lambda rank: True),
    ("{s} = ReduceMean<keepdims = 1>({x}, axis_{axis})  {y} = Sub({x}, {s})", lambda rank: True),
    ("{y} = ReduceSum<keepdims = 0>({x}, axis_{axis})", lambda rank: rank > 1),
    ("{y} = Unsqueeze({x}, axis_{axis})", lambda rank: rank < 4),
    ("{y} = Concat<axis = {axis}>({x}, {x})", lambda rank: True),
    ("{y} = Gather<axis = {axis}>({x}, number_0)", lambda rank: rank > 1),
    ("{y} = Slice({x}, axis_0, axis_1, axis_{axis})", lambda rank: True),
    ("{y} = Reshape({x}, whole)", lambda rank: True),
    ("{t} = Transpose({x})  {n} = Shape({x})  {y} = Reshape({t}, {n})", lambda rank: True),
    ("{e} = Unsqueeze({x}, axis_0)  {f} = Unsqueeze({x}, axis_{axis})  {y} = Add({e}, {f})", lambda rank: rank < 3),
    ("{y} = Expand({x}, pair)", lambda rank: rank == 1),
]
RANK_CHANGES = {5: -1, 6: 1, 8: -1, 10: None, 12: 1, 13: 1}


def random_graph(seed: int) -> tuple[str, dict[str, int | None]]:
    """A chain of ops on one input; sizes 1, 2 and 3, so that ones beside the batch are common."""
    rng = np.random.default_rng(seed)
    dims = [int(n) for n in rng.choice([1, 2, 3], int(rng.integers(1, 4)))]
    ones = [axis for axis, size in enumerate(dims) if size == 1]
    place = int(rng.choice(ones)) if ones and rng.random() < 0.7 else None
    rank, value, lines = len(dims), "x", []
    for index in range(6):
        kinds = [kind for kind, (_, fits) in enumerate(STEPS) if fits(rank)]
        kind = int(rng.choice(kinds))
        names = {letter: f"{letter}{index}" for letter in "ysteNfn"}
        lines.append(STEPS[kind][0].format(x=value, axis=int(rng.integers(0, rank)), **names))
        change = RANK_CHANGES.get(kind, 0)
        rank = 1 if change is None else rank + change
        value = f"y{index}"
    constants = ", ".join(f"int64 number_{n} = {{{n}}}, int64[1] axis_{n} = {{{n}}}" for n in range(4))
    text = f"""(float[{",".join(map(str, dims))}] x) => (float[o] y)
    <{constants}, int64[1] whole = {{-1}}, int64[2] pair = {{2, 1}}>
    {{ {"  ".join(lines)}  y = Identity({value}) }}"""
    return text, {"x": place, "y": None}


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    text, places = random_graph(seed)
    check_rows(one_row(text, places), seed=seed)


def test_a_graph_is_no_longer_for_one_row_afterwards() -> None:
    outcome = AddBatchAxis().apply(one_row(HARD_ONES, {"x": 0, "y": 0, "z": 0}, WEIGHTS))
    (value,) = outcome.lowered.model.graph.inputs
    assert isinstance(value.shape, ir.Shape)
    assert list(map(str, value.shape)) == [BATCH, "t", "4"]


# --- graphs that have rows elsewhere ----------------------------------------------------------------------------------

ELSEWHERE = """(float[batch,5,4] x, float[2,batch,4] h) => (float[5,batch,4] y, float[2,batch,4] hn)
    <float[1,12,4] w = {W}, float[1,12,4] r = {W}, int64[1] zero = {0}, int64[1] one = {1}>
    { t = Transpose<perm = [1, 0, 2]>(x)  first = Slice(h, zero, one, zero)
      all, last = GRU<hidden_size = 4>(t, w, r, , , first)  y = Squeeze(all, one)
      hn = Concat<axis = 0>(last, first) }"""


def rows_elsewhere() -> Lowered:
    weights = ", ".join(f"{number / 50:.2f}" for number in range(48))
    model = parse(ELSEWHERE.replace("W", weights))
    places = (RowAxis("h", 1), RowAxis("y", 1), RowAxis("hn", 1))
    return Lowered("tiny", model, batch_axis=BATCH, states=(State("h", "hn", None),), row_axes=places)


def test_rows_elsewhere_come_to_the_front() -> None:
    lowered = rows_elsewhere()
    outcome = AddBatchAxis().apply(copy_of(lowered))
    dims = {name: str(value.shape) for name, value in graphs.inputs_named(outcome.lowered.model).items()}
    assert dims == {"x": "[batch,5,4]", "h": "[batch,2,4]"}
    assert [str(value.shape) for value in outcome.lowered.model.graph.outputs] == ["[batch,5,4]", "[batch,2,4]"]
    assert (outcome.matched, outcome.rewritten, outcome.lowered.row_axes) == (3, 3, ())
    rng = np.random.default_rng(0)
    feed = {name: rng.standard_normal((3, size, 4), dtype=np.float32) for name, size in (("x", 5), ("h", 2))}
    before = runner_of(lowered, 3).step({"x": feed["x"]})
    after = runner_of(outcome.lowered, 3).step({"x": feed["x"]})
    assert before["y"].shape == (3, 5, 4)
    for name, array in before.items():
        assert np.array_equal(array, after[name])
    assert replay_certificates(outcome.lowered, PadAxes().apply(copy_of(outcome.lowered))) > 0


def test_rows_in_front_stay() -> None:
    lowered = dataclasses.replace(rows_elsewhere(), row_axes=())
    assert AddBatchAxis().apply(lowered).rewritten == 0
