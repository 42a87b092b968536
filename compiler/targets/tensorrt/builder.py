"""Builds the engines of a bundle with TensorRT, on the machine that runs them.

    python build_engine.py [--bundle DIR] [--out DIR] [--timing-cache DIR]

Ships inside bundles as `build_engine.py`; needs numpy, tensorrt and a CUDA driver, nothing of the compiler. One code
path for TensorRT 10.9 and later and 11: what a version calls a thing is looked up by name, no precision flag is set,
because the strongly typed graph is the precision plan, and every answer of the library is looked at.

Exit codes: 0 built, 3 TensorRT refused the graph, 5 no device or no TensorRT here.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from runtime_lite.errors import EngineAbsent, show
from runtime_lite.executors.cuda import Device, probe, signal_name
from runtime_lite.executors.tensorrt_engine import import_tensorrt, keep_for_ever, make_logger, one_line, require_names
from runtime_lite.format.atomic_file import replace_file

REFUSED = 3

BUILDER_NAMES: dict[str, tuple[str, ...]] = {
    "Builder": (
        "create_network",
        "create_builder_config",
        "create_optimization_profile",
        "build_serialized_network",
    ),
    "IOptimizationProfile": ("set_shape",),
    "OnnxParser": ("parse_from_file", "supports_model_v2", "num_errors", "get_error", "set_flag"),
    "IBuilderConfig": (
        "set_flag",
        "clear_flag",
        "set_memory_pool_limit",
        "create_timing_cache",
        "set_timing_cache",
        "get_timing_cache",
        "add_optimization_profile",
        "builder_optimization_level",
        "profiling_verbosity",
        "hardware_compatibility_level",
    ),
    "MemoryPoolType": ("WORKSPACE",),
}


_CHILD = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

START_S = 300.0
"""A builder loads several hundred megabytes of libraries."""


_ENGINE_NAME = re.compile(r"engines/[A-Za-z0-9_][A-Za-z0-9_.-]*\.plan")
_GRAPH_NAME = re.compile(r"graphs/[A-Za-z0-9_][A-Za-z0-9_.-]*\.onnx")


Profile: TypeAlias = Mapping[str, Sequence[Sequence[int]]]
"""The smallest, the usual and the largest shape of each input."""


class BuildRefused(Exception):
    """TensorRT does not build the graph; the message holds its reasons."""


@dataclass(frozen=True)
class Built:
    """An engine that was built.

    Attributes:
        content: the serialised engine.
        logged: messages that the builder logged as errors, e.g. a kernel that it left out for lack of memory.
        layers: its log of the engine's layers; empty where there is none.
    """

    content: bytes
    logged: tuple[str, ...]
    layers: str = ""


def in_own_process(arguments: Sequence[str], limit_s: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Run this file with arguments in a process of its own, which the library may end.

    Raises:
        subprocess.TimeoutExpired: it takes longer than `limit_s`.
    """
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path), __file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s)


def probe_builder() -> str:
    """Start a builder in a process of its own, and return the version of TensorRT.

    Raises:
        EngineAbsent: TensorRT or its builder is not here, or starting it ended the process.
    """
    try:
        done = in_own_process(["--start"], START_S)
    except subprocess.TimeoutExpired:
        raise EngineAbsent(f"TensorRT: expected a builder, got none within {START_S:.0f} s") from None
    if done.returncode < 0:
        raise EngineAbsent(
            f"TensorRT: expected a builder that starts, got a process ended by {signal_name(done.returncode)}; "
            "install the version of TensorRT that fits the driver"
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["TensorRT: expected a builder, got none"])[-1]
        raise EngineAbsent(said.removeprefix("error: "))
    return done.stdout.strip().splitlines()[-1]


def start_builder(trt: Any) -> None:
    """Start a builder and a runtime, which loads their libraries.

    Raises:
        EngineAbsent: one of them does not start.
    """
    require_names(trt, BUILDER_NAMES)
    logger = make_logger(trt)
    try:
        builder_and_runtime = trt.Builder(logger), trt.Runtime(logger)
    except (TypeError, RuntimeError) as error:  # the binding's words for a library that returned nothing
        raise EngineAbsent(f"TensorRT: expected its libraries, got {show(str(error))}; install them") from error
    if logger.errors:
        keep_for_ever(builder_and_runtime)
        raise EngineAbsent(f"TensorRT: expected a builder that starts, got {one_line(logger.errors[0])}; see its log")


