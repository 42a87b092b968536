"""Graph files on OpenVINO: the same answers as the truth, and the same manners as the executor of ONNX Runtime."""

import builtins
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving.no_op import write_no_op
from runtime_lite import BadInput, Bundle, BundleRefused, EngineAbsent, ExecutorFailed, Runtime, read_bundle
from runtime_lite.errors import InternalError
from runtime_lite.executors import openvino_graph
from runtime_lite.executors.executor import make_executor
from runtime_lite.executors.openvino import OpenvinoExecutor
from runtime_lite.executors.openvino_graph import CompiledGraph
from runtime_lite.format.arrays import Array
from runtime_lite.verify import verify_model
from tests.runtime_lite.bundles import (
    STREAMING_TEXT,
    WEIGHT,
    edit_manifest,
    for_openvino,
    onnx_bytes,
    plain_graph,
    random_chunks,
    replace_graph,
    replace_hashed,
    rewrite_contracts,
    truth_of_plain,
    truth_of_stream,
    write_double_bundle,
    write_open_bundle,
    write_ragged_bundle,
)
from tests.runtime_lite.executors.fresh_outputs import poisoned_outputs, run_fresh

FILE = "graphs/plain.batch1.frames2.onnx"
ONE = {"batch": 1, "frames": 2}
FOUR = {"batch": 4, "frames": 2}

GATHER_TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
plain (float[1,2,2] x, int64[1] shift) => (float[1,2,2] y)
<float[2,2] weight = {0, 0, 0, 0}>
{
    row = Gather(weight, shift)
    y = Add(x, row)
}
"""


STRANGE_TEXT = GATHER_TEXT.replace('"" : 20', '"" : 20, "d" : 1').replace("= Add", "= d.Strange")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return for_openvino(write_double_bundle(tmp_path / "bundle"))


@pytest.fixture
def bundle(directory: Path) -> Iterator[Bundle]:
    with read_bundle(directory) as opened:
        yield opened


def feeds(rows: int) -> dict[str, Array]:
    return {"x": np.ones((rows, 2, 2), np.float32), "shift": np.zeros(rows, np.int64)}


def noise(rows: int) -> dict[str, Array]:
    return feeds(rows) | {"x": np.random.default_rng(0).standard_normal((rows, 2, 2)).astype(np.float32)}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of bundles from now on."""
    names: list[str] = []
    read_file = Bundle.read_file

    def note(self: Bundle, name: str) -> bytes:
        names.append(name)
        return read_file(self, name)

    monkeypatch.setattr(Bundle, "read_file", note)
    return names


def test_a_bundle_of_the_target_is_run_by_openvino(bundle: Bundle) -> None:
    executor = make_executor(bundle, "plain", 1)
    assert isinstance(executor, OpenvinoExecutor)
    given = noise(4)
    np.testing.assert_allclose(
        run_fresh(executor, plain_graph(), FOUR, given)["y"],
        truth_of_plain(given["x"], given["shift"]),
        rtol=0.0,
        atol=1e-5,
    )


@pytest.mark.parametrize("write", [write_double_bundle, write_ragged_bundle, write_open_bundle])
def test_recorded_outputs_come_out_again(write: Callable[[Path], Path], tmp_path: Path) -> None:
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(for_openvino(write(tmp_path / "bundle")))))
    assert comparisons and all(comparison.holds for comparison in comparisons)


def test_a_graph_is_compiled_at_its_first_use_and_kept(bundle: Bundle, read: list[str]) -> None:
    executor = OpenvinoExecutor(bundle, "plain", 1)
    assert read == []
    for rows in (1, 1, 4, 1, 4):
        run_fresh(executor, plain_graph(), {"batch": rows, "frames": 2}, feeds(rows))
    weights = "graphs/weights.bin"
    assert read == [FILE, weights, "graphs/plain.batch4.frames2.onnx", weights]


def test_buckets_that_share_a_file_share_a_compiled_graph(tmp_path: Path, read: list[str]) -> None:
    with Runtime() as runtime:
        model = runtime.load(for_openvino(write_open_bundle(tmp_path / "bundle")))
        for rows in (1, 4, 2):
            chunks = random_chunks(4, rows)
            with model.open_stream(rows=rows) as stream:
                for chunk, (expected, _) in zip(chunks, truth_of_stream(chunks), strict=True):
                    np.testing.assert_allclose(stream.push({"x": chunk})["y"], expected, rtol=0.0, atol=1e-5)
    assert read.count("graphs/weights.bin") == 1


def edited(*edits: tuple[str, str]) -> str:
    """The streaming graph, its rows open, after some replacements."""
    text = STREAMING_TEXT.format(n="n")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (STREAMING_TEXT.format(n=4), "got ('x', 'float32', [4, 3, 2])"),
        (edited(("float[n,3,2] x", "float[n,3,3] x")), "runs, got 'Conversion is failed for: Concat-"),
        (edited(("float[n,3,2] x", "float[n,f,2] x")), "got ('x', 'float32', [-1, -1, 2])"),
        (edited(("[n,3,2] x", "[n,3,2] z"), ("keys, x)", "keys, z)"), ("Add(x", "Add(z")), "got ('z', 'float32'"),
        (edited(("int64[n]", "int32[n]")), "got ('real_length', 'int32', [-1])"),
    ],
)
def test_a_file_that_is_not_what_the_manifest_lists_is_refused(tmp_path: Path, text: str, got: str) -> None:
    directory = for_openvino(write_open_bundle(tmp_path / "bundle"))
    replace_graph(directory, "graphs/streaming.batch.onnx", onnx_bytes(text))
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        runtime.load(directory).open_stream().push({"x": random_chunks(1)[0]})
    assert got in str(refusal.value), refusal.value


