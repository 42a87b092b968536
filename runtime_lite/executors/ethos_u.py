"""Runs the TOSA graphs of one graph of a bundle in Arm's reference model, as a stand-in for an Ethos-U.

The bundle has, for every bucket, the TOSA graph that Vela has compiled, what runs on the host in front of it and behind
it as ONNX graphs, and the scales of its inputs and outputs. The reference model defines what TOSA means: its integers
are those of a device that keeps to it, at a time that says nothing of one. It lives in the environment of the vendor's
toolchain; what runs command streams on a device is the firmware's, not this runtime's.
"""

import importlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runtime_lite.errors import FRONT_DOOR, BundleRefused, EngineAbsent, InternalError, show
from runtime_lite.executors.programs import ProgramExecutor
from runtime_lite.executors.toolchain_folder import interpreter_in, toolchains_folder
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import JsonValue, refuse
from runtime_lite.format.manifest import Artifact, Engine, bucket_name
from runtime_lite.format.reader import Bundle

PACKAGE = "tosa_reference_model"

TOOLCHAIN = "ethos_u"
"""Name of the environment that has the reference model."""

INTEGERS = ("int8", "int16")

VALID = "TOSA_VALID"

SMALLEST, LARGEST = 1e-30, 1e30
"""No step is smaller or larger: both and their inverses are numbers in float32."""


def toolchain_python() -> Path:
    """Return the interpreter of the environment that has the reference model, which may not exist."""
    return interpreter_in(toolchains_folder() / TOOLCHAIN)


def absent(where: str) -> EngineAbsent:
    """Return the error of a machine that does not have the vendor's toolchain.

    Args:
        where: the bundle and the graph.
    """
    return EngineAbsent(
        f"{where}: expected Arm's reference model in {toolchains_folder() / TOOLCHAIN}, or the firmware of a device, "
        f"which runs the command stream by itself, got neither; install it: `{FRONT_DOOR} doctor --install {TOOLCHAIN}`"
    )


class Border(NamedTuple):
    """An input or output of a TOSA graph.

    Attributes:
        name: of the tensor, on the side of the host.
        scale: number that one step stands for.
        zero_point: integer that stands for 0.
        dtype: type of the integers.
    """

    name: str
    scale: float
    zero_point: int
    dtype: str

    def integers(self, array: Array) -> Array:
        """Return numbers in float32 as integers, the nearest ones, cut off at the ends."""
        bounds = np.iinfo(self.dtype)
        steps = np.round(array * np.float32(1.0 / self.scale)) + np.float32(self.zero_point)
        found: Array = np.clip(steps, bounds.min, bounds.max).astype(self.dtype)
        return found

    def numbers(self, array: Array) -> Array:
        """Return what integers stand for, in float32."""
        found: Array = (array.astype(np.float32) - np.float32(self.zero_point)) * np.float32(self.scale)
        return found


class _Program(NamedTuple):
    """What runs one bucket.

    Attributes:
        host: session of what the host computes before the device; None where that is nothing.
        tosa: the TOSA graph.
        inputs: of the TOSA graph, in order.
        outputs: likewise.
        behind: session of what the host computes of the outputs; None where that is nothing.
    """

    host: Any
    tosa: bytes
    inputs: list[Border]
    outputs: list[Border]
    behind: Any

    def known(self, inputs: Collection[str]) -> set[str]:
        """Return the names of what there is before the device runs, with those of the graph's inputs."""
        return {*inputs, *(() if self.host is None else (each.name for each in self.host.get_outputs()))}


