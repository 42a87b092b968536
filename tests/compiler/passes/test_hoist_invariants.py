"""hoist_invariants: the first call of a row computes what the later ones are handed."""

import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from compiler.checker.check import check
from compiler.errors import RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runners_of
from compiler.graph.stages import Feed, Lowered, Outcome
from compiler.passes import make_pass
from compiler.passes.append_states import AppendStates
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.hoist_invariants import HoistInvariants
from compiler.proof.facts.lengths import infer_settled
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.kit.derived import steps_of
from tests.kit.graphs import copy_of, ops_of
from tests.kit.whole_sequences import LABELS, LETTERS, Drawing, whole_graph
from tests.kit.whole_sequences import session as opened

ROWS, WINDOW, HEARD = 3, 110, 12

SEQ2SEQ = """
<ir_version: 10, opset_import: ["": 20]>
seq2seq (float[batch, letters, 4] encoded, int64[batch, time] tokens) => (float[batch, time, 13] scores)
{
    x = Gather(table, tokens)
    count = Shape<start = 1, end = 2>(tokens)
    length = Squeeze(count)
    places = Range(zero, length, one)
    rows = Unsqueeze(places, last)
    seen = LessOrEqual(places, rows)
    own_keys = MatMul(x, w0)
    own_turned = Transpose<perm = [0, 2, 1]>(own_keys)
    own_scores = MatMul(x, own_turned)
    own_masked = Where(seen, own_scores, low)
    own_weights = Softmax(own_masked)
    own_heard = MatMul(own_weights, x)
    y = Add(x, own_heard)
    normal = LayerNormalization(encoded, scale, shift)
    keys = MatMul(normal, w1)
    turned = Transpose<perm = [0, 2, 1]>(keys)
    cross_scores = MatMul(y, turned)
    weights = Softmax(cross_scores)
    values = MatMul(normal, w2)
    heard = MatMul(weights, values)
    z = Add(y, heard)
    scores = MatMul(z, out)
}"""
"""A decoder that attends to its own frames and to what an encoder has heard; one head."""


BESIDE = SEQ2SEQ.replace(
    "float[batch, letters, 4] encoded", "float[batch, letters] beside, float[batch, letters, 4] encoded"
)
BESIDE = BESIDE.replace(
    "keys = MatMul(normal, w1)",
    """counted = Shape<start = 1, end = 2>(beside)
    letters = Squeeze(counted)
    of_letters = Range(zero, letters, one)
    numbers = Cast<to = 1>(of_letters)
    by_letter = Unsqueeze(numbers, last)
    placed = Add(normal, by_letter)
    keys = MatMul(placed, w1)""",
)
BESIDE = BESIDE.replace(
    "z = Add(y, heard)",
    """average = ReduceMean(beside, last)
    in_rows = Unsqueeze(average, last)
    together = Add(y, heard)
    z = Add(together, in_rows)""",
)
"""The same with another input along the letters in front, which is fed anew: letters are counted by it."""

TOLD = SEQ2SEQ.replace("scores)", "scores, float[batch, 4, letters] turned)", 1)
"""The same with keys among its results, in which they keep their name."""


@functools.cache
def seq2seq(text: str = SEQ2SEQ) -> ir.Model:
    random = np.random.default_rng(0)
    weights = {
        "table": random.standard_normal((LABELS, 4)).astype("f"),
        **{f"w{number}": random.standard_normal((4, 4)).astype("f") for number in range(3)},
        "out": random.standard_normal((4, LABELS)).astype("f"),
        "scale": np.ones(4, "f"),
        "shift": np.full(4, 0.5, "f"),
        "low": np.float32(-np.inf),
        "zero": np.int64(0),
        "one": np.int64(1),
        "last": np.array([1]),
    }
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items())
    model = ir.serde.deserialize_model(proto)
    infer_settled(model)
    return model


GRAPHS: Mapping[str, Callable[[], ir.Model]] = {
    "seq2seq": seq2seq,
    "beside": lambda: seq2seq(BESIDE),
    "told": lambda: seq2seq(TOLD),
    "text": lambda: whole_graph(Drawing(positions="rotary", layers=2, text="named")),
}


