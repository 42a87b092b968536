"""What runs in a process of its own per version: our code on the genuine names and signatures.

    python -m tests.contract_tensorrt.in_child WHEEL SCRATCH ENGINE_BUNDLE

Prints JSON: `calls` that our code made and that the version has, `refused` wrong calls, `genuine` sentences.
"""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.targets.tensorrt.builder import BUILDER_NAMES, BuildRefused, build_one, configure, start_builder
from compiler.targets.tensorrt.verify import Trial
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import CudaPython, Device
from runtime_lite.executors.tensorrt_engine import NEEDED_NAMES, HostCode, make_logger, open_engine, require_names
from tests.contract_tensorrt.doubles import Checked
from tests.contract_tensorrt.genuine import import_genuine
from tests.kit import vendor


def outcome(work: Callable[[], object]) -> str:
    """How a call ends: the name of what it raises, or `accepted`."""
    try:
        work()
    except (TypeError, AttributeError, BuildRefused, EngineAbsent) as error:
        return type(error).__name__
    return "accepted"


def wrong_calls(checked: Checked, plan: dict[str, Any]) -> dict[str, str]:
    """Calls that some or all versions refuse."""
    trt: Any = checked.library
    logger = make_logger(trt)
    builder = trt.Builder(logger)
    network, config = builder.create_network(0), builder.create_builder_config()
    parser, runtime = trt.OnnxParser(network, logger), trt.Runtime(logger)
    content = builder.build_serialized_network(network, config)
    engine = runtime.deserialize_cuda_engine(content)
    context = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.STATIC)
    calls: dict[str, Callable[[], object]] = {
        "set_flag(1)": lambda: config.set_flag(1),
        "set_memory_pool_limit without pool_size": lambda: config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE),
        "set_memory_pool_limit with a text": lambda: config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, "1"),
        "create_network with a flag": lambda: builder.create_network(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED),
        "build of a number": lambda: builder.build_serialized_network(1, config),
        "builder without logger": lambda: trt.Builder(),
        "profiling_verbosity = 2": lambda: setattr(config, "profiling_verbosity", 2),
        "builder_optimization_level = '3'": lambda: setattr(config, "builder_optimization_level", "3"),
        "max_workspace_size": lambda: setattr(config, "max_workspace_size", 1),
        "deserialize of a text": lambda: runtime.deserialize_cuda_engine("text"),
        "execute_async": lambda: context.execute_async(1),
        "enqueue": lambda: context.enqueue(1),
        "execute_async_v3 without stream": lambda: context.execute_async_v3(),
        "set_tensor_address with a pointer object": lambda: context.set_tensor_address("x", None),
        "max_batch_size": lambda: builder.genuine.max_batch_size,
        "supports_model": lambda: parser.genuine.supports_model,
        "int8_calibrator": lambda: config.genuine.int8_calibrator,
        "platform_has_fast_fp16": lambda: builder.genuine.platform_has_fast_fp16,
        "device_memory_size": lambda: engine.genuine.device_memory_size,
        "the flag FP16": lambda: configure(trt, config, {**plan, "flags": ["FP16"]}),
        "the flag INT8": lambda: configure(trt, config, {**plan, "flags": ["INT8"]}),
    }
    return {name: outcome(work) for name, work in calls.items()}


def genuine_sentences(genuine: Any) -> dict[str, str]:
    """What our code says of the genuine objects, which a placeholder of the library cannot make."""
    said = {}
    for name, work in (
        ("builder", lambda: start_builder(genuine)),
        ("runtime", lambda: open_engine(genuine, b"", HostCode.LIBRARY, "engine")),
    ):
        try:
            work()
        except EngineAbsent as error:
            said[name] = str(error)
    return said


def main(wheel: Path, scratch: Path, bundle: Path) -> dict[str, Any]:
    """Everything for one version."""
    genuine = import_genuine(wheel, scratch)
    checked = Checked(genuine)
    require_names(checked.library, {**NEEDED_NAMES, **BUILDER_NAMES})
    bindings = types.ModuleType("cuda.bindings")
    vars(bindings).update(runtime=vendor.CudaRuntime(), utils=types.SimpleNamespace(get_cuda_native_handle=int))
    sys.modules.update({"cuda": types.ModuleType("cuda"), "cuda.bindings": bindings})
    sys.path.insert(0, str(vendor.write_lean_runtime(scratch)))
    steps = Trial(checked.library, CudaPython(), Device("T4", "7.5", "12.4"), bundle, scratch).run()
    plan = json.loads(next((bundle / "tensorrt").glob("*.build_plan.json")).read_text())
    unknown = {**plan["engines"][0], "graph": "graphs/unknown.onnx"}
    refusal = outcome(lambda: build_one(checked.library, bundle, plan["builder"], unknown, scratch / "no.cache"))
    return {
        "version": genuine.__version__,
        "failed": [step for step in steps if not step["ok"]],
        "steps": len(steps),
        "parser refusal": refusal,
        "calls": sorted(set(checked.calls)),
        "refused": wrong_calls(checked, plan["builder"]),
        "genuine": genuine_sentences(genuine),
    }


if __name__ == "__main__":
    found = main(*map(Path, sys.argv[1:4]))
    print(f"\n{json.dumps(found)}")