def test_outputs_of_other_shapes_than_the_manifest_lists_are_seen_before_a_run(tmp_path: Path) -> None:
    directory = for_openvino(write_open_bundle(tmp_path / "b"))
    text = STREAMING_TEXT.format(n="batch").replace("y = Add(projected,", "y = Add(twice,")
    text = text.replace("length = Cast", "twice = Concat<axis = 0>(projected, projected)\n    length = Cast")
    replace_graph(directory, "graphs/streaming.batch.onnx", onnx_bytes(text))
    with (
        Runtime() as runtime,
        pytest.raises(BundleRefused, match=r"the shapes that the manifest lists|takes the shapes"),
    ):
        runtime.load(directory).open_stream().push({"x": random_chunks(1)[0]})


def test_equal_feeds_give_equal_bits_in_every_compiled_graph(bundle: Bundle) -> None:
    answers = [run_fresh(OpenvinoExecutor(bundle, "plain", 1), plain_graph(), FOUR, noise(4))["y"] for _ in range(3)]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "columns first": np.asfortranarray,
    "every other place": lambda array: np.repeat(array, 2, 2)[:, :, ::2],
    "backwards": lambda array: array[:, ::-1].copy()[:, ::-1],
    "between items": lambda array: np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view("f4").reshape(array.shape),
    "repeated": lambda array: np.broadcast_to(array[:1], array.shape),
    "nobody may write": lambda array: np.frombuffer(array.tobytes(), np.float32).reshape(array.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_of_any_layout_is_read_as_what_it_is_and_never_written(bundle: Bundle, layout: str) -> None:
    executor = OpenvinoExecutor(bundle, "plain", 1)
    laid = LAYOUTS[layout](noise(4)["x"])
    dense = laid.copy()
    wanted = run_fresh(executor, plain_graph(), FOUR, {**feeds(4), "x": dense})
    got = run_fresh(executor, plain_graph(), FOUR, {**feeds(4), "x": laid})
    np.testing.assert_array_equal(got["y"], wanted["y"])
    np.testing.assert_array_equal(laid, dense)


def test_an_output_that_is_an_input_passed_on_is_written_too(tmp_path: Path) -> None:
    with read_bundle(for_openvino(write_no_op(tmp_path, width=4, stream=True))) as bundle:
        executor, graph = OpenvinoExecutor(bundle, "no_op", 1), bundle.manifest.graphs["no_op"]
        given = {name: np.full((4, 4), value, np.float32) for name, value in (("x", 1.5), ("past", 2.5))}
        outputs = run_fresh(executor, graph, {"batch": 4}, given)
    assert (outputs["y"] == 1.5).all() and (outputs["next"] == 2.5).all()
    assert not any(np.shares_memory(ours, theirs) for ours in outputs.values() for theirs in given.values())


def test_calls_of_several_threads_do_not_meet(bundle: Bundle) -> None:
    executor, wrong = OpenvinoExecutor(bundle, "plain", 1), list[str]()

    def call(number: int) -> None:
        given = feeds(4) | {"shift": np.full(4, number)}
        for _ in range(50):
            got = run_fresh(executor, plain_graph(), FOUR, given)["y"]
            if not np.allclose(got, truth_of_plain(given["x"], given["shift"]), atol=1e-5):
                wrong.append(f"{number}: {got}")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_places_of_an_earlier_run_are_not_written_again(bundle: Bundle) -> None:
    executor, places = OpenvinoExecutor(bundle, "plain", 1), poisoned_outputs(plain_graph(), ONE)
    executor.run(ONE, feeds(1), places)
    places["y"][:] = 7
    run_fresh(executor, plain_graph(), ONE, noise(1))
    assert (places["y"] == 7).all()


@pytest.mark.parametrize("index", [2**31, -(2**31) - 1, 2**40])
def test_an_integer_that_openvino_would_cut_is_the_callers_mistake(directory: Path, index: int) -> None:
    replace_graph(directory, FILE, onnx_bytes(GATHER_TEXT))
    with read_bundle(directory) as bundle:
        executor = OpenvinoExecutor(bundle, "plain", 1)
        places = poisoned_outputs(plain_graph(), ONE)
        with pytest.raises(BadInput, match=rf"integers from -2147483648 to 2147483647 in 'shift', .* got {index}"):
            executor.run(ONE, feeds(1) | {"shift": np.array([index])}, places)
        assert np.isnan(places["y"]).all()


@pytest.mark.parametrize(
    ("error", "raised"), [(MemoryError(), ExecutorFailed), (RuntimeError("a\n\nb"), InternalError)]
)
def test_a_failure_of_openvino_is_an_error_of_ours(
    bundle: Bundle, error: Exception, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = OpenvinoExecutor(bundle, "plain", 1)

    def fail(self: CompiledGraph, *given: object) -> None:
        raise error

    monkeypatch.setattr(CompiledGraph, "run", fail)
    with pytest.raises(raised, match="graph 'plain': bucket batch=1,frames=2"):
        run_fresh(executor, plain_graph(), ONE, feeds(1))


def test_closing_lets_everything_go_and_may_be_repeated(bundle: Bundle, read: list[str]) -> None:
    executor = OpenvinoExecutor(bundle, "plain", 1)
    run_fresh(executor, plain_graph(), ONE, feeds(1))
    executor.close()
    executor.close()
    assert not executor._compiled and not executor._by_bucket


# What a bundle may ask for


@pytest.mark.parametrize("options", [{}, {"precision": "float64"}, {"precision": True}])
def test_a_precision_that_there_is_not_is_refused(directory: Path, options: Mapping[str, object]) -> None:
    edit_manifest(directory, lambda plain: plain["graphs"]["plain"].update(options=dict(options)))
    rewrite_contracts(directory)
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"options.precision, one of float32, bfloat16, got"):
        runtime.load(directory)


def test_a_manifest_that_says_another_precision_than_the_graphs_is_refused(directory: Path) -> None:
    edit_manifest(directory, lambda plain: plain["graphs"]["plain"]["options"].update(precision="bfloat16"))
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"options\.precision is 'float32'"):
        runtime.load(directory)