def build_one(
    trt: Any, bundle: Path, builder_plan: Mapping[str, Any], engine_plan: Mapping[str, Any], cache: Path | None
) -> Built:
    """Build the engine of one graph file.

    Args:
        trt: the library.
        bundle: folder that the plan's paths are relative to.
        builder_plan: entry `builder` of the build plan.
        engine_plan: one entry of `engines` of the build plan.
        cache: file of the timing cache, read where it exists and written afterwards; None for a builder that times
            nothing.

    Returns:
        The engine. A logged error does not make it none: the builder tries kernels, and logs those that fail; only a
        logged internal error is one.

    Raises:
        BuildRefused: the parser or the builder refuses it.
    """
    graph = bundle / str(engine_plan["graph"])
    logger = make_logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(_network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    for name in builder_plan["parser_flags"]:
        parser.set_flag(_named(trt.OnnxParserFlag, name))
    if not parser.parse_from_file(str(graph)):
        raise BuildRefused(f"{graph}: {_parser_errors(parser)}; {_unsupported(trt, graph)}")
    profiles: Sequence[Profile] = engine_plan["profiles"]
    _check_inputs(network, profiles, str(graph))
    config = builder.create_builder_config()
    configure(trt, config, builder_plan)
    for profile in profiles if len(profiles) > 1 else ():  # an engine of fixed shapes has one by itself
        _add_profile(builder, config, profile, str(graph))
    if cache is not None:
        _read_timings(config, cache)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None or logger.internal_errors:
        said = [*logger.internal_errors, *logger.errors][:5]
        raise BuildRefused(f"{graph}: expected an engine, got {'; '.join(said) or 'none'}")
    if cache is not None:
        _write_timings(config, cache)
    return Built(bytes(memoryview(serialized)), tuple(logger.errors), logger.layers)


def _read_timings(config: Any, cache: Path) -> None:
    timings = config.create_timing_cache(cache.read_bytes() if cache.is_file() else b"")
    if timings is not None and not config.set_timing_cache(timings, False):
        raise BuildRefused(f"{cache}: expected a timing cache of this device and version, got another; delete it")


def _write_timings(config: Any, cache: Path) -> None:
    measured = config.get_timing_cache()
    if measured is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(cache) as file:  # another builder may read it at this moment
            file.write(bytes(memoryview(measured.serialize())))


def configure(trt: Any, config: Any, plan: Mapping[str, Any]) -> None:
    """Set a builder config to the values of the plan; names of TensorRT are looked up, never written as numbers.

    Raises:
        BuildRefused: this version does not know a name.
    """
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(plan["workspace_bytes"]))
    config.builder_optimization_level = int(plan["optimization_level"])
    config.profiling_verbosity = _named(trt.ProfilingVerbosity, plan["profiling_verbosity"])
    config.hardware_compatibility_level = _named(trt.HardwareCompatibilityLevel, plan["hardware_compatibility"])
    for name in plan["cleared_flags"]:
        config.clear_flag(_named(trt.BuilderFlag, name))
    for name in plan["flags"]:
        config.set_flag(_named(trt.BuilderFlag, name))
    capabilities = plan.get("compute_capabilities", ())
    if capabilities:
        config.num_compute_capabilities = len(capabilities)
    for index, name in enumerate(capabilities):
        if not config.set_compute_capability(_named(trt.ComputeCapability, name), index):
            raise BuildRefused(f"expected a builder for {name}, got a refusal; take it out of the plan")


def _network_flags(trt: Any) -> int:
    """Return the flag of strong typing where it exists; version 11 has no other mode and ignores the flag."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _named(kind: Any, name: str) -> Any:
    found = getattr(kind, name, None)
    if found is None:
        raise BuildRefused(f"expected {kind.__name__}.{name}, got a version of TensorRT without it; rebuild the bundle")
    return found


def _parser_errors(parser: Any) -> str:
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    said = [f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors]
    return f"expected a graph that the parser takes, got {'; '.join(said) or 'no reason'}"


def _unsupported(trt: Any, graph: Path) -> str:
    """Return the parts of a graph that the parser does not take; a separate parser is used to ask."""
    logger = make_logger(trt)
    network = trt.Builder(logger).create_network(_network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    content = graph.read_bytes()
    if parser.supports_model_v2(content, str(graph)):
        return "it takes every operator"
    parts = [
        parser.get_subgraph_nodes(index)
        for index in range(parser.num_subgraphs)
        if not parser.is_subgraph_supported(index)
    ]
    return f"nodes that it does not take: {[list(nodes) for nodes in parts]}"


def _check_inputs(network: Any, profiles: Sequence[Profile], where: str) -> None:
    """Require that the parsed graph has the inputs of the plan, with the sizes that its profiles have in common.

    Sizes in which profiles differ are open, -1 in the parsed graph.
    """
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    found = {tensor.name: tuple(int(size) for size in tensor.shape) for tensor in inputs}
    wanted = {
        name: tuple(
            sizes[0] if len(set(sizes)) == 1 else -1
            for sizes in zip(*(profile[name][1] for profile in profiles), strict=True)
        )
        for name in profiles[0]
    }
    if found != wanted:
        raise BuildRefused(f"{where}: expected inputs {wanted}, as the build plan says, got {found}")


def _add_profile(builder: Any, config: Any, profile: Profile, where: str) -> None:
    """Give a builder config one more profile.

    Raises:
        BuildRefused: the builder does not take it.
    """
    made = builder.create_optimization_profile()
    for name, shapes in profile.items():
        made.set_shape(name, *map(tuple, shapes))
    if config.add_optimization_profile(made) < 0:
        raise BuildRefused(
            f"{where}: expected a profile {dict(profile)} to be taken, got a refusal; rebuild the bundle"
        )


def timing_cache_name(version: str, device: Device) -> str:
    """Return the file name of a timing cache, one per version of TensorRT, kind of device and driver version."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{version}_{device.name}_{device.driver}") + ".cache"


