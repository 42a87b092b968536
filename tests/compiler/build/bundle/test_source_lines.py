"""Nothing that ships names a line of the model's source where the recipe says so; what is proved stays proved."""

import os
import re
from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.build.bundle.proof_files import Derivation, Proof
from compiler.build.bundle.source_lines import built_without_lines, derivation_without_lines, proof_without_lines
from compiler.graph import model as graphs
from compiler.graph.runners.structure import split
from compiler.graph.stages import Lowered
from compiler.targets.base import Built, Emitted
from tests.kit.graphs import parse
from tests.kit.models import project as kit
from tests.kit.models.project import Project

LINE = re.compile(rb"tiny\.py:\d")
BRANCHES = """(float[2] x, bool[1] flag) => (float[2] y) {
    z = Relu(x)
    y = If (flag) <then_branch = yes () => (float[2] a) { a = Neg(z) },
                   else_branch = no () => (float[2] b) { b = Abs(z) }>
}"""


def with_branches() -> ir.Model:
    """A graph whose nodes all name a line, those of branches, too."""
    model = parse(BRANCHES)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        node.metadata_props[graphs.SOURCE_KEY] = "tiny.py:7 in forward: if flag:"
        node.metadata_props[graphs.PASS_KEY] = "some_pass"
    return model


def test_files_of_graphs_lose_their_lines_and_nothing_else() -> None:
    model = with_branches()
    lowered, content = Lowered("net", model), split(model).content
    built = Built((Emitted({}, "graphs/net.onnx", (), lowered),), {"graphs/net.onnx": content, "plan.json": b"{}"}, {})
    assert len(LINE.findall(content)) == 4
    files = built_without_lines(built).files
    assert files["plan.json"] == b"{}"
    assert LINE.search(bytes(files["graphs/net.onnx"])) is None
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        del node.metadata_props[graphs.SOURCE_KEY]
    assert files["graphs/net.onnx"] == split(model).content


def test_proofs_lose_the_lines_of_graphs_and_records_alone() -> None:
    graph = split(with_branches())
    steps = {"records": [{"node": "z_relu", "source": "tiny.py:1 in forward: Relu"}], "length_inputs": {"source": "n"}}
    bare = proof_without_lines(Proof("pad_axes", (steps, {"kind": "once"}), graph, graph, {}))
    assert bare.records == (
        {"records": [{"node": "z_relu", "source": ""}], "length_inputs": {"source": "n"}},
        {"kind": "once"},
    )
    derivation = derivation_without_lines(Derivation(graph, graph, {}))
    for structure in (bare.before, bare.after, derivation.whole, derivation.steps):
        assert LINE.search(structure.content) is None
    assert len(LINE.findall(graph.content)) == 4, "the build goes on to explain failures by them"


def lines_of_the_model() -> list[bytes]:
    """Lines of the recogniser's source that do something."""
    text = Path(kit.HERE, "tiny_asr.py").read_bytes()
    return [line.strip() for line in text.splitlines() if b"self." in line and b"nn." not in line]


def files_that_name(folder: Path, texts: list[bytes]) -> set[str]:
    """What lies in a folder and holds one of some texts, itself or somewhere below."""
    return {
        path.relative_to(folder).parts[0]
        for path in folder.rglob("*")
        if path.is_file() and any(text in path.read_bytes() for text in texts)
    }


def test_lines_ship_unless_the_recipe_leaves_them_out(shared: Project) -> None:
    bundle = shared.folder / "bundle"
    assert files_that_name(bundle, lines_of_the_model()) == {"certificates", "graphs", "proofs"}
    assert files_that_name(bundle, [os.fsencode(shared.folder)]) == set(), "folders of the machine do not"


@pytest.mark.slow
def test_a_bundle_without_lines_holds_none_and_its_proofs_replay(project: Project) -> None:
    ended = project.build("--set", "source_lines=false", out="bare")
    assert ended.code == 0, ended.err
    told = [*lines_of_the_model(), b"tiny_asr.py", b"in forward"]
    assert files_that_name(project.folder / "bare", told) == set()
    replayed = project.run("verify", "bare")
    assert replayed.code == 0, replayed.err
    assert "steps replayed, the manifest follows from it; 1 graph files follow from it byte for byte" in replayed.out
