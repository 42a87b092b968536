"""A target of a vendor that does not exist, Abacus, whose compiler and simulator need an interpreter of their own."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import SlipwayError
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Array, Lowered, Pass
from compiler.targets.base import Built, Compiled, Part, Target
from compiler.targets.static_graphs import write_static
from compiler.targets.toolchain import Toolchain
from compiler.targets.weights_file import WeightsFile
from runtime_lite.executors.executor import Executor
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Engine, bucket_name
from runtime_lite.format.reader import Bundle
from tests.example_vendor.operators import require_supported
from tests.example_vendor.split_gemm import SplitGemm

HOME = "ABACUS_PYTHON"
"""Names the interpreter that has the vendor's packages."""

SCRIPT = Path(__file__).with_name("vendor.py")
LIMIT_S = 60.0


def run(request: Mapping[str, Any], out: Path) -> None:
    """Ask the vendor's script."""
    Toolchain(Path(os.environ.get(HOME, "no abacus")), SCRIPT, LIMIT_S).run(request, out)


@dataclasses.dataclass(frozen=True)
class Abacus(Target):
    """Write static graphs and `abacus/<graph>.plan.json`; engines are for frames of `rods` rods.

    Attributes:
        rods: of the frame.
    """

    name: ClassVar[str] = "abacus"
    times_here: ClassVar[bool] = False

    rods: int = 13

    def passes(self, sizes: Mapping[str, int]) -> tuple[Pass, ...]:
        """The device has no Gemm."""
        return (*super().passes(sizes), SplitGemm())

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Lint the graphs."""
        for each in artifacts:
            require_supported(each.model, each.graph)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Write graphs, and a plan with all that the vendor's compiler is told."""
        built = write_static(self, lowered, buckets, weights=weights)
        file = f"{self.name}/{lowered.graph}.plan.json"
        programs = [program_of(emitted.lowered.model, emitted.file) for emitted in built.artifacts]
        plan = canonical_json({"name": file, "frame": f"{self.rods} rods", "programs": programs})
        engine = Engine("not built", self.absent() or "the build has not come to the engine", file, {}, {})
        return dataclasses.replace(built, files={**built.files, file: plan}, engine=engine)

    def open(self, path: Path) -> Session:
        """The simulator on the program of the graph; ONNX Runtime where the vendor is not here."""
        model = ir.external_data.load_to_model(ir.load(path))
        return session_of(model) if self.absent() else Simulator(engine_of(program_of(model, path.name)))

    def parts(self) -> tuple[Part, ...]:
        """The interpreter of the toolchain, which is asked for its version."""
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "out"
            try:
                run({"task": "version"}, out)
            except SlipwayError as error:
                return (Part("abacus toolchain", error.message, f"set {HOME} to the interpreter that has it"),)
            return (Part("abacus toolchain", (out / "version.txt").read_text()),)

    def compile(self, bundle: Path, out: Path, caches: Path) -> Mapping[str, Compiled]:
        """Run the vendor's compiler."""
        plans = sorted(str(path.resolve()) for path in (bundle / self.name).glob("*.plan.json"))
        run({"task": "compile", "plans": plans}, out)
        return {plan: Compiled(**each) for plan, each in json.loads((out / "built.json").read_text()).items()}

    def executor(self, bundle: Bundle, name: str, threads: int) -> Executor:
        """The simulator on the engines that ship."""
        return Simulated(bundle, name)


def program_of(model: ir.Model, file: str) -> dict[str, Any]:
    """A graph as the vendor's compiler reads it."""
    weights = {
        name: tensor_of(value.const_value.numpy())
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    return {
        "graph": file,
        "engine": f"engines/{Path(file).stem}.abacus",
        "weights": weights,
        "nodes": [
            [node.op_type, [str(v and v.name) for v in node.inputs], node.outputs[0].name] for node in model.graph
        ],
        "outputs": [value.name for value in model.graph.outputs],
    }


def engine_of(program: Mapping[str, Any]) -> bytes:
    """What the vendor's compiler makes of one program."""
    with tempfile.TemporaryDirectory() as scratch:
        plan = Path(scratch) / "plan.json"
        plan.write_bytes(canonical_json({"name": "", "frame": "", "programs": [program]}))
        run({"task": "compile", "plans": [str(plan)]}, Path(scratch) / "out")
        return Path(scratch, "out", program["engine"]).read_bytes()


def tensor_of(array: Array) -> dict[str, Any]:
    """A tensor as the vendor's script reads it."""
    return {"shape": list(array.shape), "values": array.ravel().tolist()}


@dataclasses.dataclass(frozen=True)
class Simulator:
    """Runs an engine call by call.

    Attributes:
        engine: its content.
    """

    engine: bytes

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """One call."""
        with tempfile.TemporaryDirectory() as scratch:
            file, out = Path(scratch) / "engine", Path(scratch) / "out"
            file.write_bytes(self.engine)
            given = {name: tensor_of(array) for name, array in feeds.items()}
            run({"task": "simulate", "engine": str(file), "feeds": given}, out)
            found = json.loads((out / "outputs.json").read_text())
        return [np.array(found[n]["values"], np.float32).reshape(found[n]["shape"]) for n in names or found]


class Simulated:
    """Engines of one graph of a bundle, by bucket, on the simulator.

    Args:
        bundle: an open bundle.
        name: graph name in it.
    """

    def __init__(self, bundle: Bundle, name: str) -> None:
        graph = bundle.manifest.graphs[name]
        assert graph.engine is not None
        files = {bucket_name(each.sizes): graph.engine.files[each.file] for each in graph.artifacts}
        self._simulators = {bucket: Simulator(bundle.read_file(file)) for bucket, file in files.items()}
        self._names = [tensor.name for tensor in graph.outputs]

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket."""
        found = self._simulators[bucket_name(sizes)].run(self._names, dict(inputs))
        for name, array in zip(self._names, found, strict=True):
            np.copyto(outputs[name], array, casting="no")

    def close(self) -> None:
        """There is nothing to close."""
