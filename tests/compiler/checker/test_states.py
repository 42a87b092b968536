"""States are counted: a certificate that names other states, other slots or other new frames does not hold."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from compiler.checker.check import check
from compiler.checker.graph import DoesNotRun, Part, Rejected
from compiler.errors import Refused
from compiler.graph.stages import Lowered, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from compiler.proof.padding import outputs
from runtime_lite.format.cache_axis import CacheAxis
from tests.compiler.checker.test_check import Proof, proof_of
from tests.kit.graphs import copy_of, parse, streaming

TEXT = """(float[batch,2,4] x, float[batch,cache,4] past) => (float[batch,2,4] y, float[batch,kept,4] next_past)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[1] most = {100}>
    { joined = Concat<axis = 1>(past, x)  length = Shape<start = 1, end = 2>(joined)  behind = Sub(length, most)
       start = Max(behind, zero)  next_past = Slice(joined, start, end, one)
       high = ReduceMax<keepdims = 1>(joined, one)  y = Add(x, high) }"""


CHUNK = (PaddedAxis("chunk", "chunk_length"),)


def cut_by_its_author() -> Proof:
    """A stream of 40 slots whose author keeps the newest 100 frames, from a computed place on."""
    cache = CacheAxis("cache", 40, 2, "real_length", None)
    return proof_of(Lowered("net", parse(TEXT), None, (State("past", "next_past", 1, "cache"),), (cache,), "batch"))


REPLACED_WHOLE = """(float[1,6,4] x, float[cache,4,1] past) => (float[1,6,4] y, float[4,4,1] next_past)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[1] most = {4},
     int64[1] last = {-2}>
    { rows = Transpose<perm = [2, 0, 1]>(past)  joined = Concat<axis = 1>(rows, x)
       kept = Slice(joined, zero, last, one)  length = Shape<start = 1, end = 2>(kept)  behind = Sub(length, most)
       start = Max(behind, zero)  newest = Slice(kept, start, end, one)
       next_past = Transpose<perm = [1, 2, 0]>(newest)
       high = ReduceMax<keepdims = 1>(joined, one)  y = Add(x, high) }"""


def replaced_whole(slots: int = 4) -> Proof:
    """A stream of 4 slots, of which every call writes 4 anew; no record speaks of what turns them last."""
    cache = CacheAxis("cache", slots, 4, "real_length", None)
    return proof_of(Lowered("net", parse(REPLACED_WHOLE), None, (State("past", "next_past", 0, "cache"),), (cache,)))


def two_caches() -> Proof:
    return proof_of(copy_of(streaming(two_caches=True, window=60, lookup=None)))


def state(certificate: dict[str, Any], **changed: object) -> None:
    certificate["states"][0].update(changed)


def replaced(certificate: dict[str, Any], **changed: object) -> None:
    certificate["replaced"][0].update(changed)


def cache_replaced(certificate: dict[str, Any]) -> None:
    gone = certificate["states"].pop()
    certificate["replaced"].append({end: gone[end] for end in ("input", "output")})


def same_output(certificate: dict[str, Any]) -> None:
    certificate["states"][1]["output"] = certificate["states"][0]["output"]


def everywhere(certificate: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """What records say of a value."""
    for record in certificate["records"]:
        for names, facts in (("inputs", "in"), ("outputs", "out")):
            yield from (f for f, each in zip(record[facts], record[names], strict=True) if each == name)


def no_zeros(certificate: dict[str, Any]) -> None:
    for fact in everywhere(certificate, "next_past_values"):
        fact["contents"] = [each for each in fact["contents"] if not each[0]]


def other_side(certificate: dict[str, Any]) -> None:
    for fact in everywhere(certificate, "next_past_values"):
        fact["axes"]["1"] = [{"frames": [["cache + 2", "left"]]}]


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no states": (lambda c: c.update(states=[]), "input 'past' lies along a cache, and no state"),
    "one state fewer": (lambda c: c["states"].pop(), "input 'past_values' lies along a cache, and no state"),
    "one output for two": (same_output, "two states have one output"),
    "one input for two": (lambda c: c["states"].append(dict(c["states"][0])), "two states have one input"),
    "more frames in a call": (
        lambda c: [each.update(adds="3") for each in c["states"]],
        "2 frames are kept at lengths .*, 3 are counted",
    ),
    "fewer": (lambda c: [each.update(adds="2 - 1") for each in c["states"]], "2 frames are kept .*, 1 are counted"),
    "more in one cache": (lambda c: state(c, adds="3"), "has slots and new frames"),
    "frames that fall with the age": (
        lambda c: [each.update(adds="max(2 - cache // 55, 1)") for each in c["states"]],
        "57 frames are kept .*, 56 are counted",
    ),
    "more slots": (lambda c: [each.update(slots=61) for each in c["states"]], "has 60 slots, not 61"),
    "another axis": (lambda c: state(c, axis=2), "'cache' is not its axis 2"),
    "an axis that is not there": (lambda c: state(c, axis=3), "'cache' is not its axis 3"),
    "another input": (lambda c: state(c, input="x"), "input 'past' lies along a cache, and no state"),
    "an input that is fed by another state": (lambda c: state(c, input="context"), "two states have one input"),
    "another output": (lambda c: state(c, output="y"), "state 'y'"),
    "no output": (lambda c: c["states"].append({**c["states"][0], "input": "x", "output": "scores"}), "no output"),
    "no cache": (lambda c: state(c, cache="batch"), "'batch' is no cache"),
    "anything in front": (no_zeros, "what lies in front of its frames is not said to be zero"),
    "no output for a state of one size": (lambda c: replaced(c, output="scores"), "it or 'scores' is not there"),
    "no input for a state of one size": (lambda c: replaced(c, input="scores"), "it or 'next_context' is not there"),
    "an output of another size": (
        lambda c: replaced(c, output="y"),
        "of shape .1, 2, 4. at lengths .*, .1, 4, 2. is fed",
    ),
    "a cache as a state of one size": (
        cache_replaced,
        "input 'past_values' lies along a cache, and no state",
    ),
    "the newest frames in front": (other_side, "its newest frames are not said to lie in its last slots"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_state_is_rejected(name: str) -> None:
    before, after, certificate = two_caches()
    check(before, after, certificate)
    edit, words = FORGED[name]
    edit(certificate)
    with pytest.raises(Rejected, match=words):
        check(before, after, certificate)


AS_LONG_AS_THE_CHUNK = {
    "lies along 'chunk'": ("batch,chunk,4", "next_past = Slice(past, zero, six, one)"),
    "an axis that is padded": ("batch,6,4", "next_past = Mul(x, x)"),
}


@pytest.mark.parametrize("words", AS_LONG_AS_THE_CHUNK)
def test_a_state_of_one_size_does_not_follow_the_chunk(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, body = AS_LONG_AS_THE_CHUNK[words]
    text = f"""(float[batch,chunk,4] x, float[{shape}] past) => (float[batch,chunk,4] y, float[a,b,c] next_past)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] six = {{6}}>
        {{ high = ReduceMax<keepdims = 1>(past, one)  y = Add(x, high)  {body} }}"""
    lowered = Lowered("net", parse(text), None, (State("past", "next_past", None),), (), "batch", padded_axes=CHUNK)
    monkeypatch.setattr(outputs, "_check_fixed", lambda *_: None)
    before, after, certificate = proof_of(lowered)
    with pytest.raises(Rejected, match=words):
        check(before, after, certificate)


@pytest.mark.parametrize("is_apart", [False, True], ids=["fed back", "computed"])
def test_a_cache_that_comes_back_as_it_was_is_not_counted_on(
    *, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all slots full it holds as many frames as are counted, and with fewer it does not."""
    body = "m = Mul(past, past)  next_past = Sub(m, past)" if is_apart else "next_past = Identity(past)"
    text = f"""(float[batch,chunk,4] x, float[batch,cache,4] past)
        => (float[batch,chunk,4] y, float[batch,k,4] next_past) <int64[1] one = {{1}}>
        {{ j = Concat<axis = 1>(past, x)  h = ReduceMax<keepdims = 1>(j, one)  y = Add(x, h)  {body} }}"""
    cache = CacheAxis("cache", 6, 1, "real_length", None, added="chunk")
    states = (State("past", "next_past", 1, "cache"),)
    lowered = Lowered("net", parse(text), None, states, (cache,), "batch", padded_axes=CHUNK)
    with pytest.raises(Refused, match=r"the state holds .* not the cached frames and then chunk new ones"):
        PadAxes().apply(copy_of(lowered))
    monkeypatch.setattr(outputs, "keeps_all_counted", lambda *_: True)
    before, after, certificate = proof_of(lowered)
    with pytest.raises(Rejected, match=r"state 'next_past': 0 frames are kept at lengths .*, 1 are counted"):
        check(before, after, certificate)


