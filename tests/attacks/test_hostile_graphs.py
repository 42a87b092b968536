"""Attacks through graph files whose hashes are right: what they name, claim and contain is checked before they run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data

from runtime_lite import BundleRefused, Runtime
from tests.runtime_lite.bundles import (
    STREAMING_TEXT,
    WEIGHT,
    edit_manifest,
    onnx_bytes,
    random_chunks,
    replace_graph,
    replace_hashed,
    write_streaming_bundle,
)

GRAPH = "graphs/streaming.batch1.onnx"
TEXT = STREAMING_TEXT.format(n=1)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # a file of this name lies in the current directory, where onnxruntime would look for what is not handed over
    monkeypatch.chdir(tmp_path)
    for name in ("secret.bin", "evil.weights"):
        (tmp_path / name).write_bytes(WEIGHT.tobytes())
    return write_streaming_bundle(tmp_path / "bundle")


def stopped(directory: Path) -> str:
    """Return the sentence that stops the graph when it is first needed."""
    with Runtime() as runtime, pytest.raises(BundleRefused) as refusal:
        runtime.load(directory).run({"x": random_chunks(1)[0]})
    message = str(refusal.value)
    assert message.isprintable()
    assert f"{GRAPH}: expected " in message and ", got " in message and "; " in message
    return message


def with_proto(edit: Callable[[Any], object]) -> bytes:
    """Return the graph file after an edit of its protocol buffer."""
    proto = onnx.load_model_from_string(onnx_bytes(TEXT))
    edit(proto)
    return bytes(proto.SerializeToString())


def weight_of(proto: Any) -> Any:
    return next(tensor for tensor in proto.graph.initializer if tensor.name == "weight")


def hidden(place: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return an edit that puts an external tensor somewhere in the model."""

    def edit(proto: Any) -> None:
        tensor = place(proto)
        tensor.name, tensor.data_type = "hidden", onnx.TensorProto.FLOAT
        tensor.dims.extend([2, 2])
        tensor.raw_data = b""
        set_external_data(tensor, "secret.bin", 0, WEIGHT.nbytes)

    return edit


def constant(proto: Any) -> Any:
    node = proto.graph.node.add(op_type="Constant", output=["hidden"])
    return node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t


def in_subgraph(proto: Any) -> Any:
    node = proto.graph.node.add(op_type="If", input=["c"], output=["hidden"])
    return node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.initializer.add()


def in_function(proto: Any) -> Any:
    function = proto.functions.add(name="f", domain="d", output=["hidden"])
    return function.node.add(op_type="Constant", output=["hidden"]).attribute.add(name="value").t


def twice(proto: Any) -> None:
    entry = weight_of(proto).external_data.add()
    entry.key, entry.value = "location", "secret.bin"


def set_external(key: str, value: str) -> Callable[[Any], None]:
    def edit(proto: Any) -> None:
        entries = {entry.key: entry for entry in weight_of(proto).external_data}
        (entries.get(key) or weight_of(proto).external_data.add(key=key)).value = value

    return edit


def rename_input(proto: Any) -> None:
    proto.graph.input[0].name = "z"
    for node in proto.graph.node:
        node.input[:] = ["z" if name == "x" else name for name in node.input]


def nest(proto: Any) -> None:
    graph = proto.graph
    for _ in range(90):
        graph = graph.node.add(op_type="If").attribute.add(name="then_branch").g


def drop_weight(proto: Any) -> None:
    proto.graph.initializer.remove(weight_of(proto))


def custom_op(proto: Any) -> None:
    proto.graph.node[0].domain = "evil"
    proto.opset_import.add(domain="evil", version=1)


def dead_nodes(proto: Any, count: int, *, inside: bool = False) -> None:
    graph = proto.graph.node.add(op_type="If").attribute.add(name="then_branch").g if inside else proto.graph
    graph.node.extend(onnx.NodeProto(op_type="Relu", input=["x"], output=[f"dead_{at}"]) for at in range(count))


def constants(proto: Any) -> None:
    proto.graph.initializer.extend(onnx.TensorProto(name=f"c{at}", data_type=1) for at in range(100_001))


def billions(proto: Any) -> None:
    """Every function calls the one before twice."""
    for level in range(40):
        function = proto.functions.add(name=f"f{level}", domain="d", input=["a"], output=["c"])
        for given, made in (("a", "b"), ("b", "c")):
            function.node.add(op_type=f"f{level - 1}" if level else "Relu", input=[given], output=[made])


