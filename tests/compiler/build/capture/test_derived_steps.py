"""A model of whole sequences goes through the front door, and is pushed to call by call."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import yaml

import runtime_lite
from compiler.build.bundle.replay_proofs import verify_proofs
from compiler.build.capture.derived_steps import cache_axis_name, derived_model, with_caches
from compiler.errors import GateFailed, Refused
from compiler.proof.derivation.dependence import Reach
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, DeriveSteps, Input, Source
from runtime_lite import BundleRefused, read_bundle
from runtime_lite.bench import bench_model
from runtime_lite.errors import BadInput
from tests.kit.models.project import Project
from tests.kit.whole_sequences import CHUNKED, LABELS, LETTERS, LONGEST, Drawing, session, whole_graph
from tests.runtime_lite.bundles import replace_hashed, rewrite_contracts

WINDOW = 20

RECIPE = {
    "name": "whole",
    "graphs": {
        "net": {
            "source": {"onnx": "whole.onnx"},
            "inputs": {"tokens": {"shape": ["batch", "time"], "dtype": "int64", "range": [0, LABELS - 1]}},
            "outputs": ["scores"],
            "axes": {"batch": {"buckets": [1, 2]}, "time": {"buckets": [1, 6], "length_input": "time_length"}},
            "derive_steps": {"along": "time", "window": WINDOW},
        }
    },
    "data": {"verification": {"feeds": "tokens:streams", "count": 2}},
    "targets": [{"kind": "onnx_static"}],
    "gates": {"parity": {"net": {"max_abs": 1.0e-5, "chained_steps": 10}}},
}

DATA = f"""
import numpy as np

def streams():
    random = np.random.default_rng(0)
    while True:
        yield [{{"tokens": random.integers(0, {LABELS}, (1, n))}} for n in (6, *[1] * 12)]
"""


def project(folder: Path, drawing: Drawing) -> Project:
    made = Project(folder, folder / "cache")
    ir.save(whole_graph(drawing), folder / "whole.onnx")
    made.write("tokens.py", DATA)
    made.write("whole.yaml", yaml.safe_dump(RECIPE, sort_keys=False))
    return made


@pytest.mark.slow
def test_a_decoder_of_whole_sequences_is_built_and_pushed_to_call_by_call(tmp_path: Path) -> None:
    drawing = Drawing(positions="skewed", groups=1, mask="truths")
    ended = project(tmp_path, drawing).build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    (told,) = (each["detail"] for each in ended.report["stages"] if each["stage"] == "capture")
    assert told.startswith("steps derived with 2 caches, certificate of ")
    tokens = np.random.default_rng(5).integers(0, LABELS, (1, WINDOW))
    expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens})[0]
    with runtime_lite.Runtime() as runtime, (model := runtime.load(tmp_path / "bundle")).open_stream() as stream:
        at = 0
        for length in (5, *[1] * 9, 6):
            got = stream.push({"tokens": tokens[:, at : at + length]})["scores"]
            assert np.allclose(got, expected[:, at : at + length], atol=1e-5)
            at += length
        assert at == WINDOW
        with pytest.raises(BadInput, match=f"at most {WINDOW} frames along 'past' in all of its calls, got 21"):
            stream.push({"tokens": tokens[:, :1]})
        assert len(list(bench_model(model, runs=WINDOW, warm_up_runs=0))) == 4
    kept = (tmp_path / "bundle" / "certificates" / "net.json").read_bytes()
    again = project(tmp_path, drawing).build(recipe="whole.yaml")
    assert again.code == 0
    assert "net:capture" in again.stages(cached=True)
    assert (
        json.loads((tmp_path / "bundle" / "certificates" / "net.json").read_bytes())["derivation"]
        == (json.loads(kept)["derivation"])
    )
    assert "derived steps replayed; not checkable here" in replayed(tmp_path / "bundle")
    for expected, edit in FORGED.items():
        forged = Path(shutil.copytree(tmp_path / "bundle", tmp_path / f"forged_{len(expected)}"))
        content = json.loads(kept)
        edit(content)
        replace_hashed(forged, "certificates/net.json", json.dumps(content).encode())
        rewrite_contracts(forged)
        with pytest.raises(BundleRefused, match=expected):
            replayed(forged)


def replayed(bundle: Path) -> str:
    with read_bundle(bundle) as opened:
        return "\n".join(verify_proofs(opened))


FORGED: dict[str, Callable[[Any], object]] = {
    "a derivation where the recipe derives steps": lambda told: told.pop("derivation"),
    "expected a certificate of derived steps that holds, got the certificate tells": lambda told: told["derivation"][
        "certificate"
    ]["conditions"].pop("along time"),
    "results read": lambda told: told["derivation"]["certificate"]["conditions"]["bounded look-ahead"].clear(),
    "other cached values": lambda told: told["derivation"]["certificate"]["conditions"]["cached values stay"].clear(),
    "expected a certificate of derived steps that holds, got the part of": lambda told: told["derivation"][
        "certificate"
    ]["values"][0].update(value=told["derivation"]["certificate"]["values"][-1]["value"]),
    "another 'proofs/net.whole.onnx'": lambda told: told["derivation"]["graphs"]["whole"].update(sha256="0" * 64),
}


TEXT_DATA = f"""
import numpy as np

