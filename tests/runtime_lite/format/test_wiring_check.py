"""Wires lead from an output to an input that can take it, each input has one, and no graph waits for itself."""

import dataclasses
import json
from typing import Any

import pytest

from runtime_lite import BundleRefused, json_from_manifest, manifest_from_json
from runtime_lite.format.manifest import Axis, Graph, Manifest, Tensor, Wire
from runtime_lite.format.wiring_check import MAX_WIRES, check_wiring
from tests.runtime_lite.bundles import STEP, WIDTH, manifest_of, plain_graph, ragged_graph, streaming_graph

GRAPHS = {"streaming": streaming_graph(), "plain": plain_graph(), "ragged": ragged_graph()}
FILES = {
    name: b"x"
    for graph in GRAPHS.values()
    for artifact in graph.artifacts
    for name in (artifact.file, *artifact.files, graph.golden, graph.certificate)
} | {"receipts.json": b"{}", "recipe.yaml": b""}
MANIFEST = manifest_of(GRAPHS, FILES)
ALONG = Wire("streaming", "y", "plain", "x")


def wired(*wires: Wire, graphs: dict[str, Graph] | None = None) -> Manifest:
    return dataclasses.replace(MANIFEST, wiring=wires, graphs={**MANIFEST.graphs, **(graphs or {})})


def test_wires_survive_the_way_to_json_and_back() -> None:
    manifest = wired(ALONG, Wire("plain", "y", "ragged", "x"))
    assert manifest_from_json(json_from_manifest(manifest)) == manifest


def test_a_state_is_what_a_stream_of_another_graph_starts_with() -> None:
    wires = (Wire("prefill", "next_keys", "streaming", "keys"),)
    check_wiring("w", wired(*wires, graphs={"prefill": streaming_graph()}))


WRONG: dict[str, tuple[tuple[Wire, ...], str]] = {
    "an unknown giver": ((Wire("other", "y", "plain", "x"),), "[0]: expected one of the graphs streaming, plain"),
    "an unknown taker": ((Wire("plain", "y", "other", "x"),), "[0]: expected one of the graphs streaming, plain"),
    "an unknown output": ((Wire("streaming", "x", "plain", "x"),), "[0].output: expected an output of 'streaming'"),
    "an unknown input": ((Wire("streaming", "y", "plain", "y"),), "[0].input: expected an input of 'plain', got 'y'"),
    "a state for data": (
        (Wire("streaming", "next_keys", "plain", "x"),),
        "[0].input: expected an input of role 'state', as the output, got data",
    ),
    "data for a length": (
        (Wire("streaming", "y", "ragged", "time_length"),),
        "[0].input: expected an input of role 'data', as the output, got length",
    ),
    "another type": (
        (Wire("streaming", "y", "ragged", "tokens"),),
        "[0]: expected what 'ragged.tokens' takes, int64 of shape ['batch', 'time'], got float32 of shape ['batch', 3",
    ),
    "another rank": ((Wire("ragged", "mean", "plain", "x"),), "[0]: expected what 'plain.x' takes"),
    "two for one input": ((ALONG, Wire("ragged", "y", "plain", "x")), "[1]: expected one wire to an input"),
    "a graph that waits for itself": (
        (Wire("plain", "y", "plain", "x"),),
        "expected graphs that run one after the other, got a circle of plain",
    ),
    "a circle of two": (
        (Wire("plain", "y", "streaming", "x"), ALONG),
        "expected graphs that run one after the other, got a circle of plain, streaming",
    ),
    "too many": ((ALONG,) * (MAX_WIRES + 1), f"expected at most {MAX_WIRES} wires"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wires_that_lead_nowhere_or_in_a_circle_are_refused(case: str) -> None:
    wires, sentence = WRONG[case]
    with pytest.raises(BundleRefused) as refused:
        check_wiring("wiring", wired(*wires))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("shape", "axes", "meets"),
    [
        (("batch", 3, 2), {"batch": Axis((1, 4))}, True),
        (("batch", 7, 2), {"batch": Axis((1, 4))}, False),
        (("batch", 3, 5), {"batch": Axis((1, 4))}, False),
        ((4, 3, 2), {}, False),
        ((3, "batch", 2), {"batch": Axis((1, 4))}, False),
        (("batch", "late", 2), {"batch": Axis((1, 4)), "late": Axis((4, 8), "n", 3)}, True),
        (("batch", "late", 2), {"batch": Axis((1, 4)), "late": Axis((4, 8), "n", 4)}, False),
        (("batch", "late", 2), {"batch": Axis((1, 4)), "late": Axis((4, 8))}, False),
    ],
)
def test_sizes_meet_where_a_bucket_gives_what_a_bucket_takes(
    shape: tuple[int | str, ...], axes: dict[str, Axis], meets: bool
) -> None:
    artifact = streaming_graph().artifacts[0]
    sizes = [{name: axis.buckets[at] for name, axis in axes.items()} for at in (0, -1)]
    taker = dataclasses.replace(
        plain_graph(), inputs=(Tensor("x", shape, "float32", "data"),), axes=axes,
        batch_axis="batch" if axes else None,
        artifacts=tuple(dataclasses.replace(artifact, sizes=each) for each in sizes),
    )  # fmt: skip
    manifest = wired(ALONG, graphs={"plain": taker})
    if meets:
        check_wiring("w", manifest)
    else:
        with pytest.raises(BundleRefused, match=r"w\[0\]: expected what 'plain.x' takes"):
            check_wiring("w", manifest)


def test_a_wire_carries_rows_where_its_graphs_have_them() -> None:
    shared = Tensor("y", (STEP, WIDTH), "float32", "data")
    giver = dataclasses.replace(streaming_graph(), outputs=(shared,))
    taker = dataclasses.replace(plain_graph(), inputs=(dataclasses.replace(shared, name="x"),))
    with pytest.raises(
        BundleRefused, match=r"w\[0\]: expected a tensor with rows, as the graphs have them, got float32"
    ):
        check_wiring("w", wired(ALONG, graphs={"streaming": giver, "plain": taker}))


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (None, "wiring: expected a list, got None"),
        ([1], "wiring[0]: expected an object, got 1"),
        ([{}], "wiring[0]: expected the key 'from_graph'"),
        ([{"from_graph": "plain", "output": "y", "to_graph": "ragged", "input": ["x"]}], "wiring[0].input: expected a"),
        ([{**dataclasses.asdict(ALONG), "code": "x"}], "wiring[0]: expected only the keys"),
        ([{**dataclasses.asdict(ALONG), "to_graph": "pl\x1bain"}], "wiring[0].to_graph: expected a printable text"),
    ],
)
def test_hostile_wires_are_refused(edit: Any, sentence: str) -> None:
    plain = {**json.loads(json_from_manifest(MANIFEST)), "wiring": edit}
    with pytest.raises(BundleRefused) as refused:
        manifest_from_json(json.dumps(plain).encode())
    assert sentence in str(refused.value)
