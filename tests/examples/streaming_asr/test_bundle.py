"""The example as its user gets it: built from its recipe with fewer buckets, run beside the original."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import runtime_lite
from benchmarks.serving.transcripts import KINDS, heard_in_company
from compiler.base.records.build_report import BuildReport
from compiler.build.capture import torch_module
from compiler.build.capture.initial_graph import states_of
from compiler.build.pipeline import BuildOptions, build
from compiler.build.report.progress import Progress
from compiler.graph.model import SOURCE_KEY, dims_of
from compiler.graph.stages import Array
from compiler.recipe.load import load_recipe
from examples.streaming_asr import data
from examples.streaming_asr.decode import decode_outputs

pytestmark = pytest.mark.slow

OVERRIDES = ("gates.task=null", "graphs.encoder.axes.batch.buckets=[1, 4]", "data.verification.count=2")


@dataclasses.dataclass(frozen=True)
class Made:
    """A built bundle, what the build said, and the original model."""

    path: Path
    report: BuildReport
    original: torch_module.TorchReference


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    loaded = load_recipe("cpu.yaml", OVERRIDES)
    path = tmp_path_factory.mktemp("example") / "bundle"
    report = build(loaded, BuildOptions(path), Progress())
    spec = loaded.recipe.graphs["encoder"]
    assert spec.first_call is not None
    original = torch_module.TorchReference(
        torch_module.load_module(loaded, "encoder", spec.source, "source"),
        torch_module.load_module(loaded, "encoder", spec.first_call, "first_call"),
        spec,
        states_of(spec),
    )
    return Made(path, report, original)


def transcripts(made: Made, recording: data.Recording) -> tuple[str, str]:
    with runtime_lite.Runtime() as runtime, runtime.load(made.path).open_stream() as stream:
        shipped = [stream.push(chunk) for chunk in recording.chunks]
    return decode_outputs([outputs for outputs, _ in made.original.run(recording.chunks)]), decode_outputs(shipped)


def some_recordings() -> Iterator[data.Recording]:
    """Three short recordings and one whose stream overflows the window."""
    recordings = list(data.recordings())
    yield from recordings[:3]
    yield next(recording for recording in recordings if len(recording.chunks) >= 100)


def test_transcripts_are_those_of_the_original(made: Made) -> None:
    for recording in some_recordings():
        original, shipped = transcripts(made, recording)
        assert shipped == original
        assert original


def test_logits_and_states_hold_over_a_hundred_chained_chunks_without_growth(made: Made) -> None:
    parity = [each for each in made.report.gates if each.gate == "parity.max_abs"]
    assert {each.subject for each in parity} >= {"logits"}
    assert all(each.holds and (each.figures["steps"] or 0) >= 100 for each in parity)
    assert all((each.limit or 1.0) <= 1e-5 * max(1.0, each.figures["reference_max"] or 0.0) for each in parity)


def test_the_first_call_is_real_length_zero(made: Made) -> None:
    feed = next(data.verification())[0]
    (original, _), *_ = made.original.run([feed])
    with runtime_lite.Runtime() as runtime:
        shipped = runtime.load(made.path).run(feed)
    scale = max(1.0, float(np.max(np.abs(original["logits"]))))
    assert float(np.max(np.abs(shipped["logits"] - original["logits"]))) <= 1e-5 * scale


def test_each_state_is_an_input_and_no_dimension_is_symbolic_but_that_of_the_rows(made: Made) -> None:
    with runtime_lite.read_bundle(made.path) as bundle:
        (graph,) = bundle.manifest.graphs.values()
    assert {state.input for state in graph.states} < {tensor.name for tensor in graph.inputs}
    assert {file for artifact in graph.artifacts for file in artifact.files} == {"graphs/encoder.weights"}
    for file in {artifact.file for artifact in graph.artifacts}:
        model = ir.load(made.path / file)
        values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
        for value in values:
            assert value.shape is not None, value.name
            names = {str(name) for dim in dims_of(value) or () if not isinstance(dim, int) for name in dim.free_symbols}
            assert names <= {"batch"}, value.name


def test_every_product_in_the_graph_names_its_source_line(made: Made) -> None:
    model = ir.load(made.path / "graphs/encoder.batch.onnx")
    products = [node for node in model.graph if node.op_type in ("MatMul", "Conv", "Softmax")]
    assert products
    assert all("examples/streaming_asr/model.py:" in node.metadata_props[SOURCE_KEY] for node in products)


def test_rows_of_a_batch_are_what_they_are_alone(made: Made) -> None:
    streams = [stream[:12] for stream, _ in zip(data.verification(), range(3), strict=False)]
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(made.path)
        alone: list[list[Array]] = []
        for chunks in streams:
            with model.open_stream() as stream:
                alone.append([stream.push(chunk)["logits"] for chunk in chunks])
        with model.open_stream(rows=len(streams)) as stream:
            for step in range(12):
                features = np.concatenate([chunks[step]["features"] for chunks in streams])
                together = stream.push({"features": features})["logits"]
                for row, expected in enumerate(alone):
                    scale = max(1.0, float(np.max(np.abs(expected[step]))))
                    assert float(np.max(np.abs(together[row : row + 1] - expected[step]))) <= 1e-5 * scale


def test_transcripts_in_company_are_those_of_each_stream_alone(made: Made) -> None:
    heard = heard_in_company(made.path, lanes=2, streams=18, seed=1)
    assert {each.planned.kind for each in heard} == set(KINDS)
    assert len({each.planned.priority for each in heard}) > 2
    for each in heard:
        assert each.together == each.alone, each.planned
        assert each.deviation <= 1e-5, each.planned
    assert sum(len(each.alone.split()) for each in heard) > 50