@functools.cache
def _lowered(kind: str, *left_out: str) -> Lowered:
    model = GRAPHS[kind]()
    axes, window = ({"letters": LETTERS}, 19) if kind == "text" else ({"letters": HEARD}, WINDOW)
    data = ("scores", "turned") if kind == "told" else ("scores",)
    lowered = steps_of(Lowered("net", model, batch_axis="batch", data_outputs=data), window, most=axes)
    for name in (each for each in STANDARD_PASSES if each not in left_out):
        lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def lowered(kind: str = "seq2seq", *left_out: str) -> Lowered:
    """Steps of a decoder with cross-attention, or of one with a text in front of its frames; a copy."""
    return copy_of(_lowered(kind, *left_out))


def kept(kind: str = "seq2seq") -> Outcome:
    given, slots = (("text",), LETTERS) if kind == "text" else (("encoded",), HEARD)
    return HoistInvariants(given, slots).apply(lowered(kind))


def fed(kind: str, random: np.random.Generator, lengths: np.ndarray) -> Feed:
    """What every call is fed alike: rows of different lengths."""
    most = int(lengths.max())
    if kind == "text":
        return {"text": random.integers(0, LABELS, (ROWS, most)), "letters_length": lengths}
    beside = {"beside": random.standard_normal((ROWS, most)).astype("f")} if kind == "beside" else {}
    return {**beside, "encoded": random.standard_normal((ROWS, most, 4)).astype("f"), "letters_length": lengths}


def session(kind: str, feed: Feed, row: int, tokens: np.ndarray) -> np.ndarray:
    """What the stateless graph says of one row."""
    length = int(feed["letters_length"][row])
    rest = {name: array[row : row + 1, :length] for name, array in feed.items() if name != "letters_length"}
    (found,) = opened(GRAPHS[kind]()).run(["scores"], {**rest, "tokens": tokens[row : row + 1]})
    return np.asarray(found[0])


def require_said(after: Lowered, kind: str, feed: Feed, tokens: np.ndarray) -> None:
    """Calls of one prompt and single frames say what the stateless graph says of each row."""
    runner, at, answers = runners_of(after, ROWS)(), 0, []
    for count in (8, *[1] * (tokens.shape[1] - 8)):
        call = {**feed, "tokens": tokens[:, at : at + count], "time_length": np.full(ROWS, count)}
        answers.append(runner.step(call)["scores"])
        at += count
    got = np.concatenate(answers, axis=1)
    for row in range(ROWS):
        np.testing.assert_allclose(got[row], session(kind, feed, row, tokens), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("kind", "frames"), [("seq2seq", 108), ("beside", 18), ("text", 18)])
def test_calls_say_what_the_stateless_graph_says(kind: str, frames: int) -> None:
    after = kept(kind).lowered
    random = np.random.default_rng(3)
    most = LETTERS if kind == "text" else HEARD
    feed = fed(kind, random, np.array([most, 2, most - 1]))
    tokens = random.integers(0, LABELS, (ROWS, frames))
    require_said(after, kind, feed, tokens)


@pytest.mark.parametrize("kind", ["seq2seq", "beside"])
def test_a_later_call_in_a_larger_bucket_finds_what_padding_was_proved_with(kind: str) -> None:
    """Two streams begin with few letters, and go on beside one with all: what is kept of them has all slots."""
    random, few, many = np.random.default_rng(4), np.array([5, 2, 4]), np.array([5, 2, HEARD])
    whole = fed(kind, random, many)
    tokens = random.integers(0, LABELS, (ROWS, 4))
    runner, answers = runners_of(kept(kind).lowered, ROWS)(), []
    for call, lengths in enumerate((few, few, many, many)):
        if call == 2:
            states = {name: array.copy() for name, array in runner.states.items()}
            states["begun"][2] = runner.lengths["past"][2] = 0
            runner.reset(states, runner.lengths)
        feed = {name: array[:, : lengths.max()] for name, array in whole.items() if name != "letters_length"}
        feed |= {"letters_length": lengths, "time_length": np.ones(ROWS, np.int64), "tokens": tokens[:, [call]]}
        answers.append(runner.step(feed)["scores"])
    got = np.concatenate(answers, axis=1)
    for row in range(2):
        np.testing.assert_allclose(got[row], session(kind, {**whole, "letters_length": many}, row, tokens), atol=1e-4)
    begun_early = {name: array[:2] for name, array in runner.states.items() if name.startswith("once")}
    assert len(begun_early) == 2
    kept_at_once = runners_of(kept(kind).lowered, ROWS)()
    kept_at_once.step({**whole, "time_length": np.ones(ROWS, np.int64), "tokens": tokens[:, [0]]})
    for name, array in begun_early.items():
        np.testing.assert_array_equal(array, kept_at_once.states[name][:2])