def streams():
    random = np.random.default_rng(0)
    while True:
        text = random.integers(0, {LABELS}, (1, int(random.integers(1, {LETTERS + 1}))))
        yield [{{"text": text, "tokens": random.integers(0, {LABELS}, (1, n))}} for n in (6, *[1] * 12)]
"""


@pytest.mark.slow
def test_a_text_before_the_frames_is_padded_row_by_row(tmp_path: Path) -> None:
    drawing = Drawing(positions="rotary", groups=1, text="named")
    made = project(tmp_path, drawing)
    made.write("tokens.py", TEXT_DATA)
    recipe = copy.deepcopy(RECIPE)
    net = recipe["graphs"]["net"]  # type: ignore[index]
    net["inputs"]["text"] = {"shape": ["batch", "letters"], "dtype": "int64", "range": [0, LABELS - 1]}
    net["axes"]["letters"] = {"buckets": [2, LETTERS], "length_input": "letters_length"}
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    tokens = np.random.default_rng(5).integers(0, LABELS, (1, WINDOW - 1))
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(tmp_path / "bundle")
        for letters in (1, 2, 4):
            text = tokens[:, :letters]
            expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens, "text": text})[0]
            with model.open_stream() as stream:
                for at in range(0, 15, 3):
                    got = stream.push({"text": text, "tokens": tokens[:, at : at + 3]})["scores"]
                    assert np.allclose(got, expected[:, at : at + 3], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("local", ["conv", "lstm"])
def test_an_encoder_answers_a_hundred_chunks_as_the_whole_utterance(tmp_path: Path, local: str) -> None:
    drawing = Drawing(positions="sinusoid", mask="band", local=local, layers=2)
    made, recipe = project(tmp_path, drawing), copy.deepcopy(RECIPE)
    net = recipe["graphs"]["net"]  # type: ignore[index]
    net["axes"]["time"]["buckets"] = [4]
    net["derive_steps"]["window"] = 400
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    made.write("tokens.py", DATA.replace("(6, *[1] * 12)", "(4, 2, *[3] * 12)"))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    random = np.random.default_rng(5)
    lengths = [int(random.integers(1, 5)) for _ in range(100)]
    tokens = random.integers(0, LABELS, (1, sum(lengths)))
    expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens})[0]
    with runtime_lite.Runtime() as runtime, runtime.load(tmp_path / "bundle").open_stream() as stream:
        at = 0
        for length in lengths:
            got = stream.push({"tokens": tokens[:, at : at + length]})["scores"]
            assert np.allclose(got, expected[:, at : at + length], atol=1e-4)
            at += length


CHUNK = 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("positions", "local", "chunks"),
    [("rotary", "", 100), ("rotary", "conv", 100), ("moved", "conv", LONGEST // CHUNK)],
)
def test_an_encoder_that_looks_ahead_within_chunks_answers_chunk_by_chunk(
    tmp_path: Path, positions: str, local: str, chunks: int
) -> None:
    drawing = Drawing(positions=positions, mask=CHUNKED, width=CHUNK, local=local, layers=2)
    made, recipe = project(tmp_path, drawing), copy.deepcopy(RECIPE)
    net = recipe["graphs"]["net"]  # type: ignore[index]
    net["axes"]["time"]["buckets"] = [CHUNK, 2 * CHUNK]
    net["derive_steps"] |= {"window": chunks * CHUNK, "chunk": CHUNK}
    calls = min(10, chunks - 3)
    recipe["gates"]["parity"]["net"]["chained_steps"] = calls  # type: ignore[index]
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    made.write("tokens.py", DATA.replace("(6, *[1] * 12)", f"(4, 8, *[4] * {calls})"))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    (told,) = (each["detail"] for each in ended.report["stages"] if each["stage"] == "capture")
    assert "which look ahead by up to 3 frames of their own chunk" in told
    tokens = np.random.default_rng(5).integers(0, LABELS, (1, chunks * CHUNK - 1))
    expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens})[0]
    with runtime_lite.Runtime() as runtime, (model := runtime.load(tmp_path / "bundle")).open_stream() as stream:
        for at in range(0, tokens.shape[1], CHUNK):
            got = stream.push({"tokens": tokens[:, at : at + CHUNK]})["scores"]
            assert np.allclose(got, expected[:, at : at + CHUNK], atol=1e-4)
        assert len(list(bench_model(model, runs=2, warm_up_runs=0))) == 4
        with pytest.raises(BadInput, match=f"whole chunks of {CHUNK} frames before this one, got {chunks * CHUNK - 1}"):
            stream.push({"tokens": tokens[:, :1]})


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rotary", "bucket_bias"])
def test_a_sliding_mask_lets_streams_go_on_without_end(tmp_path: Path, positions: str) -> None:
    drawing = Drawing(positions=positions, mask="band", width=CHUNK, groups=1, layers=2)
    made, recipe = project(tmp_path, drawing), copy.deepcopy(RECIPE)
    net = recipe["graphs"]["net"]  # type: ignore[index]
    net["axes"]["time"]["buckets"] = [1, 2 * CHUNK]
    net["derive_steps"] |= {"window": 5 * CHUNK, "forget": True}
    recipe["gates"]["parity"]["net"]["chained_steps"] = 30  # type: ignore[index]
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    made.write("tokens.py", DATA.replace("(6, *[1] * 12)", "(4, 8, *[4] * 8, *[1] * 20)"))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    (told,) = (each["detail"] for each in ended.report["stages"] if each["stage"] == "capture")
    assert "; streams go on without end, certificate of" in told
    tokens = np.random.default_rng(5).integers(0, LABELS, (2, 25 * CHUNK))
    expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens})[0]
    with runtime_lite.Runtime() as runtime, (model := runtime.load(tmp_path / "bundle")).open_stream() as stream:
        record = model.bundle.manifest.graphs["net"]
        assert (record.caches, [state.dtype for state in record.states if state.shape == ("batch",)]) == ((), ["int64"])
        at = 0
        for length in (5, 1, 8, 2, 3, 4, 1, 1, 7, *[8] * 8):
            got = stream.push({"tokens": tokens[:1, at : at + length]})["scores"]
            assert np.allclose(got, expected[:1, at : at + length], atol=1e-5)
            at += length
        with model.open_stream() as younger:  # rows of one run are streams of different ages
            for start in range(at, 25 * CHUNK - 1):
                tickets = [stream.submit({"tokens": tokens[:1, start : start + 1]}),
                           younger.submit({"tokens": tokens[1:, start - at : start - at + 1]})]  # fmt: skip
                older, newer = (ticket.result()["scores"] for ticket in tickets)
                assert np.allclose(older, expected[:1, start : start + 1], atol=1e-5)
                assert np.allclose(newer, expected[1:, start - at : start - at + 1], atol=1e-5)


@pytest.mark.slow
def test_what_a_sliding_mask_no_longer_shows_is_forgotten(tmp_path: Path) -> None:
    drawing = Drawing(positions="rotary", mask=CHUNKED, width=CHUNK, groups=1, layers=2)
    made, recipe = project(tmp_path, drawing), copy.deepcopy(RECIPE)
    net = recipe["graphs"]["net"]  # type: ignore[index]
    net["axes"]["time"]["buckets"] = [CHUNK, 2 * CHUNK]
    net["derive_steps"] |= {"window": 12 * CHUNK, "chunk": drawing.chunk, "forget": True}
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    made.write("tokens.py", DATA.replace("(6, *[1] * 12)", "(4, 8, *[4] * 8)"))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    tokens = np.random.default_rng(5).integers(0, LABELS, (1, 12 * CHUNK))
    expected = session(whole_graph(drawing)).run(["scores"], {"tokens": tokens})[0]
    lengths = [4, 8, *[4] * 9]
    with runtime_lite.Runtime() as runtime, (model := runtime.load(tmp_path / "bundle")).open_stream() as stream:
        shapes = [state.shape for state in model.bundle.manifest.graphs["net"].states]
        assert [shape for shape in shapes if 12 * CHUNK in shape] == [("batch", 12 * CHUNK)]
        at = 0
        for length in lengths:
            got = stream.push({"tokens": tokens[:, at : at + length]})["scores"]
            assert np.allclose(got, expected[:, at : at + length], atol=1e-5)
            at += length
        assert at == tokens.shape[1]


def test_what_is_no_stream_is_refused_at_the_front_door(tmp_path: Path) -> None:
    ended = project(tmp_path, Drawing(spoiler="no_mask")).build(recipe="whole.yaml")
    assert ended.code == 3
    assert "reads all frames of the sequence" in ended.message
    assert "op Softmax" in ended.message


def spec() -> Graph:
    return Graph(
        source=Source(onnx="whole.onnx"),
        inputs={"tokens": Input(shape=("batch", "time"), dtype="int64")},
        outputs=("scores",),
        axes={"batch": Axis(buckets=(1, 2)), "time": Axis(buckets=(1, 6), length_input="time_length")},
        derive_steps=DeriveSteps(along="time", window=WINDOW),
        passes=(),
    )


def test_buckets_hold_whole_chunks() -> None:
    with pytest.raises(ValueError, match="buckets of 'time' that are multiples of 4, the frames of a chunk, got 1"):
        Graph.model_validate({**spec().model_dump(), "derive_steps": {"along": "time", "window": WINDOW, "chunk": 4}})


def test_the_recipe_gets_the_caches_that_were_found() -> None:
    derived = derived_model(whole_graph(Drawing()), "net", spec())
    found = with_caches(spec(), derived.model, derived.certificate)
    assert cache_axis_name(spec()) == "past"
    assert list(found.inputs) == ["tokens", "cache_00", "cache_01"]
    assert found.inputs["cache_01"].shape == ("batch", 2, "past", 4)
    assert (found.inputs["cache_01"].state, found.outputs[-1]) == ("next_cache_01", "next_cache_01")
    assert found.axes["past"].window == WINDOW
    assert [str(value.name) for value in derived.whole.graph.outputs] == list(found.outputs)


def test_a_certificate_that_the_checker_rejects_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.proof.derivation.judging.reach_of", lambda support, chunk: Reach(-9, 0))
    with pytest.raises(GateFailed, match="expected a certificate that holds"):
        derived_model(whole_graph(Drawing(spoiler="ahead")), "net", spec())


def test_a_prefix_that_a_call_may_cut_is_refused() -> None:
    with pytest.raises(Refused, match=r"op Softmax.*the first 4 frames read each other"):
        derived_model(whole_graph(Drawing(mask="prefix", width=4)), "net", spec())
