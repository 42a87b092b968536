"""Runs Arm's toolchain in its own Python environment, on requests from `compiler.targets.toolchain`.

    python worker.py FOLDER < {"task": "version"}                                   -> version.txt
    python worker.py FOLDER < {"task": "compile", "accelerator": ..., "system_config": ..., "memory_mode": ...,
                               "precision": "int8", "programs": [...]}              -> engines/*, built.json

A program is a module of torch in float32, `module`, the graph `host` that makes its inputs, and calls to calibrate on,
`feeds`. It is quantised by Arm's quantiser, lowered to one TOSA graph, compared with the quantised module in Arm's
reference model, and compiled by Vela. Every operator has to be in the TOSA graph, and on the NPU: else `built.json`
names what is not.
"""

import csv
import importlib
import io
import itertools
import json
import math
import operator
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

ABSENT = 5

PACKAGES = ("ethos-u-vela", "executorch", "tosa-tools", "torch")

MODULES = (
    "ethosu.vela",
    "executorch.backends.arm.quantizer",
    "executorch.backends.arm.tosa.partitioner",
    "executorch.exir",
    "onnxruntime",
    "torchao",
    "tosa_reference_model",
)

COMPARED_CALLS = 12
"""Calls in which the TOSA graph is compared with the quantised module; each takes some seconds on a busy machine."""

LEAST_SCALE_16 = 2.0**-30
"""Smallest step of 16-bit integers. The vendor's default, 2**-12, leaves 12 bits to numbers up to 1."""

LEAST_AGREEMENT_DB = 45.0
"""Between the TOSA graph and the quantised module: measured from 51 dB to equality on graphs in 8 bits."""

ITEM_BYTES = {"int8": 1, "int16": 2, "int32": 4}
"""Of the integers at the border of a TOSA graph."""

VELA_S = 1800.0

CONFIG = "Arm/vela.ini"
"""The file of systems that comes with Vela."""

ESTIMATES = {"cycles": "cycles_total", "SRAM in KiB": "sram_memory_used"}
"""Columns of Vela's summary, by what a bundle calls them."""

CPU_OPERATORS = re.compile(r"CPU operators = (\d+)")


class Absent(Exception):
    """Something of the toolchain is not here."""