def test_a_result_that_is_kept_is_told_in_every_call() -> None:
    after, random = kept("told").lowered, np.random.default_rng(5)
    feed = {**fed("told", random, np.array([HEARD, 2, 3])), "time_length": np.ones(ROWS, np.int64)}
    feed["tokens"] = random.integers(0, LABELS, (ROWS, 1))
    runner = runners_of(after, ROWS)()
    for call in ("first", "later"):
        turned = runner.step(feed)["turned"]
        for row, length in enumerate(feed["letters_length"]):
            alone = {"encoded": feed["encoded"][[row], :length], "tokens": feed["tokens"][[row]]}
            (expected,) = opened(GRAPHS["told"]()).run(["turned"], alone)
            np.testing.assert_allclose(turned[row, :, :length], expected[0], atol=1e-5, err_msg=call)


def test_caches_are_appended_to_beside_what_is_padded_otherwise() -> None:
    """What was heard is as long as it is, and frames of a call are counted by the axis of the call."""
    after = AppendStates().apply(lowered("seq2seq", "pack_states")).lowered
    random, frames = np.random.default_rng(3), 20
    feed = fed("seq2seq", random, np.array([HEARD, 2, HEARD - 1]))
    tokens = random.integers(0, LABELS, (ROWS, frames))
    require_said(after, "seq2seq", feed, tokens)


def test_caches_are_appended_to_behind_a_text() -> None:
    after = AppendStates().apply(lowered("text", "pack_states")).lowered
    random = np.random.default_rng(3)
    tokens = random.integers(0, LABELS, (ROWS, 18))
    require_said(after, "text", fed("text", random, np.array([LETTERS, 1, LETTERS - 1])), tokens)
    cleaned = [
        node
        for node in after.model.graph
        if node.op_type == "Where" and node.inputs[1] in set(after.model.graph.inputs)
    ]
    assert not cleaned  # of caches, whose free slots hold zeros


@pytest.mark.parametrize(("kind", "given", "slots"), [("seq2seq", "encoded", HEARD), ("text", "text", LETTERS)])
def test_values_are_kept_beside_caches_to_which_calls_append(kind: str, given: str, slots: int) -> None:
    """A call gives new frames of the caches, and hands on whole what was computed once."""
    appended = AppendStates().apply(lowered(kind, "pack_states")).lowered
    before = ir.serde.serialize_model(copy_of(appended).model)
    outcome = HoistInvariants((given,), slots).apply(appended)
    after, (record,) = outcome.lowered, outcome.records
    assert check(before, ir.serde.serialize_model(after.model), record) == outcome.rewritten == 2
    random = np.random.default_rng(3)
    tokens = random.integers(0, LABELS, (ROWS, 18))
    require_said(after, kind, fed(kind, random, np.array([slots, 2, slots - 1])), tokens)
    shapes = {str(value.name): list(map(str, value.shape or ())) for value in after.model.graph.outputs}
    assert all("time" in shapes[state.output] for state in after.states if state.cache)
    assert [state.input for state in after.states if not state.cache] == ["once", "once_2", "begun"]


def test_later_calls_compute_none_of_it() -> None:
    before, outcome = lowered(), kept()
    assert outcome.rewritten == 2  # keys and values
    outside = [node.op_type for node in outcome.lowered.model.graph]
    moved = ops_of(before.model).count("MatMul") - outside.count("MatMul")
    (branch,) = (node for node in outcome.lowered.model.graph if node.op_type == "If")
    first, later = graphs.bodies_of(branch)
    assert moved == [node.op_type for node in first].count("MatMul") == 2
    assert {node.op_type for node in later} == {"Identity"}
    shapes = {str(value.name): list(map(str, value.shape or ())) for value in outcome.lowered.model.graph.inputs}
    assert shapes["once"] == ["batch", "4", "12"] or shapes["once"] == ["batch", "12", "4"]


def test_what_is_carried_is_what_is_read() -> None:
    after = kept().lowered
    feed = {**fed("seq2seq", np.random.default_rng(0), np.array([5, 5, 5])), "time_length": np.ones(ROWS, np.int64)}
    feed["tokens"] = np.ones((ROWS, 1), np.int64)
    runner = runners_of(after, ROWS)()
    runner.step(feed)
    states, lengths = dict(runner.states), dict(runner.lengths)
    expected = runner.step(feed)["scores"]
    runner.reset({**states, "once": states["once"] * 2}, lengths)
    assert not np.allclose(runner.step(feed)["scores"], expected)


