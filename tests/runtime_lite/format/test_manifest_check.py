"""Records that contradict each other are refused; each contradiction is an attack in tests/attacks."""

import dataclasses
from typing import Any

import pytest

from runtime_lite import BundleRefused
from runtime_lite.format.initial_value import Initial
from runtime_lite.format.manifest import Axis, Engine, Graph, State, Tensor
from runtime_lite.format.manifest_check import MAX_FORMULAS, check_manifest
from runtime_lite.states.kind import StateKind
from tests.runtime_lite.bundles import manifest_of, plain_graph, ragged_graph, streaming_graph
from tests.runtime_lite.engines import BUILT_WITH, PLAN, with_engine
from tests.runtime_lite.in_place_graph import WRITTEN_IN_PLACE, in_place_graph


def check(graph: Graph) -> None:
    paths = {path for item in graph.artifacts for path in (item.file, *item.files)}
    paths |= {graph.golden, graph.certificate, "receipts.json", "recipe.yaml", PLAN}
    paths |= set() if graph.engine is None else set(graph.engine.files.values())
    check_manifest(manifest_of({"g": graph}, dict.fromkeys(paths, b"")))


@pytest.mark.parametrize("graph", [streaming_graph(), plain_graph(), ragged_graph()])
def test_sound_records_pass(graph: Graph) -> None:
    check(graph)


@pytest.mark.parametrize("kind", WRITTEN_IN_PLACE, ids=lambda kind: kind.update)
def test_states_of_which_calls_give_new_frames_may_lie_beside_others(kind: StateKind) -> None:
    check(in_place_graph(kind=kind))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"added": "(time - 1) // 2 + 1"}, r"output 'new_keys', got \[\['batch', '\(time - 1\) // 2 \+ 1', 2\]"),
        ({"added": None}, r"states.keys: expected the shape and dtype of output 'new_keys', got \[\['batch', 1, 2\]"),
    ],
)
@pytest.mark.parametrize("kind", WRITTEN_IN_PLACE)
def test_new_frames_are_counted(kind: StateKind, change: dict[str, Any], sentence: str) -> None:
    graph = in_place_graph(kind=kind)
    with pytest.raises(BundleRefused, match=sentence):
        check(dataclasses.replace(graph, caches=(dataclasses.replace(graph.caches[0], **change),)))


@pytest.mark.parametrize("kind", [kind for kind in WRITTEN_IN_PLACE if kind.needs_whole])
def test_where_no_frame_makes_room_a_stream_ends(kind: StateKind) -> None:
    graph = in_place_graph(kind=kind)
    with pytest.raises(
        BundleRefused, match=r"caches\[0\].is_whole: expected true of left-aligned caches to which calls"
    ):
        check(dataclasses.replace(graph, caches=(dataclasses.replace(graph.caches[0], is_whole=False),)))


@pytest.mark.parametrize("kind", WRITTEN_IN_PLACE)
def test_rows_lie_in_front_where_new_frames_are_written(kind: StateKind) -> None:
    graph = in_place_graph(kind=kind)
    turned = tuple(
        dataclasses.replace(each, shape=(each.shape[1], "batch", *each.shape[2:]))
        if each.name in ("keys", "new_keys")
        else each
        for each in (*graph.inputs, *graph.outputs)
    )
    keys = dataclasses.replace(graph.states[0], shape=(12, "batch", 2), frames_axis=0)
    behind = dataclasses.replace(
        graph,
        inputs=turned[: len(graph.inputs)],
        outputs=turned[len(graph.inputs) :],
        states=(keys, *graph.states[1:]),
    )
    with pytest.raises(BundleRefused, match="expected the axis 'batch' in front of a state of which calls give new"):
        check(behind)


def with_context(initial: Initial) -> Graph:
    """The streaming graph with a state of two channels and three frames."""
    graph, shape = streaming_graph(), ("batch", 2, 3)
    state = State("c", "c", "next_c", shape, "float32", initial, None, None, ("c",))
    tensors = [Tensor(name, shape, "float32", "state") for name in ("c", "next_c")]
    return dataclasses.replace(
        graph,
        states=(*graph.states, state),
        inputs=(*graph.inputs, tensors[0]),
        outputs=(*graph.outputs, tensors[1]),
    )


