"""A bundle whose certificate does not hold is refused, also when its author has changed every hash to fit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from compiler.build.bundle.replay_proofs import unseen_words, verify_proofs
from runtime_lite import BundleRefused, Runtime, read_bundle
from tests.attacks.edits import graph_of
from tests.kit.models.project import Project
from tests.runtime_lite.bundles import edit_manifest, replace_hashed, rewrite_contracts

CERTIFICATE = "certificates/net.json"
Edit = Callable[[Any], object]


@pytest.fixture
def bundle(shared: Project, tmp_path: Path) -> Path:
    """A windowed stream, built."""
    return Path(shutil.copytree(shared.folder / "stream", tmp_path / "bundle"))


def replayed(bundle: Path) -> str:
    with read_bundle(bundle) as opened:
        return "\n".join(verify_proofs(opened))


def refusal(bundle: Path) -> str:
    rewrite_contracts(bundle)
    with Runtime() as runtime:
        runtime.load(bundle)  # every hash and contract fits: only the proofs can tell
    with pytest.raises(BundleRefused) as refused:
        replayed(bundle)
    message = str(refused.value)
    assert ": expected " in message and "; do not use the bundle" in message
    return message


def change(bundle: Path, edit: Edit) -> None:
    """Edit the certificate."""
    content = json.loads((bundle / CERTIFICATE).read_bytes())
    edited = edit(content)
    replace_hashed(bundle, CERTIFICATE, json.dumps(content if edited is None else edited).encode())


def change_graph(bundle: Path, side: str, edit: Callable[[onnx.ModelProto], object]) -> None:
    """Edit a graph of the proof, and its hash in the certificate."""
    content = json.loads((bundle / CERTIFICATE).read_bytes())
    named = content["records"][0]["graphs"][side]
    model = onnx.load(bundle / named["file"], load_external_data=False)
    edit(model)
    replace_hashed(bundle, named["file"], model.SerializeToString())
    named["sha256"] = json.loads((bundle / "manifest.json").read_bytes())["files"][named["file"]]["sha256"]
    replace_hashed(bundle, CERTIFICATE, json.dumps(content).encode())


def proof(content: Any) -> Any:
    return content["records"][0]


def test_a_built_bundle_is_replayed_and_says_what_it_cannot_show(bundle: Path) -> None:
    said = replayed(bundle)
    assert "steps replayed, the manifest follows from it; 1 graph files follow from it byte for byte" in said
    assert "not checkable here: that the graph before the proof is the original model, and its weights" in said


def test_the_front_door_replays_them(shared: Project) -> None:
    ended = shared.run("verify", "stream")
    assert ended.code == 0 and "net: certificate of" in ended.out


def test_a_changed_certificate_does_not_load(bundle: Path) -> None:
    replace_hashed(bundle, CERTIFICATE, b"{}")
    with Runtime() as runtime, pytest.raises(BundleRefused, match=r"what the graph was built for \(certificate is"):
        runtime.load(bundle)


def drop_facts(content: Any) -> None:
    for record in proof(content)["records"]:
        record["in"] = [None for _ in record["in"]]


def drop_inputs(content: Any) -> None:
    for record in proof(content)["records"]:
        record.update({"inputs": [], "in": [], "in_shapes": []})


def set_graphs(content: Any, before: str, after: str) -> None:
    named = proof(content)["graphs"]
    proof(content)["graphs"] = {"before": named[before], "after": named[after]}


def swap_outputs(content: Any) -> None:
    records = proof(content)["records"]
    records[0]["out"], records[-1]["out"] = records[-1]["out"], records[0]["out"]


CERTIFICATES: dict[str, tuple[Edit, str]] = {
    "empty": (lambda c: {}, "a certificate with 'graph' and 'records'"),
    "a list": (lambda c: [], "a certificate with 'graph' and 'records'"),
    "no records": (lambda c: c.update(records=[]), "a proof of the claims in the manifest, got none"),
    "records of no shape": (lambda c: c.update(records=[{}]), "a certificate as a build writes it"),
    "records as text": (lambda c: c.update(records="x"), "a certificate with 'graph' and 'records'"),
    "foreign": (lambda c: c.update(graph="other"), "a certificate of graph 'net', got one of 'other'"),
    "no steps": (lambda c: proof(c).update(records=[]), "has no record"),
    "truncated": (lambda c: proof(c).update(records=proof(c)["records"][:-1]), "has no record"),
    "first step dropped": (lambda c: proof(c).update(records=proof(c)["records"][1:]), ""),
    "reordered": (lambda c: proof(c)["records"].reverse(), ""),
    "steps doubled": (lambda c: proof(c)["records"].append(proof(c)["records"][0]), "two records speak of one node"),
    "swapped facts": (swap_outputs, ""),
    "facts dropped": (drop_facts, "says nothing of"),
    "inputs dropped": (drop_inputs, "does not speak of all its inputs"),
    "rows not claimed": (lambda c: proof(c).update(batch=None), ""),
    "rows under another name": (lambda c: proof(c).update(batch="other"), ""),
    "window not claimed": (lambda c: proof(c).update(sides={}), ""),
    "window on the other side": (lambda c: proof(c).update(sides={"cache": "left"}), ""),
    "longer smallest length": (lambda c: proof(c)["minimum"].update(cache=3), "caches to follow from the proof"),
    "another length input": (lambda c: proof(c)["length_inputs"].update(cache="x"), ""),
    "graphs swapped": (
        lambda c: proof(c).update(
            graphs={"before": proof(c)["graphs"]["after"], "after": proof(c)["graphs"]["before"]}
        ),
        "",
    ),
    "before and after the same": (
        lambda c: proof(c).update(graphs={"before": proof(c)["graphs"]["after"], "after": proof(c)["graphs"]["after"]}),
        "",
    ),
    "graph of another file": (
        lambda c: proof(c)["graphs"]["before"].update(file="recipe.yaml"),
        "the graph with SHA-256",
    ),
    "no states": (lambda c: proof(c).update(states=[]), "lies along a cache, and no state is named"),
    "a state of another axis": (lambda c: proof(c)["states"][0].update(axis=2), "is not its axis 2"),
    "more new frames counted": (lambda c: proof(c)["states"][0].update(adds="max(7, 2)"), "are counted"),
    "new frames counted in other words": (
        lambda c: proof(c)["states"][0].update(adds=f"{proof(c)['states'][0]['adds']} + 0"),
        "caches to follow from the proof",
    ),
    "states of one size not named": (
        lambda c: proof(c).update(replaced=[{"input": "x", "output": "y"}]),
        "a proof that these states have one size",
    ),
    "another window": (
        lambda c: proof(c)["lowered"]["caches"][0].update(step=1),
        "caches to follow from the proof",
    ),
}


@pytest.mark.parametrize("attack", CERTIFICATES)
def test_a_certificate_that_does_not_hold_is_refused(bundle: Path, attack: str) -> None:
    edit, words = CERTIFICATES[attack]
    change(bundle, edit)
    assert words in refusal(bundle)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"graph": "net", "reco'])
def test_a_certificate_that_is_no_text_is_refused(bundle: Path, content: bytes) -> None:
    replace_hashed(bundle, CERTIFICATE, content)
    assert "a certificate as a build writes it" in refusal(bundle)


def test_a_certificate_of_another_bundle_is_refused(bundle: Path, shared: Project) -> None:
    replace_hashed(bundle, CERTIFICATE, (shared.folder / "bundle" / CERTIFICATE).read_bytes())
    assert "the graph with SHA-256" in refusal(bundle)


def drop_mask(model: onnx.ModelProto) -> None:
    """Let the readers of a selection read what it selects from."""
    node = next(node for node in model.graph.node if node.op_type == "Where")
    for reader in model.graph.node:
        reader.input[:] = [node.input[1] if name == node.output[0] else name for name in reader.input]


def other_operator(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "Softmax").op_type = "LogSoftmax"


GRAPHS = {
    "mask dropped": ("after", drop_mask),
    "another operator after": ("after", other_operator),
    "another operator before": ("before", other_operator),
    "fewer nodes": ("before", lambda model: model.graph.node.pop()),
    "another axis": (
        "before",
        lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "rows"),
    ),
}


@pytest.mark.parametrize("attack", GRAPHS)
def test_a_graph_that_was_not_proved_is_refused(bundle: Path, attack: str) -> None:
    change_graph(bundle, *GRAPHS[attack])
    refusal(bundle)


def test_a_shipped_graph_that_does_not_follow_from_the_proof_is_refused(bundle: Path) -> None:
    file = "graphs/net.batch.onnx"
    model = onnx.load(bundle / file, load_external_data=False)
    drop_mask(model)
    replace_hashed(bundle, file, model.SerializeToString())
    assert f"{file} as it follows from the graph that was proved, got another content" in refusal(bundle)


def test_shipped_weights_that_differ_from_the_proof_are_refused(bundle: Path) -> None:
    content = (bundle / "graphs/net.weights").read_bytes()
    replace_hashed(bundle, "graphs/net.weights", content + bytes(64))
    assert "graphs/net.weights as it follows from the graph that was proved" in refusal(bundle)


def change_step(plain: dict[str, Any]) -> None:
    graph_of(plain)["caches"][0]["step"] += 1


def begin_with_ones(plain: dict[str, Any]) -> None:
    graph_of(plain)["states"][0]["initial"] = 1.0


def test_a_stream_that_begins_otherwise_than_it_was_proved_is_refused(bundle: Path) -> None:
    edit_manifest(bundle, begin_with_ones)
    assert "expected the states that were proved, and what each of them begins with, got" in refusal(bundle)


def forget_rows(plain: dict[str, Any]) -> None:
    graph = graph_of(plain)
    graph["rows_independent"] = False
    graph["axes"]["batch"]["buckets"] = [1]
    graph["artifacts"] = [each for each in graph["artifacts"] if each["sizes"]["batch"] == 1]


@pytest.mark.parametrize(
    ("edit", "words"), [(change_step, "caches"), (forget_rows, "axis of independent rows")], ids=["caches", "rows"]
)
def test_a_claim_that_does_not_follow_is_refused(bundle: Path, edit: Edit, words: str) -> None:
    edit_manifest(bundle, edit)
    (bundle / "costs.json").unlink()
    named = {each["file"] for each in graph_of(json.loads((bundle / "manifest.json").read_bytes()))["artifacts"]}
    for path in sorted((bundle / "graphs").glob("*.onnx")):
        if (name := path.relative_to(bundle).as_posix()) not in named:
            path.unlink()
            edit_manifest(bundle, lambda plain, name=name: plain["files"].pop(name))  # type: ignore[misc]
    assert f"the manifest's {words} to follow from the proof" in refusal(bundle)


def test_what_rounds_is_named_whether_it_is_a_pass_or_the_target() -> None:
    """A target that rounds by itself left the name out: "what  made of the proved graph"."""
    assert unseen_words(["lower_precision"], "qnn") == (
        "not checkable here: what lower_precision made of the proved graph on measured data"
    )
    assert unseen_words([], "qnn") == "not checkable here: what the rounding of qnn made of the proved graph"
