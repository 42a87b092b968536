"""A prefix that is joined to the frames: told by sizes, and computed of itself alone."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.proof.derivation.dependence import HERE
from compiler.proof.derivation.derive import derive
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.prefixes import before_frames, is_count
from compiler.proof.facts.lengths import infer_settled
from tests.kit.graphs import parse
from tests.kit.whole_sequences import LETTERS, LONGEST, MASKS, Drawing, whole_graph
from tests.property.derived_steps import tried

TIME, LETTERS_AXIS = graphs.symbol("time"), graphs.symbol("letters")
NAMED = {"letters": LETTERS}

SIZES: dict[str, tuple[Dim, Dim | None]] = {
    "frames": (TIME, 0),
    "text": (TIME + LETTERS_AXIS, LETTERS_AXIS),
    "a voice and two texts": (TIME + 2 * LETTERS_AXIS + 1, 2 * LETTERS_AXIS + 1),
    "frames left out": (TIME - 1, None),
    "fewer than letters": (TIME - LETTERS_AXIS, None),
    "frames twice": (2 * TIME, None),
    "half of them": (TIME // 2, None),
    "no frames": (LETTERS_AXIS, None),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_tells_what_lies_before_the_frames(name: str) -> None:
    size, before = SIZES[name]
    assert before_frames(size, TIME) == before


def test_counts_never_fall_below_zero() -> None:
    assert [is_count(each) for each in (0, 3, LETTERS_AXIS + 1, -1, LETTERS_AXIS - 1, -LETTERS_AXIS)] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


DRAWINGS = [
    *(Drawing(mask=each, width=4, text="fixed") for each in MASKS),
    *(Drawing(positions=each, layers=2, text="named") for each in ("rotary", "linear_bias", "sinusoid")),
    *(Drawing(writing=each, text="named", groups=1, flat=True, keys_turned=True) for each in ("add", "factor", "late")),
    Drawing(positions="looked_up", layers=2, text="fixed", einsum=True),
]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
def test_calls_behind_a_text_answer_as_the_whole_sequence(drawing: Drawing) -> None:
    assert tried(drawing).verdict == "accepted"


def test_the_text_is_not_cached() -> None:
    derived = derive(whole_graph(Drawing(text="named", layers=2)), "time", "past", 19, NAMED)
    assert [str(each.before) for each in derived.cached] == ["letters"] * 4
    inputs = {str(value.name): [str(dim) for dim in value.shape or ()] for value in derived.model.graph.inputs}
    assert inputs["text"] == ["batch", "letters"]
    caches = [dims for name, dims in inputs.items() if name.startswith("cache")]
    assert all("past" in dims and "letters" not in dims for dims in caches)


JOINED = """(float[batch,letters,4] text, float[batch,time,4] audio) => (float[batch,time,4] y)
    <int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] back = {-1},
     int64[1] all = {9223372036854775807}, float[1,2,4] learned = {1, 2, 3, 4, 5, 6, 7, 8}>
    { size = Shape<start = 1, end = 2>(text)  less = Sub(size, one)  more = Add(size, one)
      count = Shape<start = 1, end = 2>(audio)
      x = Concat<axis = 1>(text, audio)  TAIL }"""

PARTS = {
    "z = Slice(x, size, all, one)  y = Tanh(z)": ("z", TIME, 0),
    "last = Neg(count)  z = Slice(x, last, all, one)  y = Tanh(z)": ("z", TIME, 0),
    "z = Slice(x, none, all, one)  y = Slice(z, size, all, one)": ("z", TIME + LETTERS_AXIS, LETTERS_AXIS),
    "z = Slice(x, size, all, one, one)  y = Tanh(z)": ("z", TIME, 0),
    "z = Concat<axis = 1>(learned, audio)  y = Slice(z, two, all, one)": ("z", TIME + 2, 2),
    "w = Concat<axis = 1>(learned, audio)  z = Slice(w, one, all, one)  y = Slice(z, one, all, one)": (
        "z",
        TIME + 1,
        1,
    ),
}
"""What is kept of a text and frames: the value, its size, and what lies in front of the frames."""

CUT = {
    "z = Slice(x, less, all, one)  y = Slice(z, one, all, one)": "Slice leaves out frames",  # -1 without letters
    "fewer = Sub(one, count)  z = Slice(x, fewer, all, one)  y = Tanh(z)": "Slice leaves out frames",
    "z = Slice(x, more, all, one)  y = Tanh(z)": "Slice leaves out frames",
    "z = Slice(x, none, back, one)  y = Slice(z, size, all, one)": "Slice leaves out frames",
    "z = Slice(x, none, count, one)  y = Tanh(z)": "Slice leaves out frames",
    "y = Slice(x, size, all, one, two)": "Slice leaves out frames",
    "z = Concat<axis = 1>(x, text)  y = Slice(z, size, all, one)": "joins frames to what lies behind them",
    "z = Concat<axis = 1>(audio, x)  y = Slice(z, size, all, one)": "joins frames to what lies behind them",
}


def joined(tail: str) -> ir.Model:
    """A graph of a text, frames, and what is done to both in a row."""
    model = parse(JOINED.replace("TAIL", tail))
    infer_settled(model)
    return model


@pytest.mark.parametrize("tail", PARTS)
def test_a_slice_keeps_all_frames_with_the_end_of_what_lies_before_them(tail: str) -> None:
    judging = Judging(joined(tail), "time", LONGEST, NAMED)
    name, size, before = PARTS[tail]
    value = next(value for node in judging.model.graph for value in node.outputs if value.name == name)
    (along,) = judging.of(value).along.values()
    assert not judging.offences
    assert (along.factors, along.before, along.reach) == ((size,), before, HERE)


@pytest.mark.parametrize("tail", CUT)
def test_a_slice_that_leaves_frames_out_is_no_step(tail: str) -> None:
    with pytest.raises(Refused, match=CUT[tail]):
        derive(joined(tail), "time", "past", LONGEST, NAMED)


def test_a_part_of_the_prefix_has_no_frames() -> None:
    judging = Judging(
        joined("z = Slice(x, none, size, one)  w = Slice(x, size, all, one)  y = Tanh(w)"), "time", LONGEST
    )
    (z,) = (value for node in judging.model.graph for value in node.outputs if value.name == "z")
    assert not judging.offences
    assert not judging.of(z).along


REFUSED = {
    "text_hears": (
        Drawing(spoiler="text_hears", text="named"),
        "Softmax",
        "lets what lies in front of the frames read",
    ),
    "text_behind": (Drawing(spoiler="text_behind", text="named"), "Concat", "joins frames to what lies behind them"),
    "running": (Drawing(positions="summed", text="named"), "CumSum", "a running sum along time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_prefix_that_is_none_is_refused_with_its_node(name: str) -> None:
    drawing, op, said = REFUSED[name]
    with pytest.raises(Refused, match=said) as refused:
        derive(whole_graph(drawing), "time", "past", 19, NAMED)
    assert refused.value.place.op == op


def test_a_text_whose_longest_is_not_known_is_refused() -> None:
    with pytest.raises(Refused, match="reads all frames of the sequence"):
        derive(whole_graph(Drawing(text="named")), "time", "past", 19)