INITIAL: dict[str, tuple[Initial, str]] = {
    "as many axes": ((1.0, 2.0), r"a number, or numbers of shape '?\[1, 2, 3\].* with 1 for any size, got '?\[2\]"),
    "another size": ((((1.0, 2.0),),), r".*with 1 for any size, got '?\[1, 1, 2\]"),
    "rows of their own": ((((1.0,),), ((2.0,),)), r".*with 1 for any size, got '?\[2, 1, 1\]"),
    "lists of one length": ((((1.0,), (2.0, 3.0)),), ".*got lists of different lengths"),
    "entries": ((((),),), r".*with 1 for any size, got '?\[1, 1, 0\]"),
    "numbers of the type": ((((1e39,),),), "a number that float32 holds, got"),
    "numbers that are none of another type": ((((True,),),), "a number that float32 holds, got"),
}


@pytest.mark.parametrize("initial", [0.5, (((0.5,), (1.5,)),), (((0.5, 1, 2),),), (((0.5, 1, 2), (3, 4, 5)),)])
def test_a_state_may_begin_with_numbers_along_its_axes(initial: Initial) -> None:
    check(with_context(initial))


@pytest.mark.parametrize("name", INITIAL)
def test_what_a_state_begins_with_fits_it(name: str) -> None:
    initial, sentence = INITIAL[name]
    with pytest.raises(BundleRefused, match=f"states.c.initial: expected {sentence}"):
        check(with_context(initial))


def test_along_a_cache_all_begins_alike() -> None:
    graph = streaming_graph()
    states = (dataclasses.replace(graph.states[0], initial=(((1.0, 2.0),),)),)
    with pytest.raises(BundleRefused, match="initial: expected one number for a state along a cache"):
        check(dataclasses.replace(graph, states=states))


def test_without_independent_rows_the_only_bucket_is_one_row() -> None:
    graph = dataclasses.replace(ragged_graph(), rows_independent=False)
    expected = r"rows_independent: expected true for the buckets 1, 4 of 'batch', got false"
    with pytest.raises(BundleRefused, match=expected):
        check(graph)
    alone = tuple(artifact for artifact in graph.artifacts if artifact.sizes["batch"] == 1)
    check(dataclasses.replace(graph, axes={**graph.axes, "batch": Axis((1,))}, artifacts=alone))


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (
            "time - 4",
            "expected valid places within 1 to 2147483647 places for 'time - 4', got 0 at batch=1,time=4, -1 of them",
        ),
        ("9 - time", "got 5 at batch=1,time=4, 6 of them valid at the smallest length"),
        ("time * 2147483647", "got 8589934588 at batch=1,time=4"),
        (
            "max(1, 1 // (time - 8))",
            "'max(1, 1 // (time - 8))': expected a divisor other than 0, got 0 at {'time': 8}",
        ),
        ("1 // (time - 3)", "expected a divisor other than 0, got 0 at {'time': 3}"),
        ("batch * time", "expected formulas over axes other than 'batch', got 'batch * time'"),
        ("3 + 4", "expected formulas over axes other than 'batch', got '3 + 4'"),
        ("time + words", "expected axes declared under 'axes' (batch, time), got 'words'"),
        ("time * 1000000000 * 1000000000 * 1000000000", "expected numbers of at most 64 bits"),
        ("time * 150000000", "expected a tensor of at most 4294967296 bytes"),
    ],
)
def test_a_formula_has_a_sound_value_in_every_artifact(size: str, sentence: str) -> None:
    graph = ragged_graph()
    output = dataclasses.replace(graph.outputs[0], shape=("batch", size, 2))
    with pytest.raises(BundleRefused) as refusal:
        check(dataclasses.replace(graph, outputs=(output, *graph.outputs[1:])))
    assert sentence in str(refusal.value)


def test_the_number_of_formulas_is_bounded() -> None:
    graph = ragged_graph()
    extra = tuple(
        dataclasses.replace(graph.outputs[0], name=f"y{i}", shape=("batch", f"time + {i}")) for i in range(MAX_FORMULAS)
    )
    with pytest.raises(BundleRefused, match=rf"expected at most {MAX_FORMULAS} formulas, got {MAX_FORMULAS + 1}"):
        check(dataclasses.replace(graph, outputs=(*graph.outputs, *extra)))