class Refusal(Exception):
    """The vendor does not take a program; `nodes` are those that it names."""

    def __init__(self, reason: str, nodes: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.nodes = list(nodes)


class Border(NamedTuple):
    """An input or output of the TOSA graph.

    Attributes:
        name: as the program calls it.
        scale: real number of one step.
        zero_point: integer that stands for 0.
        dtype: type of the integers.
    """

    name: str
    scale: float
    zero_point: int
    dtype: str


class Lowered(NamedTuple):
    """A TOSA graph.

    Attributes:
        tosa: the file.
        inputs: in the order of the graph.
        outputs: likewise.
    """

    tosa: bytes
    inputs: list[Border]
    outputs: list[Border]


def versions() -> dict[str, str]:
    """Return the versions that an engine depends on, by package.

    Raises:
        Absent: one is not here.
    """
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError as error:
        raise Absent(f"expected the package {error.name}, got none") from None


def load_toolchain() -> None:
    """Import what tasks use, once.

    Raises:
        Absent: something does not load.
    """
    try:
        for name in MODULES:
            importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Absent(f"expected packages that load, got {error}") from None


# Calls


class Calls:
    """Calls of streams, whose states a program carries itself.

    Args:
        program: the request.
    """

    def __init__(self, program: Mapping[str, Any]) -> None:
        """Read the recorded inputs."""
        import numpy as np
        import onnxruntime

        with np.load(program["feeds"]) as file:
            arrays = {name: file[name] for name in file.files}
        self.starts = arrays.pop("starts")
        self.feeds = {name.removeprefix("feed "): each for name, each in arrays.items() if name.startswith("feed ")}
        initial = {name.removeprefix("initial "): each for name, each in arrays.items() if name.startswith("initial ")}
        self.initial, self.states, self.inputs = initial, program["states"], program["inputs"]
        self.outputs = program["outputs"]
        self.session = onnxruntime.InferenceSession(program["host"]) if program["host"] else None

    def run(self, model: Any, count: int | None = None) -> Iterator[tuple[list[Any], list[Any]]]:
        """Run a model on every call, and yield its inputs and outputs in order.

        Args:
            model: takes a list of arrays in the order of the program, and returns one.
            count: only so many calls.
        """
        states: dict[str, Any] = {}
        for at, begins in itertools.islice(enumerate(self.starts), count):
            states = dict(self.initial) if begins else states
            full = {**{name: arrays[at] for name, arrays in self.feeds.items()}, **states}
            if self.session is not None:
                taken = {each.name: full[each.name] for each in self.session.get_inputs()}
                made = self.session.run(None, taken)
                full |= dict(zip((each.name for each in self.session.get_outputs()), made, strict=True))
            inputs = [full[name] for name in self.inputs]
            outputs = model(inputs)
            full |= dict(zip(self.outputs, outputs, strict=True))
            states = {name: full[output] for name, output in self.states.items()}
            yield inputs, outputs


# Quantising


def quantised(program: Mapping[str, Any], calls: Calls, specification: str, precision: str) -> tuple[Any, list[Any]]:
    """Return the program as a quantised module, and inputs to export it with."""
    import torch
    from executorch.backends.arm.quantizer import (
        TOSAQuantizer,
        get_symmetric_a16w8_quantization_config,
        get_symmetric_quantization_config,
    )
    from executorch.backends.arm.tosa.specification import TosaSpecification
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module = float_module(program)
    example = [torch.from_numpy(each) for each in next(calls.run(_as_arrays(module), 1))[0]]
    if join_linear_layers(module):
        module = torch.export.export(module, tuple(example)).module(check_guards=False)
    quantiser = TOSAQuantizer(TosaSpecification.create_from_string(specification))
    quantiser.set_global(
        get_symmetric_quantization_config()
        if precision == "int8"
        else get_symmetric_a16w8_quantization_config(epsilon=LEAST_SCALE_16)
    )
    prepared = prepare_pt2e(module, quantiser)
    with torch.no_grad():
        for _ in calls.run(_as_arrays(prepared)):
            pass
    tie_states(prepared, program["tied"], program)
    return convert_pt2e(prepared), example


def float_module(program: Mapping[str, Any]) -> Any:
    """Return the module of a program, in float32."""
    import torch

    return torch.export.load(program["module"]).module(check_guards=False)


def _as_arrays(module: Any) -> Any:
    """Return a function of arrays that runs a module of torch."""
    import torch

    def run(inputs: list[Any]) -> list[Any]:
        with torch.no_grad():
            return [each.numpy() for each in module(*(torch.from_numpy(each) for each in inputs))]

    return run


def join_linear_layers(module: Any) -> int:
    """Write products with constant matrices, and what is added to them, as linear layers; return how many.

    The quantiser takes the constant operand of a product for data, with one scale, and that of a layer for weights,
    with a scale for each output. A bias inside is added in 32 bits.
    """
    import torch

    graph, count = module.graph, 0
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.matmul.default:
            continue
        weight = _constant(module, node.args[1])
        if weight is None or weight.dim() != 2:
            continue
        end, bias = node, None
        if len(node.users) == 1:
            (reader,) = node.users
            if reader.target is torch.ops.aten.add.Tensor and not reader.kwargs:
                (other,) = (each for each in reader.args if each is not node)
                added = _constant(module, other)
                if added is not None and added.shape == weight.shape[1:]:
                    end, bias = reader, other
        name = f"linear_weight_{count}"
        module.register_buffer(name, weight.T.contiguous())
        with graph.inserting_before(end):
            operands = (node.args[0], graph.get_attr(name), *(() if bias is None else (bias,)))
            layer = graph.call_function(torch.ops.aten.linear.default, operands)
        layer.meta = dict(end.meta)
        end.replace_all_uses_with(layer)
        graph.erase_node(end)
        if end is not node:
            graph.erase_node(node)
        count += 1
    module.recompile()
    return count


def _constant(module: Any, node: Any) -> Any:
    """Return the tensor that a node reads from the module; None where it computes."""
    is_read = getattr(node, "op", "") == "get_attr"
    return operator.attrgetter(node.target)(module) if is_read else None


def tie_states(prepared: Any, tied: Mapping[str, str], program: Mapping[str, Any]) -> int:
    """Let the input and the output of a state have one scale, so that no call rounds it again; return how many had two.

    Args:
        prepared: a module with observers that have seen all calls.
        tied: output of a state by the input that takes it.
        program: names of inputs and outputs, in order.
    """
    from torchao.quantization.pt2e import MinMaxObserver

    nodes = list(prepared.graph.nodes)
    inputs = dict(zip(program["inputs"], (node for node in nodes if node.op == "placeholder"), strict=True))
    outputs = dict(zip(program["outputs"], nodes[-1].args[0], strict=True))
    count = 0
    for taken, given in tied.items():
        before = _observer(prepared, next(iter(inputs[taken].users), None))
        behind = _observer(prepared, outputs[given])
        if before is None or behind is None or before is behind:
            continue
        both = MinMaxObserver(
            dtype=before.dtype, qscheme=before.qscheme, quant_min=before.quant_min, quant_max=before.quant_max
        )
        both.min_val = min(before.min_val, behind.min_val)
        both.max_val = max(before.max_val, behind.max_val)
        for name, observer in list(prepared.named_modules(remove_duplicate=False)):
            if observer is before or observer is behind:
                setattr(prepared, name, both)
        count += 1
    return count


def _observer(prepared: Any, node: Any) -> Any:
    """Return the module that watches a value where a node is its call; else None."""
    return prepared.get_submodule(node.target) if getattr(node, "op", "") == "call_module" else None


# Lowering


def lowered(module: Any, example: Sequence[Any], specification: str) -> Lowered:
    """Return the TOSA graph of a quantised module.

    Raises:
        Refusal: an operator is outside of it.
    """
    import torch
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(module, tuple(example))
    try:
        edge = to_edge_transform_and_lower(exported, partitioner=[TOSAPartitioner(TosaCompileSpec(specification))])
    except Exception as error:  # the vendor's passes have no error of their own
        raise Refusal(f"{type(error).__name__}: {error}") from error
    program = edge.exported_program()
    calls = [node for node in program.graph.nodes if "call_delegate" in str(node.target)]
    outside = [node for node in program.graph.nodes if node.op == "call_function" and not _is_border(node)]
    if outside or len(calls) != 1:
        names = [(_name_of(node), str(node.target)) for node in outside]
        raise Refusal(f"{len(calls)} TOSA graphs, and {len(outside)} operators outside of them", names)
    (call,) = calls
    outputs = list(program.graph.output_node().args[0])
    tosa = getattr(program.graph_module, call.args[0].target).processed_bytes
    order = {}
    for user in call.users:
        order[user.args[1]] = user
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    given = given[len(given) - len(example) :]  # those of weights come first
    inputs = [_border_of(each, str(given.index(each.args[0]))) for each in call.args[1:]]
    ends = [_border_of(_reader(order[at]), str(outputs.index(_reader(order[at])))) for at in sorted(order)]
    return Lowered(bytes(tosa), inputs, ends)


def _reader(node: Any) -> Any:
    (reader,) = node.users
    return reader


def _is_border(node: Any) -> bool:
    text = str(node.target)
    return "call_delegate" in text or "quantize_per_tensor" in text or node.target is operator.getitem


def _border_of(node: Any, name: str) -> Border:
    """Return what a quantising or dequantising node says."""
    _, scale, zero_point, *_, dtype = node.args[:6]
    return Border(name, float(scale), int(zero_point), str(dtype).removeprefix("torch."))


def _name_of(node: Any) -> str:
    return str((node.meta.get("custom") or {}).get("node", node.name))


# Executing


def run_tosa(program: Lowered, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a TOSA graph for inputs in float32, in the orders of the graph."""
    import numpy as np
    import tosa_reference_model

    integers = [_integers(np.asarray(array), each) for array, each in zip(inputs, program.inputs, strict=True)]
    found, status = tosa_reference_model.run(program.tosa, integers)
    if status != tosa_reference_model.GraphStatus.TOSA_VALID:
        raise Refusal(f"a TOSA graph that the reference model calls {status}")
    return [
        (array.astype(np.float32) - np.float32(each.zero_point)) * np.float32(each.scale)
        for array, each in zip(found, program.outputs, strict=True)
    ]


def _integers(array: Any, border: Border) -> Any:
    import numpy as np

    bounds = np.iinfo(border.dtype)
    steps = np.round(array * np.float32(1.0 / border.scale)) + border.zero_point
    return np.clip(steps, bounds.min, bounds.max).astype(border.dtype)


# Comparing


class Agreement:
    """How far outputs in float32 are from those of another graph."""

    def __init__(self) -> None:
        """Begin without a difference."""
        self.entries = self.equal = 0
        self.worst_db = math.inf

    def add(self, found: Sequence[Any], expected: Sequence[Any]) -> None:
        """Compare the outputs of a call."""
        import numpy as np

        for got, right in zip(found, expected, strict=True):
            self.entries += right.size
            self.equal += int(np.count_nonzero(got == right))
            noise = float(np.square(got.astype(np.float64) - right).sum())
            if noise > 0.0:
                signal = float(np.square(right, dtype=np.float64).sum())
                self.worst_db = min(self.worst_db, 10.0 * math.log10(signal / noise) if signal else -math.inf)

    @property
    def words(self) -> str:
        """Return both figures in words."""
        if self.equal == self.entries:
            return f"every bit of {self.entries} numbers"
        return f"{self.worst_db:.1f} dB at least, {100.0 * self.equal / self.entries:.2f} % of numbers to the bit"


def compared(
    program: Mapping[str, Any], calls: Calls, module: Any, tosa: Lowered
) -> tuple[Agreement, dict[str, Agreement]]:
    """Compare a TOSA graph, call after call with its own states, with two modules on the same inputs.

    Args:
        program: the request.
        calls: the calls.
        module: the quantised module.
        tosa: the graph.

    Returns:
        How far it is from the quantised module, and from the module in float32, by output.

    Raises:
        Refusal: it is further away from the quantised module than rounding of single steps explains.
    """
    by_quantised, by_float = _as_arrays(module), _as_arrays(float_module(program))
    agreement, losses = Agreement(), {name: Agreement() for name in program["outputs"]}
    for inputs, outputs in calls.run(in_order(program, tosa), COMPARED_CALLS):
        agreement.add(outputs, by_quantised(inputs))
        for loss, got, right in zip(losses.values(), outputs, by_float(inputs), strict=True):
            loss.add([got], [right])
    if agreement.worst_db < LEAST_AGREEMENT_DB:
        raise Refusal(
            f"expected a TOSA graph within {LEAST_AGREEMENT_DB:g} dB of the quantised graph, got {agreement.words}"
        )
    return agreement, losses


def in_order(program: Mapping[str, Any], tosa: Lowered) -> Callable[[list[Any]], list[Any]]:
    """Return a function that executes a TOSA graph on arrays in the orders of the program."""

    def run(inputs: list[Any]) -> list[Any]:
        by_name = dict(zip(program["inputs"], inputs, strict=True))
        found = dict(
            zip(
                (each.name for each in tosa.outputs),
                run_tosa(tosa, [by_name[each.name] for each in tosa.inputs]),
                strict=True,
            )
        )
        return [found[name] for name in program["outputs"]]

    return run


# Vela


def command_stream(tosa: bytes, request: Mapping[str, Any]) -> tuple[bytes, dict[str, float]]:
    """Return what Vela makes of a TOSA graph, and its estimates by name.

    Raises:
        Refusal: it refuses the graph, or leaves operators to the CPU.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "graph.tosa").write_bytes(tosa)
        command = [
            *(sys.executable, "-m", "ethosu.vela", "graph.tosa", "--output-format", "raw", "--output-dir", "out"),
            *("--accelerator-config", request["accelerator"], "--config", CONFIG),
            *("--system-config", request["system_config"], "--memory-mode", request["memory_mode"]),
        ]
        try:
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=VELA_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Refusal(f"Vela does not end within {VELA_S:g} s") from None
        said = [" ".join(line.split()) for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        if ended.returncode < 0:
            raise Refusal(f"Vela ended by signal {-ended.returncode}")
        stream = next(folder.glob("out/*.npz"), None)
        if ended.returncode or stream is None:
            errors = [line for line in said if "rror" in line] or said or ["no reason"]
            raise Refusal(f"Vela refuses it: {errors[-1][:400]}")
        left = CPU_OPERATORS.search("\n".join(said))
        if left is None or int(left[1]):
            raise Refusal(f"Vela leaves {left[1] if left else 'an unknown number of'} operators to the CPU")
        (summary,) = folder.glob("out/*summary*.csv")
        return stream.read_bytes(), estimates_of(summary.read_text())


def estimates_of(text: str) -> dict[str, float]:
    """Return the figures of Vela's summary that a bundle reports, by name."""
    (row,) = csv.DictReader(io.StringIO(text))
    return {name: float(row[column]) for name, column in ESTIMATES.items() if row.get(column)}


def compile_program(program: Mapping[str, Any], request: Mapping[str, Any], out: pathlib.Path) -> dict[str, Any]:
    """Write the engine of a program and what belongs to it, and return its figures.

    Raises:
        Refusal: the vendor does not take it.
    """
    specification = f"TOSA-1.0+INT{'' if request['precision'] == 'int8' else '+int16'}{request['profile']}"
    calls, began = Calls(program), time.monotonic()
    seconds: dict[str, float] = {}

    def done(step: str) -> None:
        nonlocal began
        seconds[step], began = round(time.monotonic() - began, 1), time.monotonic()

    module, example = quantised(program, calls, specification, request["precision"])
    done("quantise")
    tosa = named(lowered(module, example, specification), program)
    done("lower")
    agreement, losses = compared(program, calls, module, tosa)
    done("compare")
    stream, estimates = command_stream(tosa.tosa, request)
    done("compile")
    for part, content in (
        ("engine", tosa.tosa),
        ("commands", stream),
        ("border", json.dumps({"inputs": _rows(tosa.inputs), "outputs": _rows(tosa.outputs)}, indent=1).encode()),
    ):
        (out / program[part]).parent.mkdir(exist_ok=True)
        (out / program[part]).write_bytes(content)
    return {
        "seconds": seconds,
        "agreement": agreement.words,
        "losses": {name: loss.words for name, loss in losses.items()},
        "estimates": estimates,
        "call_bytes": call_bytes(tosa, program, calls, module),
    }


def call_bytes(tosa: Lowered, program: Mapping[str, Any], calls: Calls, module: Any) -> int:
    """Return the bytes of the inputs and outputs of one call of a TOSA graph."""
    ((inputs, outputs),) = calls.run(_as_arrays(module), 1)
    entries = {name: each.size for name, each in zip(program["inputs"], inputs, strict=True)}
    entries |= {name: each.size for name, each in zip(program["outputs"], outputs, strict=True)}
    return sum(entries[each.name] * ITEM_BYTES[each.dtype] for each in (*tosa.inputs, *tosa.outputs))


def _rows(borders: Sequence[Border]) -> list[dict[str, Any]]:
    return [each._asdict() for each in borders]


def named(tosa: Lowered, program: Mapping[str, Any]) -> Lowered:
    """Return a TOSA graph with the program's names of inputs and outputs, in the place of positions."""
    inputs = [each._replace(name=program["inputs"][int(each.name)]) for each in tosa.inputs]
    outputs = [each._replace(name=program["outputs"][int(each.name)]) for each in tosa.outputs]
    return tosa._replace(inputs=inputs, outputs=outputs)


def main() -> int:
    """Do one task."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    try:
        found = versions()
        load_toolchain()
    except Absent as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return ABSENT
    if request["task"] == "version":
        (out / "version.txt").write_text(", ".join(f"{name} {version}" for name, version in found.items()))
        return 0
    refused: list[dict[str, Any]] = []
    figures: dict[str, dict[str, Any]] = {}
    for program in request["programs"]:
        try:
            figures[program["graph"]] = compile_program(program, request, out)
        except Refusal as error:
            reason = " ".join(str(error).split())[:400]
            refused.append({"graph": program["graph"], "nodes": error.nodes, "reason": reason})
    (out / "built.json").write_text(json.dumps({"versions": found, "refused": refused, "figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
