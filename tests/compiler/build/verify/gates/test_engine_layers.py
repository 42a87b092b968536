"""The gate on engines that a builder makes without the device."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler.base.records.findings import BUILT, Finding
from compiler.build.verify.gate import Shipped
from compiler.build.verify.gates.engine_layers import ENGINE_LAYERS, LAYERS, require_read
from compiler.errors import GateFailed
from compiler.targets.base import Emitted, EngineLayer, TrialEngine
from tests.kit.shipped import emitted, shipped, silent, stream_artefacts

PRODUCT = "(float16[1,2] x) => (float16[1,2] y) <float16[2,2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"

WORDS = "built by Abacus 2.1 for 13 rods, not run"


def looked_at(folder: Path, *types: str, layers: tuple[EngineLayer, ...] | None = ()) -> Shipped:
    """A graph with one product in half, and a builder whose engine has a layer of each type."""
    one = emitted(folder, PRODUCT, {"batch": 1})
    whole = shipped(folder, stream_artefacts(folder, [one], [[]]), [one])
    found = tuple(
        EngineLayer(f"gemm {kind}", frozenset({"node_of_y", "b"}), True, frozenset({kind}), (kind,), frozenset(), False)
        for kind in types
    )

    def build(folder: Path, artefacts: Sequence[Emitted]) -> TrialEngine:
        assert list(artefacts) == [one]
        return TrialEngine("Abacus 2.1", "13 rods", "0" * 64, 700, None if layers is None else found)

    graph = dataclasses.replace(whole.graph, trial_builder=build)
    return dataclasses.replace(whole, graphs={"net": graph})


def test_a_target_without_a_builder_here_is_not_looked_at(tmp_path: Path) -> None:
    one = emitted(tmp_path, PRODUCT, {"batch": 1})
    whole = shipped(tmp_path, stream_artefacts(tmp_path, [one], [[]]), [one])
    assert not ENGINE_LAYERS.is_wanted(whole.loaded.recipe, whole)
    assert ENGINE_LAYERS.is_wanted(whole.loaded.recipe, looked_at(tmp_path))
    assert ENGINE_LAYERS.promises(whole.loaded.recipe, "net") == []


def test_what_is_built_and_kept_is_said_with_its_figures(tmp_path: Path) -> None:
    checked = ENGINE_LAYERS.run(looked_at(tmp_path, "float16"), silent)
    assert checked.detail == f"1 engines {WORDS}"
    assert checked.findings == [
        Finding(BUILT, "net", "batch=1", holds=True, detail=WORDS, figures={"bytes": 700}),
        Finding(LAYERS, "net", "batch=1", 1, None, True, "layers, 1 of them of several nodes", {"fused": 1}),
        Finding(LAYERS, "net", "batch=1, float16", 1, 1, True, "nodes that compute in float16", is_least=True),
    ]  # fmt: skip
    assert checked.receipt == {
        "engines": {"batch=1": {"builder": "Abacus 2.1", "device": "13 rods", "sha256": "0" * 64, "size_bytes": 700}}
    }


def test_a_node_that_computes_in_another_type_fails_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(GateFailed) as caught:
        ENGINE_LAYERS.run(looked_at(tmp_path, "int8"), silent)
    assert str(caught.value).startswith(
        "stage engines batch=1, graph net, node node_of_y, op MatMul: expected 1 nodes that compute as the graph says "
        "in the engine of Abacus 2.1 for 13 rods, got 1 that do not: node_of_y (MatMul) in int8; node_of_y is to "
        "compute in float16, in layer gemm int8; "
    )
    (failed,) = caught.value.findings
    assert (failed.gate, failed.subject, failed.holds) == (LAYERS, "batch=1, node_of_y", False)


@pytest.mark.parametrize(("types", "layers"), [((), None), ((), ())])
def test_layers_that_cannot_be_read_are_said_and_fail_where_nothing_may_stay_open(
    types: tuple[str, ...], layers: tuple[EngineLayer, ...] | None, tmp_path: Path
) -> None:
    """A list of another form, and a list in which no layer names the node."""
    findings = ENGINE_LAYERS.run(looked_at(tmp_path, *types, layers=layers), silent).findings
    (unread,) = (each for each in findings if each.holds is None)
    assert (unread.gate, unread.verdict) == (LAYERS, "not reached")
    with pytest.raises(GateFailed, match=r"expected layers that can be read, got .*; use the version"):
        require_read(findings)
    require_read(each for each in findings if each is not unread)


def test_buckets_that_share_a_file_have_one_engine(tmp_path: Path) -> None:
    seen: list[Sequence[Emitted]] = []
    whole = looked_at(tmp_path, "float16")
    single = whole.graph.trial_builder
    one = whole.graph.built.artifacts[0]
    both = (one, dataclasses.replace(one, sizes={"batch": 4}))

    def build(folder: Path, artefacts: Sequence[Emitted]) -> TrialEngine:
        seen.append(artefacts)
        assert single is not None
        return single(folder, artefacts[:1])

    built = dataclasses.replace(whole.graph.built, artifacts=both)
    graph = dataclasses.replace(whole.graph, trial_builder=build, built=built)
    checked = ENGINE_LAYERS.check(dataclasses.replace(whole, graphs={"net": graph}), silent)
    assert [list(artefacts) for artefacts in seen] == [list(both)]
    assert {finding.subject.partition(", ")[0] for finding in checked.findings} == {"batch=1; batch=4"}
