"""Qualcomm's own compiler and simulator, where their environment is installed: small graphs, and every SoC."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.stages import Lowered
from compiler.passes.fuse_gelu import FuseGelu
from compiler.targets.base import Compiled
from compiler.targets.qnn.environment import ENVIRONMENT
from compiler.targets.qnn.socs import SOCS
from compiler.targets.qnn.target import Qnn
from compiler.targets.toolchain import Toolchain
from runtime_lite.executors.toolchain_folder import toolchains_folder
from tests.compiler.targets.qnn.recipes import calibrate_on_random_caches, for_the_npu, on_integers
from tests.kit.graphs import parse
from tests.kit.models.project import Project
from tests.kit.patience import PATIENCE_S

HERE = toolchains_folder()
"""Of the checkout; builds run in folders of their own."""

pytestmark = pytest.mark.skipif(
    bool(ENVIRONMENT.fault()), reason=f"{ENVIRONMENT.fault()}; install it: {ENVIRONMENT.install}"
)

FLOAT = """(float[1,16,32] x, float[32,32] w, float[32] scale, float[32] shift) => (float[1,16,32] y) {
    product = MatMul(x, w)
    normed = LayerNormalization<axis = -1, epsilon = 1e-05>(product, scale, shift)
    y = Softmax<axis = -1>(normed)
}"""


def graph(text: str = FLOAT) -> ir.Model:
    rng = np.random.default_rng(0)
    shapes = {"w": (32, 32), "scale": (32,), "shift": (32,)}
    return parse(text, {name: rng.uniform(0.1, 0.3, shape).astype(np.float32) for name, shape in shapes.items()})


def bundle_with(folder: Path, *models: ir.Model) -> Path:
    """What lies in a bundle before its engines are built."""
    programs = [
        {"bucket": "", "graph": f"graphs/net{index}.onnx", "engine": f"engines/net{index}.onnx"}
        for index in range(len(models))
    ]
    for name in ("graphs", "qnn"):
        (folder / name).mkdir(parents=True)
    for program, model in zip(programs, models, strict=True):
        ir.save(model, folder / program["graph"])
    (folder / "qnn/net.build_plan.json").write_text(json.dumps({"programs": programs}))
    return folder


def compiled(bundle: Path, out: Path) -> Mapping[str, Compiled]:
    return Qnn(soc="SM8550").compile(bundle, out, out)


def test_two_compilations_give_the_same_bytes_wherever_the_bundle_lies(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        bundle, out = bundle_with(tmp_path / name, graph()), tmp_path / f"out of {name}"
        made = compiled(bundle, out)["qnn/net.build_plan.json"]
        assert made.built_with["soc name"] == "SM8550" and made.built_with["onnxruntime-qnn"] == "2.7.0"
        digests.add(hashlib.sha256((out / "engines/net0.onnx").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_a_node_that_the_vendor_leaves_to_the_cpu_is_named(tmp_path: Path) -> None:
    text = FLOAT.replace("y = Softmax<axis = -1>(normed)", "shares = Softmax<axis = -1>(normed)\n y = Erf(shares)")
    bundle = bundle_with(tmp_path / "bundle", graph(text))
    with pytest.raises(Refused, match=r"computes as a whole, got 1 that the vendor leaves to the CPU: y_erf \(Erf\)"):
        compiled(bundle, tmp_path / "out")


GELU = """root = Constant<value = float {1.4142135}>()  one = Constant<value = float {1.0}>()
    half = Constant<value = float {0.5}>()  q = Div(normed, root)  e = Erf(q)  a = Add(e, one)  m = Mul(normed, a)
    y = Mul(m, half)"""


def test_a_gelu_that_is_written_with_an_error_function_is_taken(tmp_path: Path) -> None:
    lowered = Lowered("net", graph(FLOAT.replace("y = Softmax<axis = -1>(normed)", GELU)))
    assert FuseGelu().apply(lowered).rewritten == 1
    assert compiled(bundle_with(tmp_path / "bundle", lowered.model), tmp_path / "out")


def test_the_recogniser_of_one_screen_runs_in_a_closed_loop_in_the_simulator(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(HERE))
    ended = for_the_npu(project).build("--strict", out="npu")
    assert ended.code == 0, ended.err
    worst = min(each["measured"] for each in ended.report["gates"] if each["gate"] == "simulator.sqnr_db")
    assert worst > 40
    assert any("2 calls again with NaN" in each["detail"] for each in ended.report["gates"])
    verified = project.run("verify", "npu")
    assert (verified.code, "in the vendor's simulator" in verified.out) == (0, True), verified.err


@pytest.mark.parametrize(
    ("precision", "least_db", "soc"), [("a16w8", 30.0, 57), ("a16w8", 30.0, 35), ("a8w8", 15.0, 35)]
)
def test_it_runs_on_integers_also_where_there_is_nothing_else(
    precision: str, least_db: float, soc: int, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(HERE))
    ended = on_integers(project, precision, least_db, soc).build("--strict", out="npu")
    assert ended.code == 0, ended.err
    measured = [each["measured"] for each in ended.report["gates"] if each["gate"] == "simulator.sqnr_db"]
    assert min(measured) > least_db
    assert any("2 calls again with NaN" in each["detail"] for each in ended.report["gates"])


def test_ranges_of_random_caches_do_not_pass(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_TOOLCHAINS", str(HERE))
    calibrate_on_random_caches(monkeypatch)
    ended = on_integers(project, "a16w8", 30.0).build("--strict", out="npu")
    assert (ended.code, (project.folder / "npu").exists()) == (4, False), ended.err


@pytest.mark.slow
@pytest.mark.parametrize("soc", SOCS, ids=lambda soc: soc.name)
def test_floating_point_is_taken_for_the_socs_that_the_list_says(soc: object, tmp_path: Path) -> None:
    bundle = bundle_with(tmp_path / "bundle", graph())
    request = {
        "task": "compile",
        "bundle": str(bundle),
        "soc": soc.number,  # type: ignore[attr-defined]
        "programs": json.loads((bundle / "qnn/net.build_plan.json").read_text())["programs"],
    }
    Toolchain(ENVIRONMENT.interpreter, ENVIRONMENT.worker, PATIENCE_S).run(request, tmp_path / "out")
    refused = json.loads((tmp_path / "out/built.json").read_text())["refused"]
    assert (refused == []) == soc.takes_float  # type: ignore[attr-defined]
