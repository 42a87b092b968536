"""The script that speaks for Arm's toolchain: what it does without the vendor's packages, and with stubs of them."""

import csv
import io
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import ToolchainAbsent
from compiler.graph import model as graphs
from compiler.targets.ethos_u import worker
from compiler.targets.ethos_u.environment import ENVIRONMENT
from compiler.targets.ethos_u.host_side import split_sides
from compiler.targets.ethos_u.worker import (
    Agreement,
    Border,
    Calls,
    Lowered,
    Refusal,
    call_bytes,
    command_stream,
    compared,
    estimates_of,
    join_linear_layers,
    named,
    run_tosa,
)
from compiler.targets.toolchain import Toolchain
from tests.compiler.targets.ethos_u.graphs import LENGTHS, attention
from tests.kit.patience import PATIENCE_S

REQUEST = {"accelerator": "ethos-u85-256", "system_config": "System", "memory_mode": "Memory"}

VELA = """
import os, pathlib, signal, sys
fault = os.environ.get("FAULT", "")
out = pathlib.Path("out")
out.mkdir()
if fault == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if fault == "refuses":
    print("Error: MatMul (2 x int16): not supported")
    sys.exit(1)
(out / "graph_summary_System.csv").write_text("a,cycles_total,sram_memory_used\\nx,2403,0.5\\n")
(out / "graph_vela.npz").write_bytes(" ".join(sys.argv[1:]).encode())
print("CPU operators =", 3 if fault == "cpu" else 0, "(0.0%)")
"""