def test_what_is_computed_in_is_always_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Mapping[str, Any]] = []
    core = openvino_graph._core()

    class Core:
        def compile_model(self, model: object, device: str, options: Mapping[str, Any]) -> Any:
            assert device == "CPU"
            told.append(options)
            return core.compile_model(model, device, options)

    monkeypatch.setattr(openvino_graph, "_core", Core)
    for precision, threads in (("float32", 1), ("bfloat16", 3)):
        with read_bundle(for_openvino(directory, precision)) as bundle:
            run_fresh(OpenvinoExecutor(bundle, "plain", threads), plain_graph(), ONE, feeds(1))
    assert [each["INFERENCE_PRECISION_HINT"] for each in told] == ["f32", "bf16"]
    assert [each["INFERENCE_NUM_THREADS"] for each in told] == [1, 3]
    assert all(each["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == 0 and each["NUM_STREAMS"] == 1 for each in told)


def test_without_the_package_it_is_said_before_anything_is_read(
    bundle: Bundle, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EngineAbsent, match=r"expected the package openvino, got .*; pip install openvino"):
        make_executor(bundle, "plain", 1)
    assert read == []


def test_openvino_is_imported_by_who_runs_such_a_bundle_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    genuine = builtins.__import__

    def note(name: str, *rest: Any, **named: Any) -> Any:
        asked.append(name)
        return genuine(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", note)
    with Runtime() as runtime:
        assert all(each.holds for each in verify_model(runtime.load(write_double_bundle(tmp_path / "b"))))
    assert not any(name.split(".")[0] == "openvino" for name in asked)


# Attacks


@pytest.mark.parametrize("location", ["secret.bin", "*/_ORT_MEM_ADDR_/*", "../weights.bin"])
def test_a_graph_reads_no_other_place(directory: Path, location: str) -> None:
    replace_graph(directory, FILE, onnx_bytes(GATHER_TEXT, location, 4096))
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"external data in \['weights.bin'\]"):
        runtime.load(directory).run(
            {"x": np.ones((1, 2, 2), np.float32), "shift": np.zeros(1, np.int64)}, graph="plain"
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (onnx_bytes(GATHER_TEXT, length=8), "runs, got"),
        (onnx_bytes(GATHER_TEXT, length=0), "external_data with its length, got none"),
        (onnx_bytes(GATHER_TEXT, offset=WEIGHT.nbytes), "external data within the 16 bytes"),
        (onnx_bytes(STRANGE_TEXT), "runs, got 'No conversion rule found for operations: d.Strange'"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_be_read_is_refused_in_one_sentence(directory: Path, content: bytes, said: str) -> None:
    replace_graph(directory, FILE, content)
    with read_bundle(directory) as bundle, pytest.raises(BundleRefused, match=said) as refusal:
        run_fresh(OpenvinoExecutor(bundle, "plain", 1), plain_graph(), ONE, feeds(1))
    message = str(refusal.value)
    assert message.isprintable() and f"{FILE}: expected " in message and "; " in message


def test_a_file_that_changes_after_the_bundle_was_opened_is_not_run(directory: Path) -> None:
    with read_bundle(directory) as bundle:
        executor = OpenvinoExecutor(bundle, "plain", 1)
        (directory / "graphs/weights.bin").write_bytes(2 * WEIGHT.tobytes()[:8])
        with pytest.raises(BundleRefused, match="altered or truncated"):
            run_fresh(executor, plain_graph(), ONE, feeds(1))
        replace_hashed(directory, "graphs/weights.bin", WEIGHT.tobytes())