def huge_sparse(proto: Any) -> None:
    sparse = proto.graph.sparse_initializer.add()
    sparse.dims.append(2**40)
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32), "huge"))


def loop(trips: int | None = None, *, as_node: bool = False, around: int | None = None) -> Callable[[Any], None]:
    def edit(proto: Any) -> None:
        graph = proto.graph
        for at, count in enumerate((around, trips) if around else (trips,)):
            name = f"trips_{at}"
            tensor = onnx.numpy_helper.from_array(np.array(count or 0, np.int64), name)
            if as_node:
                node = graph.node.add(op_type="Constant", output=[name])
                node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
            elif count is not None:
                graph.initializer.append(tensor)
            node = graph.node.add(op_type="Loop", input=[name if count is not None else "", "", "x"], output=["turned"])
            graph = node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g

    return edit


ALLOWED = "expected external data in ['weights.bin'], got "
CONTENTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "weights outside the bundle": (lambda: onnx_bytes(TEXT, "../../secret.bin"), ALLOWED + "'../../secret.bin'"),
    "weights by absolute path": (lambda: onnx_bytes(TEXT, "/etc/passwd"), ALLOWED + "'/etc/passwd'"),
    "weights in the current directory": (lambda: onnx_bytes(TEXT, "secret.bin"), ALLOWED + "'secret.bin'"),
    "weights through a detour": (
        lambda: onnx_bytes(TEXT, "../graphs/weights.bin"),
        ALLOWED + "'../graphs/weights.bin'",
    ),
    "weights by another spelling": (lambda: onnx_bytes(TEXT, "./weights.bin"), ALLOWED + "'./weights.bin'"),
    "another file of the bundle": (lambda: onnx_bytes(TEXT, "streaming.batch4.onnx"), ALLOWED),
    "memory address as location": (lambda: onnx_bytes(TEXT, "*/_ORT_MEM_ADDR_/*"), ALLOWED + "'*/_ORT_MEM_ADDR_/*'"),
    "empty location": (lambda: with_proto(set_external("location", "")), ALLOWED + "''"),
    "two locations": (lambda: with_proto(twice), "expected external_data with one location and every key once"),
    "location in a constant": (lambda: with_proto(hidden(constant)), ALLOWED + "'secret.bin'"),
    "location in a subgraph": (lambda: with_proto(hidden(in_subgraph)), ALLOWED + "'secret.bin'"),
    "location in a function": (lambda: with_proto(hidden(in_function)), "a graph without functions, got some"),
    "location in a sparse tensor": (
        lambda: with_proto(hidden(lambda proto: proto.graph.sparse_initializer.add().values)),
        "a graph without sparse tensors, got some",
    ),
    "location in training info": (
        lambda: with_proto(hidden(lambda proto: proto.training_info.add().initialization.initializer.add())),
        "a graph without training steps, got some",
    ),
    "200 000 dead nodes": (lambda: with_proto(lambda proto: dead_nodes(proto, 200_000)), "at most 50000 nodes, got"),
    "readers without end": (
        lambda: with_proto(lambda proto: dead_nodes(proto, 5_000)),
        "expected at most 4096 nodes that read one value, got 5002 that read 'x'",
    ),
    "dead nodes in a subgraph": (
        lambda: with_proto(lambda proto: dead_nodes(proto, 60_000, inside=True)),
        "at most 50000 nodes, got more",
    ),
    "constants without end": (lambda: with_proto(constants), "at most 100000 constants, got more"),
    "functions that double functions": (lambda: with_proto(billions), "a graph without functions, got some"),
    "huge sparse tensor": (lambda: with_proto(huge_sparse), "a graph without sparse tensors, got some"),
    "endless loop": (lambda: with_proto(loop()), "loops with a constant number of trips, got one that may run without"),
    "loop of 2**62 trips": (lambda: with_proto(loop(2**62)), "loops of at most 1000000 trips"),
    "loop of trips in a Constant": (
        lambda: with_proto(loop(2**40, as_node=True)),
        "loops of at most 1000000 trips",
    ),
    "loops in loops": (
        lambda: with_proto(loop(2_000, around=2_000)),
        "loops of at most 1000000 trips, loops around them counted, got one of 4000000",
    ),
    "content beyond the file": (lambda: onnx_bytes(TEXT, offset=8), "expected external data within the 16 bytes of"),
    "content far beyond the file": (
        lambda: onnx_bytes(TEXT, offset=2**40),
        "expected external data within the 16 bytes",
    ),
    "negative offset": (
        lambda: with_proto(set_external("offset", "-8")),
        "expected external_data with a decimal offset, got '-8'",
    ),
    "offset overflows": (
        lambda: with_proto(set_external("offset", "9" * 30)),
        "expected external_data with a decimal offset",
    ),
    "length lies": (lambda: onnx_bytes(TEXT, length=4), "expected a graph that ONNX Runtime"),
    "dimensions lie": (
        lambda: with_proto(lambda proto: weight_of(proto).dims.__setitem__(0, 2**40)),
        "expected a graph that ONNX Runtime",
    ),
    "no weights at all": (lambda: with_proto(drop_weight), "expected a graph that ONNX Runtime"),
    "another input name": (
        lambda: with_proto(rename_input),
        "expected inputs as the manifest lists them (('x', 'tensor(float)'",
    ),
    "another bucket's graph": (
        lambda: onnx_bytes(STREAMING_TEXT.format(n=4)),
        "inputs as the manifest lists them (('x', 'tensor(float)', [1, 3, 2])), got ('x', 'tensor(float)', [4, 3, 2])",
    ),
    "dynamic graph": (lambda: onnx_bytes(STREAMING_TEXT.format(n="N")), "got ('x', 'tensor(float)', ['N', 3, 2])"),
    "fewer outputs": (
        lambda: with_proto(lambda proto: proto.graph.output.pop()),
        "expected outputs as the manifest lists them",
    ),
    "another opset": (
        lambda: with_proto(lambda proto: setattr(proto.opset_import[0], "version", 19)),
        "expected IR version 10 and opset 20, as the manifest says, got 10 and 19",
    ),
    "another IR version": (lambda: with_proto(lambda proto: setattr(proto, "ir_version", 9)), "got 9 and 20"),
    "no version": (lambda: b"", "got 0 and 0"),
    "unknown operator": (lambda: with_proto(custom_op), "expected a graph that ONNX Runtime"),
    "graphs nested without end": (lambda: with_proto(nest), "expected graphs nested at most 64 deep, got deeper ones"),
    "random bytes": (lambda: bytes(range(256)), "expected an ONNX file, got"),
    "text": (lambda: b"not a graph at all", "expected an ONNX file, got"),
    "endless number": (lambda: b"\xff" * 20, "expected an ONNX file, got a number without end"),
    "another format": (lambda: b"\x10\x00\x00\x00ORTM" + b"\0" * 64, "expected "),
}