@pytest.fixture
def vela(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub of Vela, where a process of this interpreter finds it."""
    (tmp_path / "packages/ethosu/vela").mkdir(parents=True)
    (tmp_path / "packages/ethosu/vela/__main__.py").write_text(VELA)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")]))


def test_an_environment_without_the_packages_is_absent(tmp_path: Path) -> None:
    toolchain = Toolchain(Path(sys.executable), ENVIRONMENT.worker, PATIENCE_S)
    with pytest.raises(ToolchainAbsent, match="expected the package ethos-u-vela, got none"):
        toolchain.run({"task": "version"}, tmp_path / "out")


def test_vela_is_told_accelerator_and_system_and_its_estimates_are_read(vela: None) -> None:
    stream, estimates = command_stream(b"TOSA", REQUEST)
    assert estimates == {"cycles": 2403.0, "SRAM in KiB": 0.5}
    for option in ("--accelerator-config ethos-u85-256", "--system-config System", "--memory-mode Memory"):
        assert option in stream.decode()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("crash", "Vela ended by signal 11"),
        ("refuses", r"Vela refuses it: Error: MatMul \(2 x int16\): not supported"),
        ("cpu", "Vela leaves 3 operators to the CPU"),
    ],
)
def test_what_vela_does_not_take_is_refused(
    fault: str, sentence: str, vela: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(Refusal, match=sentence):
        command_stream(b"TOSA", REQUEST)


def test_estimates_that_vela_leaves_out_are_left_out() -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["cycles_total", "sram_memory_used"], ["7", ""]])
    assert estimates_of(text.getvalue()) == {"cycles": 7.0}


class Layers(nn.Module):
    """Products with constant matrices, with and without a bias, and one of two computed values."""

    w: torch.Tensor
    b: torch.Tensor
    v: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("w", (4, 6)), ("b", (6,)), ("v", (6, 6))):
            self.register_buffer(name, torch.linspace(-1, 1, math.prod(shape)).reshape(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.matmul(x, self.w) + self.b
        alone = torch.matmul(wide, self.v)
        return torch.matmul(alone, wide.transpose(1, 2)) + 1.0


def test_products_with_constant_matrices_become_linear_layers() -> None:
    x = torch.linspace(-2, 2, 24).reshape(1, 6, 4)
    module = torch.export.export(Layers(), (x,)).module(check_guards=False)
    expected = module(x)
    assert join_linear_layers(module) == 2
    operators = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert (operators.count("aten.linear.default"), operators.count("aten.matmul.default")) == (2, 1)
    assert operators.count("aten.add.Tensor") == 1
    torch.testing.assert_close(module(x), expected)


def test_agreement_is_the_worst_output_of_all_calls_or_every_bit() -> None:
    ones, agreement = np.ones((2, 5), np.float32), Agreement()
    agreement.add([ones, ones], [ones, ones])
    assert agreement.words == "every bit of 20 numbers"
    other = ones.copy()
    other[0, 0] = 1.1
    agreement.add([ones, other], [ones, ones])
    assert agreement.words == "30.0 dB at least, 97.50 % of numbers to the bit"


def test_tosa_gets_integers_and_gives_numbers_under_the_names_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    status = SimpleNamespace(TOSA_VALID=0)

    def run(tosa: bytes, inputs: list[Any]) -> tuple[list[Any], int]:
        seen.extend(inputs)
        return [inputs[0]], 0 if tosa == b"TOSA" else 1

    monkeypatch.setitem(sys.modules, "tosa_reference_model", SimpleNamespace(run=run, GraphStatus=status))
    tosa = Lowered(b"TOSA", [Border("1", 0.5, 1, "int8")], [Border("0", 0.25, -1, "int8")])
    tosa = named(tosa, {"inputs": ["a", "b"], "outputs": ["c"]})
    assert (tosa.inputs[0].name, tosa.outputs[0].name) == ("b", "c")
    (found,) = run_tosa(tosa, [np.array([1.0, 1000.0, -0.26], np.float32)])
    assert (seen[0].dtype, seen[0].tolist()) == (np.int8, [3, 127, 0])
    assert found.tolist() == [1.0, 32.0, 0.25]
    with pytest.raises(Refusal, match="a TOSA graph that the reference model calls 1"):
        run_tosa(tosa._replace(tosa=b"other"), [np.zeros(3, np.float32)])


class Doubled(nn.Module):
    """Twice its input, and some more."""

    def __init__(self, more: float) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (2.0 * x + self.more,)


def test_a_tosa_graph_is_compared_with_the_quantised_module_and_with_that_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: dict[str, Any] = {"starts": np.ones(2, np.bool_), "feed x": np.ones((2, 1, 4), np.float32)}
    np.savez(tmp_path / "feeds.npz", **recorded)
    torch.export.save(torch.export.export(Doubled(0.0), (torch.ones(1, 4),)), tmp_path / "module.pt2")
    program: dict[str, Any] = {
        "module": str(tmp_path / "module.pt2"),
        "feeds": str(tmp_path / "feeds.npz"),
        "host": None,
        "states": {},
        "inputs": ["x"],
        "outputs": ["y"],
    }
    tosa = Lowered(b"TOSA", [Border("x", 0.5, 0, "int8")], [Border("y", 0.5, 0, "int16")])
    calls, quantised = Calls(program), Doubled(0.002)
    assert call_bytes(tosa, program, calls, quantised) == 4 + 2 * 4
    for more, sentence in ((0.002, ""), (0.1, "within 45 dB of the quantised graph, got 26")):
        run = worker._as_arrays(Doubled(more))
        monkeypatch.setattr(worker, "in_order", lambda program, tosa, run=run: run)
        if sentence:
            with pytest.raises(Refusal, match=sentence):
                compared(program, calls, quantised, tosa)
        else:
            agreement, losses = compared(program, calls, quantised, tosa)
            assert (agreement.words, losses["y"].words[:7]) == ("every bit of 8 numbers", "60.0 dB")


def test_calls_carry_their_states_and_begin_each_stream_anew(tmp_path: Path) -> None:
    sides = split_sides(attention(), LENGTHS)
    (tmp_path / "host.onnx").write_bytes(graphs.serialized(sides.host))
    recorded: dict[str, Any] = {
        "starts": np.array([True, False, True]),
        "feed x": np.zeros((3, 1, 4, 16), np.float32),
        "feed mask": np.ones((3, 1, 12), np.float32),
        "initial cache": np.full((1, 8, 16), 7.0, np.float32),
    }
    np.savez(tmp_path / "feeds.npz", **recorded)
    program = {
        "feeds": str(tmp_path / "feeds.npz"),
        "host": str(tmp_path / "host.onnx"),
        "states": {"cache": "next"},
        "inputs": ["x", "filled"],
        "outputs": ["y", "next"],
    }
    filled = []

    def model(inputs: list[Any]) -> list[Any]:
        filled.append(float(inputs[1].mean()))
        return [inputs[0], inputs[1] + 1.0]

    assert len(list(Calls(program).run(model))) == 3
    assert filled == [7.0, 8.0, 7.0]


def test_a_program_that_is_refused_is_told_and_the_next_one_still_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(program: dict[str, Any], request: dict[str, Any], out: Path) -> dict[str, Any]:
        if program["graph"] == "one":
            raise Refusal("2 operators\noutside", [("y_relu", "aten.relu")])
        return {"estimates": {}}

    request = {"task": "compile", "programs": [{"graph": "one"}, {"graph": "two"}]}
    monkeypatch.setattr(worker, "compile_program", compiled)
    monkeypatch.setattr(worker, "load_toolchain", lambda: None)
    monkeypatch.setattr(worker, "versions", lambda: {"vela": "5"})
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    monkeypatch.setattr(sys, "argv", ["worker.py", str(tmp_path)])
    assert worker.main() == 0
    told = json.loads((tmp_path / "built.json").read_text())
    assert told["refused"] == [{"graph": "one", "nodes": [["y_relu", "aten.relu"]], "reason": "2 operators outside"}]
    assert (told["figures"], told["versions"]) == ({"two": {"estimates": {}}}, {"vela": "5"})
