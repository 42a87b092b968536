"""A double of TensorRT-RTX for processes of their own: a builder that does as an environment variable says.

It reads no graph: what it logs about layers stands in a file.
"""

from pathlib import Path

BEHAVIOUR, LAYERS = "RTX_DOUBLE", "RTX_LAYERS"
"""Environment variables: what the builder does (`crash`, `hang`, `fill`, `refuse`), and the file with its layers."""

PACKAGE = """
import os, signal, time

__version__ = "{version}"


class ILogger:
    class Severity:
        INTERNAL_ERROR, ERROR, VERBOSE = range(3)


class Named:
    STRONGLY_TYPED = 0
    WORKSPACE = DETAILED = NONE = TF32 = NATIVE_INSTANCENORM = SM75 = SM86 = object()


NetworkDefinitionCreationFlag = MemoryPoolType = ProfilingVerbosity = HardwareCompatibilityLevel = Named
BuilderFlag = OnnxParserFlag = ComputeCapability = Named


class Network:
    num_inputs = 0


class OnnxParser:
    num_errors = 0

    def __init__(self, network, logger): pass
    def set_flag(self, flag): pass
    def parse_from_file(self, path):
        if os.environ.get("RTX_DOUBLE") == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        return True

    def supports_model_v2(self, content, path): return True
    def get_error(self, index): raise IndexError


class IBuilderConfig:
    builder_optimization_level = profiling_verbosity = hardware_compatibility_level = None
    capabilities = 0

    def set_flag(self, flag): pass
    def clear_flag(self, flag): pass
    def set_memory_pool_limit(self, pool, size): pass
    def create_timing_cache(self, content): raise AssertionError("it times nothing")
    def set_timing_cache(self, cache, ignore): raise AssertionError("it times nothing")
    def get_timing_cache(self): raise AssertionError("it times nothing")
    def add_optimization_profile(self, profile): raise AssertionError("its engine has one of each size")
    def set_compute_capability(self, capability, index):
        self.capabilities += 1
        return self.capabilities <= self.num_compute_capabilities


class IOptimizationProfile:
    def set_shape(self, name, least, usual, most): pass


class Builder:
    def __init__(self, logger): self.logger = logger
    def create_network(self, flags=0): return Network()
    def create_builder_config(self): return IBuilderConfig()
    def create_optimization_profile(self): return IOptimizationProfile()

    def build_serialized_network(self, network, config):
        behaviour = os.environ.get("RTX_DOUBLE")
        if behaviour == "hang":
            time.sleep(600)
        if behaviour == "fill":
            held = [bytes(range(256)) * 4096 for _ in range(400)]
            time.sleep(600)
        if behaviour == "refuse":
            self.logger.log(ILogger.Severity.ERROR, "CHECK(op->input_layouts().size() > idx) failed.")
            return None
        self.logger.log(ILogger.Severity.VERBOSE, open(os.environ["RTX_LAYERS"]).read())
        return f"engine for {config.capabilities}".encode()
"""


def write_rtx(folder: Path, version: str = "1.7.1.116") -> Path:
    """The package, in a folder for `sys.path`."""
    (folder / "tensorrt_rtx").mkdir(parents=True)
    (folder / "tensorrt_rtx/__init__.py").write_text(PACKAGE.replace("{version}", version))
    return folder


def layer_line(
    name: str, kind: str, nodes: tuple[str, ...], reads: tuple[str, ...], holds: tuple[str, ...], writes: str
) -> str:
    """One layer as a builder logs it, its tensors of 8 times 8 entries."""

    def tensors(types: tuple[str, ...]) -> str:
        each = "{ Name: t, Dimensions: [8,8], Strides: [8,1], StrideOrder: [1,0], Datatype: %s, Format: (Linear) f }"
        return ", ".join(each % kind for kind in types)

    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {tensors(reads)}], Constants: [ {tensors(holds)}], "
        f"Outputs: [ {tensors((writes,))}], TacticName: t, StreamId: 0, "
        f"Metadata: {chr(31).join(f'[ONNX Layer: {node}]' for node in nodes)}"
    )


def layer_list(*lines: str) -> str:
    """The message that lists layers."""
    return "\n".join(["Layers:", *lines, "", "I/O Tensors:", " Name: x, IOMode: Input, DataType: Half"])