def build_all(
    trt: ModuleType, device: Device, bundle: Path, out: Path, timing_caches: Path
) -> dict[str, dict[str, Any]]:
    """Build every engine of every plan of a bundle.

    Args:
        trt: the library.
        device: the device that it builds for.
        bundle: folder of the bundle.
        out: where engines go, by the paths of the plans.
        timing_caches: folder of timing caches.

    Returns:
        By plan file: `files`, engine by graph file, and `built_with`.

    Raises:
        BuildRefused: a graph is refused, or the device is not the one that the plan is for.
        EngineAbsent: this TensorRT is older than the version that a plan needs.
    """
    version = str(trt.__version__)
    cache = timing_caches / timing_cache_name(version, device)
    built: dict[str, dict[str, Any]] = {}
    for path in sorted((bundle / "tensorrt").glob("*.build_plan.json")):
        plan = json.loads(path.read_text(encoding="utf-8"))
        wanted = plan["device"]["compute_capability"]
        if device.capability != wanted:
            raise BuildRefused(
                f"{path.name}: expected a device of compute capability {wanted}, got {device.name} of "
                f"{device.capability}; build the bundle for it (option compute_capability of the target)"
            )
        _check_version(path.name, version, str(plan["versions"]["tensorrt"]))
        files: dict[str, str] = {}
        for engine in plan["engines"]:
            _check_names(path.name, engine)
            target = out / engine["engine"]
            target.parent.mkdir(parents=True, exist_ok=True)
            engine_built = build_one(trt, bundle, plan["builder"], engine, cache)
            with replace_file(target) as file:
                file.write(engine_built.content)
            files[engine["graph"]] = engine["engine"]
            print(f"built {engine['engine']}: {len(engine_built.content):,} bytes", flush=True)
            for logged in engine_built.logged:
                print(f"  the builder logged {one_line(logged)}", flush=True)
        built[f"tensorrt/{path.name}"] = {
            "files": files,
            "built_with": {
                "tensorrt": version,
                "device": device.name,
                "compute capability": device.capability,
                "driver": device.driver,
            },
        }
    return built


def number_of(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared, e.g. `10.15.1.post1` as 10, 15, 1."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _check_version(where: str, version: str, needed: str) -> None:
    """Require that this version's parser supports the operators of the plan's graphs.

    Raises:
        EngineAbsent: this version is older than the one needed.
    """
    if number_of(version) < number_of(needed):
        raise EngineAbsent(
            f"{where}: expected TensorRT {needed} or later, which its graphs need, got {version}; install that, or "
            "export at a lower opset"
        )


def _check_names(where: str, engine: Mapping[str, Any]) -> None:
    """Require that the plan names only files of the bundle and of the folder for engines."""
    for key, pattern in (("graph", _GRAPH_NAME), ("engine", _ENGINE_NAME)):
        if not pattern.fullmatch(str(engine[key])):
            raise BuildRefused(
                f"{where}: expected a {key} inside the bundle, got {show(engine[key])}; rebuild the bundle"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the engines of the bundle that this file lies in, or of another."""
    parser = argparse.ArgumentParser(description="Build the TensorRT engines of a bundle on this machine.")
    parser.add_argument("--bundle", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--out", type=Path, default=Path("engines"), help="where the engines go (default engines)")
    parser.add_argument("--timing-cache", type=Path, default=Path(".cache/tensorrt"), help="folder of timing caches")
    parser.add_argument("--start", action="store_true", help="start a builder, say its version and end")
    options = parser.parse_args(arguments)
    try:
        if options.start:
            trt = import_tensorrt()
            start_builder(trt)
            print(trt.__version__)
            return 0
        device = probe()
        probe_builder()
        trt = import_tensorrt()
        built = build_all(trt, device, options.bundle, options.out, options.timing_cache)
    except EngineAbsent as error:
        print(f"error: {error}", file=sys.stderr)
        return EngineAbsent.exit_code
    except BuildRefused as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    options.out.mkdir(parents=True, exist_ok=True)
    with replace_file(options.out / "built.json") as file:
        file.write(json.dumps(built, sort_keys=True, indent=1).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