ENGINES = {item.file: f"engines/{index}.plan" for index, item in enumerate(plain_graph().artifacts)}


@pytest.mark.parametrize("built", [True, False])
def test_sound_engines_pass(built: bool) -> None:
    check(with_engine(plain_graph(), built=built))


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (Engine("not built", None, PLAN, {}, {}), "engine.reason: expected why the engine is not built, got null"),
        (Engine("not built", "no device", PLAN, ENGINES, {}), "expected no engine while the status is 'not built'"),
        (Engine("not built", "no device", PLAN, {}, BUILT_WITH), "expected no engine while the status is 'not built'"),
        (Engine("built", "no device", PLAN, ENGINES, BUILT_WITH), "expected null for an engine that is built"),
        (Engine("built", None, PLAN, ENGINES, {}), "expected what the engine was built with, got nothing"),
        (Engine("built", None, PLAN, {}, BUILT_WITH), "expected one engine per graph file, got []"),
        (
            Engine("built", None, PLAN, dict.fromkeys(ENGINES, "engines/0.plan"), BUILT_WITH),
            "expected an engine of its own per graph file, got one engine for two",
        ),
        (Engine("not built", "no", "tensorrt/gone.json", {}, {}), "expected a file listed under 'files'"),
    ],
)
def test_engines_that_contradict_themselves_are_refused(engine: Engine, sentence: str) -> None:
    with pytest.raises(BundleRefused) as refusal:
        check(dataclasses.replace(plain_graph(), engine=engine))
    assert sentence in str(refusal.value)


def test_an_engine_file_must_be_listed() -> None:
    graph = with_engine(plain_graph(), built=True)
    assert graph.engine is not None
    elsewhere = dataclasses.replace(graph.engine, files={file: f"{name}x" for file, name in graph.engine.files.items()})
    paths = {path for item in graph.artifacts for path in (item.file, *item.files)} | {PLAN, graph.golden}
    paths |= {graph.certificate, "receipts.json", "recipe.yaml"}
    with pytest.raises(BundleRefused, match="expected a file listed under 'files'"):
        check_manifest(manifest_of({"g": dataclasses.replace(graph, engine=elsewhere)}, dict.fromkeys(paths, b"")))


def shared(graph: Graph, *numbers: int) -> Graph:
    """The same with some artifacts in the file of the first of them."""
    artifacts = list(graph.artifacts)
    for number in numbers:
        artifacts[number] = dataclasses.replace(artifacts[number], file=artifacts[numbers[0]].file)
    return dataclasses.replace(graph, artifacts=tuple(artifacts))


def test_artifacts_that_differ_in_their_rows_alone_may_share_a_file() -> None:
    check(shared(streaming_graph(), 0, 1))
    both = shared(shared(plain_graph(), 0, 2), 1, 3)
    check(both)
    assert [dict(both.sizes_in_file(item)) for item in both.artifacts] == [{"frames": 2}, {"frames": 3}] * 2
    assert both.shape_in_file(both.inputs[0], both.artifacts[1]) == ["batch", 3, 2]
    alone = plain_graph()
    assert alone.shape_in_file(alone.inputs[0], alone.artifacts[1]) == [1, 3, 2]


def test_artifacts_that_share_a_file_differ_in_nothing_else() -> None:
    with pytest.raises(BundleRefused, match=r"artifacts that share 'graphs/plain.* to differ in their rows alone, got"):
        check(shared(plain_graph(), 0, 1))
    graph = shared(streaming_graph(), 0, 1)
    other = dataclasses.replace(graph.artifacts[1], files=(graph.artifacts[0].file,))
    with pytest.raises(BundleRefused, match="to differ in their rows alone"):
        check(dataclasses.replace(graph, artifacts=(graph.artifacts[0], other)))


def test_numbers_of_rows_that_share_a_file_share_its_engine() -> None:
    graph = with_engine(shared(shared(plain_graph(), 0, 2), 1, 3), built=True)
    check(graph)
    assert graph.engine is not None and len(graph.engine.files) == 2