@pytest.mark.parametrize("attack", CONTENTS)
def test_hostile_graph(directory: Path, attack: str) -> None:
    build, sentence = CONTENTS[attack]
    replace_graph(directory, GRAPH, build())
    assert sentence in stopped(directory)


def test_a_location_that_is_listed_for_another_artifact_only_is_not_reachable(directory: Path) -> None:
    edit_manifest(directory, lambda m: m["graphs"]["streaming"]["artifacts"][0].update(files=[]))
    assert "expected external data in [], got 'weights.bin'" in stopped(directory)


def test_the_files_that_run_are_the_ones_that_were_hashed(directory: Path) -> None:
    """The weights on disk are exchanged between two buckets; the second bucket refuses, nothing reads the new ones."""
    with Runtime() as runtime:
        model = runtime.load(directory)
        before = model.run({"x": random_chunks(1)[0]})["y"]
        (directory / "graphs/weights.bin").write_bytes(b"\0" * 16)
        assert (model.run({"x": random_chunks(1)[0]})["y"] == before).all()
        with pytest.raises(BundleRefused, match=r"expected 'graphs/weights\.bin' with SHA-256"):
            model.run({"x": random_chunks(1, 4)[0]})


def test_a_truncated_graph_is_refused_when_it_is_loaded(directory: Path) -> None:
    replace_hashed(directory, GRAPH, (directory / GRAPH).read_bytes()[:-3])
    assert "expected an ONNX file, got a field of" in stopped(directory)


def test_a_graph_without_its_contract_is_refused(directory: Path) -> None:
    replace_hashed(directory, GRAPH, onnx_bytes(TEXT))
    assert "expected what the graph was built for under 'slipway.contract' in its metadata" in stopped(directory)