def test_a_table_may_end_and_nothing_else_may_stop_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, certificate = two_caches()
    run = Part.run

    def stopping(with_: Exception, lengths: int) -> Callable[..., Any]:
        def stop(self: Part, feeds: Any) -> Any:
            if {"next_past", "next_context"} <= set(self.wanted) and feeds["past"].shape[1] >= lengths:
                raise with_
            return run(self, feeds)

        return stop

    monkeypatch.setattr(Part, "run", stopping(DoesNotRun("a table ends"), 30))
    check(before, after, certificate)
    monkeypatch.setattr(Part, "run", stopping(DoesNotRun("a table ends"), 0))
    with pytest.raises(Rejected, match="runs at none of the lengths"):
        check(before, after, certificate)
    monkeypatch.setattr(Part, "run", stopping(KeyError("past"), 30))
    with pytest.raises(KeyError):
        check(before, after, certificate)


def test_the_original_is_counted_at_lengths_that_no_step_is_replayed_with() -> None:
    """It keeps 30 frames, and the certificate is of one that keeps 100: with few frames they are the same."""
    before, after, certificate = cut_by_its_author()
    check(before, after, certificate)
    (most,) = [each for each in before.graph.initializer if each.name == "most"]
    most.CopyFrom(numpy_helper.from_array(np.array([30]), "most"))
    for fact in everywhere(certificate, "most"):
        fact["contents"] = [[[], 30, 30, False]]
    with pytest.raises(Rejected, match=r"'next_past' of the original at work: 30 frames are kept .*, 40 are counted"):
        check(before, after, certificate)


def test_a_cache_without_new_frames_and_one_of_many_slots_are_counted() -> None:
    for slots in (1, 2, 500):
        before, after, certificate = proof_of(copy_of(streaming(window=slots, lookup=None)))
        assert check(before, after, certificate) == len(certificate["records"])


def test_a_cache_that_every_call_replaces_is_counted_where_no_record_speaks_of_it() -> None:
    before, after, certificate = replaced_whole()
    assert all("next_past" not in record["outputs"] for record in certificate["records"])
    check(before, after, certificate)
    certificate["states"][0]["adds"] = "3"
    with pytest.raises(Rejected, match="next_past"):
        check(before, after, certificate)
