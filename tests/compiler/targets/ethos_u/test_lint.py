"""What no Ethos-U can have is refused by name, before the vendor is asked."""

import dataclasses

import pytest

from compiler.errors import Refused
from compiler.graph.stages import Lowered, State
from compiler.targets.ethos_u.lint import lengths_of, require_taken
from runtime_lite.states import KINDS
from tests.compiler.targets.ethos_u.graphs import static_stream
from tests.kit.graphs import parse


def test_a_stream_is_taken() -> None:
    lowered = static_stream()
    require_taken(lowered)
    assert lengths_of(lowered) == ["real_length", "mask"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(float[1,4] x) => (float[1,4] y) { y = Atan(x) }", "op Atan, .*a counterpart in torch, .* got Atan"),
        ("(double[1,4] x) => (double[1,4] y) { y = Relu(x) }", "expected float32 in what the NPU computes, got DOUBLE"),
        (
            """(float[1,4] x, float[4,4] w) => (float[1,4] y) {
            best = ArgMax<axis = 1>(x)  n = Cast<to = 1>(best)  s = Add(x, n)  y = MatMul(s, w) }""",
            "op ArgMax, .*expected float32 .*, got INT64",
        ),
    ],
)
def test_what_the_device_cannot_compute_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        require_taken(Lowered("net", parse(text, {})))


def test_a_state_that_the_device_cannot_give_is_refused_with_its_line() -> None:
    text = (
        "(float[1,4] x, float[1,4] past) => (float[1,4] y, float[1,4] next) { y = Add(x, past)  next = LogSoftmax(y) }"
    )
    with pytest.raises(Refused, match="expected states that the NPU computes in float32, got next, which") as caught:
        require_taken(Lowered("net", parse(text, {}), states=(State("past", "next", None),)))
    assert caught.value.place.source == "tiny.py:2 in forward: LogSoftmax"


def test_states_of_which_a_call_gives_new_frames_alone_are_refused() -> None:
    lowered = static_stream()
    kind = next(each for each in KINDS if not each.is_given_whole)
    (cache,) = lowered.caches
    appended = dataclasses.replace(lowered, caches=(cache.as_kind(kind),))
    with pytest.raises(Refused, match=r"expected states that a call gives whole, got .* in past"):
        require_taken(appended)