class EthosUExecutor(ProgramExecutor[_Program]):
    """TOSA graphs of one graph, by bucket, in this process, which has the reference model.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads of the host's part.

    Attributes:
        simulates: that no device computes.

    Raises:
        EngineAbsent: the reference model or ONNX Runtime does not load.
        BundleRefused: the engines are for another accelerator than the bundle was built for.
    """

    simulates = True

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Load the reference model; no graph is opened yet."""
        super().__init__(bundle, name, threads)
        try:
            self._model, self._onnxruntime = importlib.import_module(PACKAGE), importlib.import_module("onnxruntime")
        except (ImportError, OSError) as error:
            raise EngineAbsent(
                f"{self._where}: expected the packages tosa-tools and onnxruntime, got {show(str(error))}; install them"
            ) from error
        self._plan = plan_of(bundle, self._engine)

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket; runs follow each other.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: what every output is written to, in the bucket's static shape.

        Raises:
            BundleRefused: the engine is none, or its inputs and outputs are not what the manifest says.
            InternalError: the reference model failed.
        """
        bucket = bucket_name(sizes)
        with self._lock:
            program = self._program(bucket)
            full = dict(inputs)
            try:
                full |= _computed(program.host, full)
                integers = [np.ascontiguousarray(each.integers(full[each.name])) for each in program.inputs]
                found, status = self._model.run(program.tosa, integers)
            except Exception as error:  # the libraries have no error of their own
                raise InternalError(f"{self._where}: bucket {bucket}: {show(str(error))}") from error
            if not str(status).endswith(VALID):
                raise InternalError(
                    f"{self._where}: bucket {bucket}: expected a TOSA graph that the reference model runs, got {status}"
                )
            full |= {each.name: each.numbers(array) for each, array in zip(program.outputs, found, strict=True)}
            try:
                full |= _computed(program.behind, full)
            except Exception as error:  # the library has no error of its own
                raise InternalError(f"{self._where}: bucket {bucket}: {show(str(error))}") from error
        for name, array in outputs.items():
            np.copyto(array, full[name].reshape(array.shape), casting="no")

    def _open(self, artifact: Artifact) -> _Program:
        """Open what runs a bucket.

        Raises:
            BundleRefused: a part of it is none.
        """
        engine = self._engine.files[artifact.file]
        parts = next(each for each in self._plan.key("programs").items() if each.key("engine").text() == engine)
        border_file = parts.key("border").text()
        host, behind = (parts.key(part).optional_text() for part in ("host", "behind"))
        border = JsonValue.parse(self._bundle.read_file(border_file), border_file)
        program = _Program(
            None if host is None else self._host(host),
            self._bundle.read_file(engine),
            [_border(each) for each in border.key("inputs").items()],
            [_border(each) for each in border.key("outputs").items()],
            None if behind is None else self._host(behind),
        )
        where = f"{self._bundle.path}: {border_file}"
        wanted, got = {each.name for each in self._graph.outputs}, {each.name for each in program.outputs}
        known = program.known([each.name for each in self._graph.inputs])
        read, given = _border_of_session(program.behind)
        if wanted - got - given - known or got - wanted - read:
            refuse(where, f"outputs as the manifest lists them ({show(sorted(wanted))})", show(sorted(got)))
        unknown = sorted({each.name for each in program.inputs} - known) + sorted(read - known - got)
        if unknown:
            refuse(where, "inputs that the host has", show(unknown))
        return program

    def _host(self, file: str) -> Any:
        """Return a session of the host's graph.

        Raises:
            BundleRefused: it is none.
        """
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            return self._onnxruntime.InferenceSession(
                self._bundle.read_file(file), options, providers=["CPUExecutionProvider"]
            )
        except BundleRefused:
            raise
        except Exception as error:
            raise BundleRefused(
                f"{self._bundle.path}: {file}: expected a graph for the host, got {show(str(error))}; build it again"
            ) from error


def _computed(session: Any, full: Mapping[str, Array]) -> dict[str, Array]:
    """Return what a graph of the host computes, by name; nothing without one."""
    if session is None:
        return {}
    taken = {each.name: np.ascontiguousarray(full[each.name]) for each in session.get_inputs()}
    return dict(zip((each.name for each in session.get_outputs()), session.run(None, taken), strict=True))


def _border_of_session(session: Any) -> tuple[set[str], set[str]]:
    """Return the names of a session's inputs and outputs."""
    if session is None:
        return set(), set()
    return {each.name for each in session.get_inputs()}, {each.name for each in session.get_outputs()}


def _border(value: JsonValue) -> Border:
    return Border(
        value.key("name").text(),
        value.key("scale").number(SMALLEST, LARGEST),
        value.key("zero_point").integer(-(2**15), 2**15 - 1),
        value.key("dtype").one_of(INTEGERS),
    )


def plan_of(bundle: Bundle, engine: Engine) -> JsonValue:
    """Return the plan of a graph's engines.

    Args:
        bundle: an open bundle.
        engine: engine of the graph.

    Raises:
        BundleRefused: the engines are for another accelerator or precision than the plan says.
    """
    plan = JsonValue.parse(bundle.read_file(engine.plan), engine.plan)
    for what in ("accelerator", "precision"):
        wanted, got = plan.key(what).text(), engine.built_with.get(what, "")
        if got != wanted:
            raise BundleRefused(
                f"{bundle.path}: {engine.plan}: expected engines for the {what} {wanted}, got those for {show(got)}; "
                "build the bundle again"
            )
    return plan
