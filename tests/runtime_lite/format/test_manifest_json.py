"""The manifest survives the way to JSON and back, in one spelling, and no bytes at all make the reader stumble."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite import BundleRefused, json_from_manifest, manifest_from_json
from runtime_lite.format.manifest import Artifact, Wire, static_shape
from runtime_lite.format.manifest_json import MAX_MANIFEST_BYTES
from runtime_lite.states.kind import StateKind
from tests.runtime_lite.bundles import manifest_of, plain_graph, ragged_graph, streaming_graph
from tests.runtime_lite.engines import PLAN, with_engine
from tests.runtime_lite.in_place_graph import WRITTEN_IN_PLACE, in_place_graph

FILES = {
    name: b"x"
    for graph in (streaming_graph(), plain_graph(), ragged_graph())
    for artifact in graph.artifacts
    for name in (artifact.file, *artifact.files, graph.golden, graph.certificate)
} | {"receipts.json": b"{}", "recipe.yaml": b""}
GRAPHS = {"streaming": streaming_graph(), "plain": plain_graph(), "ragged": ragged_graph()}
MANIFEST = manifest_of(GRAPHS, FILES)


def test_records_survive_the_way_to_json_and_back() -> None:
    text = json_from_manifest(MANIFEST)
    assert manifest_from_json(text) == MANIFEST
    assert json_from_manifest(manifest_from_json(text)) == text


def test_json_is_canonical_whatever_the_order_of_the_records() -> None:
    turned = manifest_of(dict(reversed(GRAPHS.items())), dict(reversed(FILES.items())))
    text = json_from_manifest(MANIFEST)
    assert json_from_manifest(turned) == text
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=1).encode() + b"\n"


def test_a_writer_learns_at_once_what_a_reader_would_refuse() -> None:
    broken = dataclasses.replace(MANIFEST, receipts="elsewhere.json")
    with pytest.raises(
        BundleRefused, match=r"manifest.json.receipts: expected a file listed under 'files', got 'elsewhere.json'"
    ):
        json_from_manifest(broken)


def test_a_graph_without_axes_and_states_is_read() -> None:
    graph = plain_graph()
    fixed = {
        t.name: dataclasses.replace(t, shape=static_shape(t.shape, {"batch": 4, "frames": 3})) for t in graph.inputs
    }
    graph = dataclasses.replace(
        graph,
        inputs=tuple(fixed.values()),
        outputs=(dataclasses.replace(graph.outputs[0], shape=(4, 3, 2)),),
        axes={},
        batch_axis=None,
        artifacts=(Artifact({}, graph.artifacts[0].file, ()),),
    )
    manifest = manifest_of({"plain": graph}, FILES)
    assert manifest_from_json(json_from_manifest(manifest)) == manifest


def test_a_text_beyond_the_cap_is_not_parsed() -> None:
    text = json_from_manifest(MANIFEST)
    assert manifest_from_json(text.ljust(MAX_MANIFEST_BYTES)) == MANIFEST
    with pytest.raises(BundleRefused, match=r"manifest\.json: expected at most 4194304 bytes, got 4194305 bytes"):
        manifest_from_json(text.ljust(MAX_MANIFEST_BYTES + 1))


def accepted_or_refused(text: bytes) -> None:
    """Read a manifest; anything but a record or a one-sentence refusal is a failure."""
    try:
        manifest = manifest_from_json(text)
    except BundleRefused as refusal:
        message = str(refusal)
        assert message.isprintable()
        assert len(message) < 2000
        assert " expected " in message and ", got " in message and "; " in message
    else:
        assert manifest_from_json(json_from_manifest(manifest)) == manifest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        2**31,
        2**63,
        1e308,
        0.5,
        "",
        "batch",
        "time",
        "time - 3",
        "1 // (time - 4)",
        "..",
        "/etc/passwd",
        "\x1b[2J",
        "\ud800",
        [],
        {},
        [[]],
        ["x"] * 20,
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON tree."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


WIRES = (Wire("streaming", "y", "plain", "x"), Wire("plain", "y", "ragged", "x"))
WIRED = json_from_manifest(dataclasses.replace(MANIFEST, wiring=WIRES))
PLACES = places(json.loads(WIRED))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_sentence(text: bytes) -> None:
    accepted_or_refused(text)


@given(JSON)
def test_any_json_is_refused_with_a_sentence(value: Any) -> None:
    accepted_or_refused(json.dumps(value).encode())


@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES[1:]), ODD | JSON, st.sampled_from(["set", "add", "drop"])),
        min_size=1,
        max_size=3,
    )
)
def test_a_good_manifest_with_odd_values_is_refused_or_sound(edits: list[tuple[tuple[Any, ...], Any, str]]) -> None:
    plain = json.loads(WIRED)
    for path, value, action in edits:
        parent = plain
        try:
            for key in path[:-1]:
                parent = parent[key]
            if action == "set":
                parent[path[-1]] = value
            elif action == "drop":
                del parent[path[-1]]
            elif isinstance(parent, dict):
                parent[str(value)[:20]] = value
            else:
                parent.append(value)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier edit took this place away
    accepted_or_refused(json.dumps(plain).encode())


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=4))
def test_a_good_manifest_with_flipped_bytes_is_refused_or_sound(at: int, junk: bytes) -> None:
    text = json_from_manifest(MANIFEST)
    accepted_or_refused(text[:at] + junk + text[at + len(junk) :])
    accepted_or_refused(text[:at])


@pytest.mark.parametrize("built", [True, False])
def test_engines_survive_the_way_to_json_and_back(built: bool) -> None:
    graph = with_engine(plain_graph(), built=built)
    assert graph.engine is not None
    files = FILES | dict.fromkeys([PLAN, *graph.engine.files.values()], b"x")
    manifest = manifest_of({"plain": graph}, files)
    assert manifest_from_json(json_from_manifest(manifest)) == manifest


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("status", "almost", "engine.status: expected one of built, not built, got 'almost'"),
        ("reason", 5, "engine.reason: expected a printable text"),
        ("reason", "line\nbreak", "engine.reason: expected a printable text"),
        ("plan", "../plan.json", "engine.plan: expected a relative file name inside the bundle"),
        ("files", {"graphs/a.onnx": "/etc/passwd"}, "expected a relative file name inside the bundle"),
        ("files", [], "engine.files: expected an object"),
        ("built_with", {"tensorrt": 10}, "expected a printable text"),
        ("gpu", 1, "engine: expected only the keys"),
    ],
)
def test_hostile_engines_are_refused(key: str, value: object, sentence: str) -> None:
    plain = json.loads(
        json_from_manifest(manifest_of({"p": with_engine(plain_graph(), built=False)}, FILES | {PLAN: b""}))
    )
    plain["graphs"]["p"]["engine"][key] = value
    with pytest.raises(BundleRefused) as refusal:
        manifest_from_json(json.dumps(plain).encode())
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("side", "update"), [("left", "replace"), ("right", "append")])
def test_a_side_and_an_update_that_are_no_kind_together_are_refused(side: str, update: str) -> None:
    plain = json.loads(json_from_manifest(MANIFEST))
    plain["graphs"]["streaming"]["caches"][0] |= {"side": side, "update": update}
    message = f"expected right-aligned caches that are replaced or .*, got {side}-aligned caches that {update}; "
    with pytest.raises(BundleRefused, match=message):
        manifest_from_json(json.dumps(plain).encode())


@pytest.mark.parametrize("kind", WRITTEN_IN_PLACE, ids=lambda kind: kind.update)
def test_kinds_of_states_survive_the_way_to_json_and_back(kind: StateKind) -> None:
    graph = in_place_graph(kind=kind)
    files = {each.file: b"x" for each in graph.artifacts} | {graph.golden: b"x", graph.certificate: b"x"}
    manifest = manifest_of({"net": graph}, files | {"receipts.json": b"{}", "recipe.yaml": b""})
    assert manifest_from_json(json_from_manifest(manifest)).graphs["net"].caches[0].kind == kind