def test_rows_of_other_ages_and_poison_change_no_bit() -> None:
    after = kept().lowered
    random, poison = np.random.default_rng(1), np.float32(np.nan)
    feed = {**fed("seq2seq", random, np.array([5, 3, 4])), "time_length": np.ones(ROWS, np.int64)}
    feed["tokens"] = np.array([[1], [2], [3]])
    poisoned = {**feed, "encoded": feed["encoded"].copy()}
    for row, length in enumerate(feed["letters_length"]):
        poisoned["encoded"][row, length:] = poison
    one, other = runners_of(after, ROWS)(), runners_of(after, ROWS)()
    for call in range(4):
        if call == 2:  # the last row is let go, and another stream begins there
            for runner in (one, other):
                states = {name: array.copy() for name, array in runner.states.items()}
                lengths = {axis: array.copy() for axis, array in runner.lengths.items()}
                for name, array in states.items():
                    array[2] = 0 if name == "begun" or runner is one else poison
                lengths["past"][2] = 0
                runner.reset(states, lengths)
            poisoned["encoded"][:2] = poison  # what goes on has been computed
        expected, got = one.step(feed), other.step(poisoned)
        np.testing.assert_array_equal(got["scores"], expected["scores"])
        for state in ("once", "once_2", "begun"):
            np.testing.assert_array_equal(other.states[state], one.states[state])


def test_a_free_row_of_poison_begins_nothing_and_stops_nothing() -> None:
    after = kept().lowered
    feed = {**fed("seq2seq", np.random.default_rng(2), np.array([4, 4, 4])), "time_length": np.ones(ROWS, np.int64)}
    feed["tokens"] = np.array([[1], [2], [3]])
    runner = runners_of(after, ROWS)()
    expected = runner.step(feed)["scores"]
    runner.reset()
    for array in runner.states.values():
        array[2] = np.nan
    np.testing.assert_array_equal(runner.step(feed)["scores"][:2], expected[:2])


def test_heads_are_carried_before_they_are_spread() -> None:
    model = whole_graph(Drawing(positions="rotary", layers=2, text="named", groups=1))
    after = steps_of(Lowered("net", model, batch_axis="batch", data_outputs=("scores",)), 19, most={"letters": LETTERS})
    for name in STANDARD_PASSES:
        after = make_pass(name, {}).apply(after).lowered
    after = HoistInvariants(("text",), LETTERS).apply(after).lowered
    sizes = [value.shape for value in after.model.graph.inputs if str(value.name).startswith("once")]
    assert len(sizes) == 2  # the first layer's are looked up
    assert all(shape is not None and np.prod([dim for dim in shape if isinstance(dim, int)]) == LETTERS * 4
               for shape in sizes)  # fmt: skip


def test_more_slots_than_letters_and_frozen_ones() -> None:
    after = make_pass("simplify", {}).apply(kept().lowered).lowered
    frozen = FreezeAxes((("batch", 1), ("letters", HEARD), ("time", 1))).apply(copy_of(after)).lowered
    ops = [node.op_type for node in frozen.model.graph]
    at = ops.index("If")
    assert "Slice" not in [node.op_type for value in list(frozen.model.graph)[at].outputs for node in
                           graphs.consumers_of(value)]  # fmt: skip
    (letters,) = (each for each in after.padded_axes if each.axis == "letters")
    assert letters.maximum == HEARD


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"inputs": ("nothing",)}, "the name of an input that callers feed", id="no input"),
        pytest.param({"inputs": ("packed_0",)}, "the name of an input that callers feed", id="a state"),
        pytest.param({"inputs": ("encoded",)}, "expected slots for the axis letters", id="no slots"),
        pytest.param({"inputs": ("tokens",), "slots": 8}, "computed of tokens alone", id="nothing follows"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: dict[str, object], said: str) -> None:
    given = lowered()
    name = given.states[0].input
    inputs = tuple(name if each == "packed_0" else each for each in options["inputs"])  # type: ignore[attr-defined]
    with pytest.raises(Refused, match=said):
        HoistInvariants(inputs, int(options.get("slots", 0))).apply(given)  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{}, {"inputs": "text"}, {"inputs": (1,)}, {"inputs": ("a",), "slots": -1},
                                     {"inputs": ("a",), "slots": True}])  # fmt: skip
def test_options_of_another_kind_are_answered(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="expected a"):
        HoistInvariants(**options)  # type: ignore[arg-type]
