"""stage_inputs: the key of a stage changes with every field of its record, and a stage has no recipe in reach."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.errors import InternalError
from compiler.recipe.gates import ParityGate, TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, PassSpec, Source
from compiler.recipe.load import LoadedRecipe, RecipeLocation, load_recipe
from compiler.recipe.record import Feeds
from compiler.recipe.stage_inputs import (
    BundleInputs,
    CaptureInputs,
    DataInputs,
    LoweringInputs,
    PassInputs,
    SearchInputs,
    Surroundings,
    TargetInputs,
    for_capture,
    for_data,
    for_lowering,
    key_of,
    surroundings_of,
)
from tests.kit.models.tiny_graph import write_stream

SURROUNDINGS = Surroundings("code", (("torch", "1"),), ("a-1.dist-info",), ("cpu",), ".")

SPEC = Graph(
    source=Source(onnx="a.onnx"),
    inputs={
        "x": Input(shape=("batch", "time"), dtype="float32"),
        "y": Input(shape=("batch", "time"), dtype="float32"),
    },
    outputs=("z",),
    axes={"batch": Axis(buckets=(1, 4)), "time": Axis(buckets=(8, 16), length_input="valid")},
    passes=(PassSpec(name="simplify"),),
)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedRecipe:
    monkeypatch.chdir(tmp_path)
    write_stream(tmp_path)
    return load_recipe("stream.yaml")


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(Surroundings)])
def test_everything_around_a_build_is_in_every_key(field: str) -> None:
    changed: Any = ("other",) if field in ("packages", "machine") else "other"
    other = dataclasses.replace(SURROUNDINGS, **{field: changed})
    assert key_of(CaptureInputs(SURROUNDINGS, "net", SPEC, ())) != key_of(CaptureInputs(other, "net", SPEC, ()))


GATE = ParityGate(max_abs=1.0, chained_steps=2)
FEEDS = Feeds(feeds="m:f", count=1)
RECORDS: list[Any] = [
    DataInputs(SURROUNDINGS, "net", "verification", FEEDS, 1, SPEC, ()),
    CaptureInputs(SURROUNDINGS, "net", SPEC, ()),
    LoweringInputs(
        surroundings=SURROUNDINGS,
        graph="net",
        spec=SPEC,
        gate=GATE,
        task=None,
        task_files=(),
        captured="captured",
        files=(),
        verification="verification",
        development="",
        calibration="",
    ),
    PassInputs("before", PassSpec(name="simplify")),
    TargetInputs("before", "onnx_static", "", {"batch": (1,)}),
    SearchInputs("before", "onnx_static", "", {"batch": (1,)}),
    BundleInputs(SURROUNDINGS, "recipe", {}, {}, (), "", ()),
]
OTHERS: dict[str, Any] = {
    "surroundings": dataclasses.replace(SURROUNDINGS, code="other"),
    "feeds": FEEDS.model_copy(update={"count": 2}),
    "shortest": 2,
    "gate": GATE.model_copy(update={"sqnr_db": 1.0}),
    "task": TaskGate(recordings="m:f", decode="m:g", metric="m:h", max_increase=0.0),
    "task_files": ("hash",),
    "files": ("hash",),
    "buckets": {"batch": (1, 4)},
    "graphs": {"net": "key"},
    "checkpoints": {"file": "hash"},
    "toolchain": ("simulator: 2.2",),
}


@pytest.mark.parametrize(
    ("record", "field"), [(each, field.name) for each in RECORDS for field in dataclasses.fields(each)]
)
def test_every_field_of_every_record_is_in_the_key(record: Any, field: str) -> None:
    before = getattr(record, field)
    specs: dict[type[Any], Any] = {
        Graph: SPEC.model_copy(update={"outputs": ("w",)}),
        PassSpec: PassSpec(name="simplify", options={"a": 1}),
    }
    other = specs[type(before)] if type(before) in specs else OTHERS.get(field, "other")
    assert key_of(dataclasses.replace(record, **{field: other})) != key_of(record)


def test_order_kind_and_type_count() -> None:
    swapped = SPEC.model_copy(update={"inputs": dict(reversed(SPEC.inputs.items()))})
    keys = [key_of(CaptureInputs(SURROUNDINGS, "net", spec, ())) for spec in (SPEC, swapped)]
    keys += [
        key_of(PassInputs("", PassSpec(name="p", options={"a": value}))) for value in (1, 1.0, True, "1", [1], None)
    ]
    keys += [key_of(TargetInputs("", "", "", {"batch": sizes})) for sizes in ((1,), (1, 4))]
    assert len(set(keys)) == len(keys)
    with pytest.raises(InternalError, match="got object"):
        key_of(PassInputs("", PassSpec(name="p", options={"a": object()})))


def test_a_stage_is_given_the_part_of_a_graph_that_its_key_holds() -> None:
    captured, drawn, lowered = for_capture(SPEC), for_data(SPEC), for_lowering(SPEC)
    assert [axis.buckets for axis in captured.axes.values()] == [(1,), (16,)]
    assert set(captured.padded) == set(SPEC.padded) and captured.batch == "batch" and captured.passes == ()
    assert (drawn.outputs, drawn.source.onnx) == ((), None)
    assert [axis.buckets for axis in lowered.axes.values()] == [(1,), (1,)]
    assert lowered.axes["time"].length_input == "valid" and lowered.passes == ()


def test_no_stage_of_a_graph_has_the_recipe_in_reach(loaded: LoadedRecipe) -> None:
    from rich.console import Console

    spec = loaded.recipe.graphs["net"]
    original = original_of(loaded, "net", spec, None, Progress(Console(quiet=True)), with_data=False)
    held = [*vars(original).values(), *vars(original.data).values(), *vars(original.captured).values()]
    assert not any(isinstance(value, LoadedRecipe) or value is loaded.recipe or value is spec for value in held)
    assert type(original.location) is RecipeLocation and not hasattr(original.location, "recipe")


def test_surroundings_are_those_of_this_machine(loaded: LoadedRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = surroundings_of(loaded)
    assert before == surroundings_of(loaded) and before.folder == "."
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert surroundings_of(loaded).machine != before.machine
