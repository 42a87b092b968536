"""Tests the builds, accuracy, latency and memory of a TensorRT bundle on a real device, and writes a report.

    python verify_t4.py [--bundle DIR] [--report FILE.json]

Ships inside bundles as `verify_t4.py`; needs numpy, tensorrt and cuda-python (or pycuda), nothing of the compiler. It
covers: the build of every engine, which layers were fused, accuracy on the recorded feeds, latency with CUDA graphs and
without, memory, reuse of the timing cache, equal bits of two contexts of one engine at work beside each other, weights
that are exchanged and exchanged back, version-compatible engines, and the copy code on the real driver. Every step is a
line of the report, with its figures or with why it was not done.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.targets.tensorrt.builder import Built, build_one, probe_builder, timing_cache_name
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import PROVIDERS, Array, Cuda, Device, open_cuda, probe
from runtime_lite.executors.tensorrt_engine import (
    HostCode,
    OpenedEngine,
    StaticEngine,
    host_code_of,
    import_tensorrt,
    open_engine,
)
from runtime_lite.format.atomic_file import replace_file

RUNS, WARM_UP_RUNS = 200, 20

ROUNDS = 50
"""Runs of two contexts beside each other."""

Step = dict[str, Any]


class Trial:
    """One bundle on one device.

    Args:
        trt: the library.
        cuda: the device, active in this thread.
        device: the driver's description of it.
        bundle: folder of the bundle.
        scratch: where engines go.
    """

    def __init__(self, trt: Any, cuda: Cuda, device: Device, bundle: Path, scratch: Path) -> None:
        self.trt, self.cuda, self.device, self.bundle, self.scratch = trt, cuda, device, bundle, scratch
        self.cache = scratch / timing_cache_name(str(trt.__version__), device)
        self.steps: list[Step] = []

    def run(self) -> list[Step]:
        """Run every step for every engine of every graph, and return the steps with their results."""
        self._step("copies", {}, self._copies)
        for path in sorted((self.bundle / "tensorrt").glob("*.build_plan.json")):
            plan = json.loads(path.read_text(encoding="utf-8"))
            recorded = self._recorded(str(plan["graph"]))
            for engine in plan["engines"]:
                self._engine(plan, engine, recorded)
        return self.steps

    def _engine(self, plan: Mapping[str, Any], engine: Mapping[str, Any], recorded: Mapping[str, Array]) -> None:
        where = {"graph": plan["graph"], "bucket": "; ".join(engine["buckets"])}
        built: list[Built] = []
        builder = plan["builder"]

        def build() -> Step:
            started = time.perf_counter()
            built.append(build_one(self.trt, self.bundle, builder, engine, self.cache))
            seconds = time.perf_counter() - started
            return {"seconds": seconds, "bytes": len(built[-1].content), "logged": list(built[-1].logged)}

        if not self._step("build", where, build):
            return
        content, host_code = built[0].content, host_code_of(builder["flags"])
        self._step("build again with the timing cache", where, build)
        self._step("layers", where, lambda: self._layers(content, host_code))
        for bucket in engine["buckets"]:
            self._bucket(content, host_code, {**where, "bucket": bucket}, recorded)
        feeds = _recorded_of(engine["buckets"][0], "feed", recorded)
        self._step("refit", where, lambda: self._refit(_with_flag(builder, "REFIT"), engine, feeds))
        compatible = _with_flag(builder, "VERSION_COMPATIBLE")
        self._step("version_compatible", where, lambda: self._variant(compatible, engine, feeds))

    def _bucket(
        self, content: bytes, host_code: HostCode, where: Mapping[str, Any], recorded: Mapping[str, Array]
    ) -> None:
        feeds, wanted = (_recorded_of(where["bucket"], kind, recorded) for kind in ("feed", "output"))
        self._step("accuracy", where, lambda: self._accuracy(content, host_code, feeds, wanted, recorded))
        self._step("latency", where, lambda: self._latency(content, host_code, feeds))
        self._step("latency with CUDA graphs", where, lambda: self._latency(content, host_code, feeds, captures=True))
        self._step("two contexts", where, lambda: self._two_contexts(content, host_code, feeds))

    def _step(self, name: str, where: Mapping[str, Any], work: Callable[[], Step]) -> bool:
        """Do one step and record its result, or the error that it raised; return whether it succeeded."""
        step: Step = {"step": name, **where}
        try:
            step |= {"ok": True, **work()}
        except Exception as error:  # noqa: BLE001  (a report of what fails is what this is for)
            step |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.steps.append(step)
        print(json.dumps(step), flush=True)
        return bool(step["ok"])

    def _recorded(self, graph: str) -> dict[str, Array]:
        """Return the recorded inputs and outputs of every bucket of a graph, at the graph's own shapes."""
        with np.load(self.bundle / "tensorrt" / f"{graph}.feeds.npz", allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}

    def _copies(self) -> Step:
        """Copy bytes to the device and back, and require that they are unchanged."""
        stream = self.cuda.stream()
        sent = self.cuda.pinned((1 << 20,), np.dtype(np.uint8))
        sent[:] = np.arange(sent.size, dtype=np.uint64).astype(np.uint8)
        back = self.cuda.pinned(sent.shape, sent.dtype)
        pointer = self.cuda.alloc(sent.nbytes)
        self.cuda.copy_to_device(pointer, sent, stream)
        self.cuda.copy_to_host(back, pointer, stream)
        self.cuda.synchronize(stream)
        self.cuda.free(pointer)
        if not np.array_equal(sent, back):
            raise ValueError("expected the bytes that were sent, got others")
        return {"provider": self.cuda.name, "bytes": int(sent.nbytes)}

    def _opened(self, content: bytes, host_code: HostCode) -> OpenedEngine:
        return open_engine(self.trt, content, host_code, "verify")

    def _context(self, opened: OpenedEngine, feeds: Mapping[str, Array], *, captures: bool = False) -> StaticEngine:
        shapes = {name: array.shape for name, array in feeds.items()}
        return StaticEngine(self.cuda, opened, captures=captures, shapes=shapes)

    def _layers(self, content: bytes, host_code: HostCode) -> Step:
        """Return the names of the engine's layers; fused attention has `mha` in its name."""
        inspector = self._opened(content, host_code).engine.create_engine_inspector()
        layers = json.loads(inspector.get_engine_information(self.trt.LayerInformationFormat.JSON)).get("Layers", [])
        names = [layer if isinstance(layer, str) else str(layer.get("Name", "")) for layer in layers]
        return {"layers": len(names), "fused_attention": [name for name in names if "mha" in name.lower()]}

    def _accuracy(
        self,
        content: bytes,
        host_code: HostCode,
        feeds: Mapping[str, Array],
        wanted: Mapping[str, Array],
        recorded: Mapping[str, Array],
    ) -> Step:
        engine = self._context(self._opened(content, host_code), feeds)
        outputs, _ = engine.run(feeds)
        engine.close()
        limit = float(recorded["tolerance"])
        worst = {name: _error(outputs[name], array) for name, array in wanted.items()}
        if not all(error <= limit for error in worst.values()):
            raise ValueError(f"expected every output within {limit:g}, got {worst}")
        return {"max_error": worst, "limit": limit}

    def _latency(
        self, content: bytes, host_code: HostCode, feeds: Mapping[str, Array], *, captures: bool = False
    ) -> Step:
        """Time runs one after the other, queued kernel by kernel or launched as a CUDA graph."""
        if captures and not self.cuda.captures:
            return {"skipped": f"{self.cuda.name} has no CUDA graphs"}
        opened = self._opened(content, host_code)
        engine = self._context(opened, feeds, captures=captures)
        device_ms, wall_ms = [], []
        for index in range(WARM_UP_RUNS + RUNS):
            started = time.perf_counter()
            _, elapsed_ms = engine.run(feeds)
            if index >= WARM_UP_RUNS:
                device_ms.append(elapsed_ms)
                wall_ms.append(1e3 * (time.perf_counter() - started))
        engine.close()
        figures = {
            f"{kind}_p{percentile}_ms": float(np.percentile(times, percentile))
            for kind, times in (("device", device_ms), ("call", wall_ms))
            for percentile in (50, 95, 99)
        }
        return {**figures, "runs": RUNS, "context_bytes": opened.device_bytes}

    def _two_contexts(self, content: bytes, host_code: HostCode, feeds: Mapping[str, Array]) -> Step:
        """Run two contexts of one engine at once, each on its own stream, and require the results of one alone."""
        opened = self._opened(content, host_code)
        contexts = [self._context(opened, feeds) for _ in range(2)]
        alone = contexts[0].run(feeds)[0]
        for _ in range(ROUNDS):
            stagings = [context.upload(feeds) for context in contexts]
            for context, staging in zip(contexts, stagings, strict=True):
                context.start(staging)
            for context, staging in zip(contexts, stagings, strict=True):
                _require_equal(context.answer(staging)[0], alone)
        for context in contexts:
            context.close()
        return {"contexts": len(contexts), "rounds": ROUNDS}

    def _refit(self, builder: Mapping[str, Any], engine: Mapping[str, Any], feeds: Mapping[str, Array]) -> Step:
        """Exchange the largest weights for zeros, which must change results, and back, which must restore them."""
        content = build_one(self.trt, self.bundle, builder, engine, self.cache).content
        opened = self._opened(content, host_code_of(builder["flags"]))
        context = self._context(opened, feeds)
        before = context.run(feeds)[0]
        weights = self._exchange(opened, engine, zeros=True)
        zeroed = context.run(feeds)[0]
        if weights and all(zeroed[name].tobytes() == array.tobytes() for name, array in before.items()):
            raise ValueError(f"expected other outputs with zeros in {weights!r}, got the same")
        self._exchange(opened, engine, zeros=False)
        _require_equal(context.run(feeds)[0], before)
        context.close()
        return {"bytes": len(content), "exchanged": weights or "nothing: the engine has no weights"}

    def _exchange(self, opened: OpenedEngine, engine: Mapping[str, Any], zeros: bool) -> str:
        """Give an engine all weights of its file, the largest as zeros if asked; return that weight's name."""
        refitter = self.trt.Refitter(opened.engine, opened.logger)
        parser = self.trt.OnnxParserRefitter(refitter, opened.logger)
        graph = str(self.bundle / str(engine["graph"]))
        opened.require(parser.refit_from_file(graph), "the weights of the graph file to be taken", "a refusal")
        prototypes = {name: refitter.get_weights_prototype(name) for name in refitter.get_all_weights()}
        if not prototypes:
            return ""
        name = max(sorted(prototypes), key=lambda weight_name: int(prototypes[weight_name].size))
        empty = np.zeros(int(prototypes[name].size), self.trt.nptype(prototypes[name].dtype))
        if zeros:  # `Weights` copies nothing: the array lives until the engine has taken it
            taken = refitter.set_named_weights(name, self.trt.Weights(empty))
            opened.require(taken, f"zeros for {name} to be taken", "a refusal")
        opened.require(refitter.refit_cuda_engine(), "an engine that takes its weights", "a refusal")
        return str(name)

    def _variant(self, builder: Mapping[str, Any], engine: Mapping[str, Any], feeds: Mapping[str, Array]) -> Step:
        """Build, open and run the engine with the given flags; return its size in bytes."""
        content = build_one(self.trt, self.bundle, builder, engine, self.cache).content
        context = self._context(self._opened(content, host_code_of(builder["flags"])), feeds)
        context.run(feeds)
        context.close()
        return {"bytes": len(content)}


def _recorded_of(bucket: str, kind: str, recorded: Mapping[str, Array]) -> dict[str, Array]:
    """Return the recorded arrays of one kind, `feed` or `output`, of a bucket, by name."""
    prefix = f"{bucket}/{kind}/"
    return {key.removeprefix(prefix): array for key, array in recorded.items() if key.startswith(prefix)}


def _with_flag(builder: Mapping[str, Any], flag: str) -> dict[str, Any]:
    return {**builder, "flags": sorted({*builder["flags"], flag})}


def _require_equal(got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, array in expected.items():
        if array.tobytes() != got[name].tobytes():
            raise ValueError(f"expected equal bits of {name}, got others")


def _error(got: Array, expected: Array) -> float:
    """Return the largest difference relative to values above 1; infinite where one side has a NaN."""
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0.0)))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / scale


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a bundle, by default the one around this file; return 0: all steps held, 4: one did not, 5: no device."""
    parser = argparse.ArgumentParser(description="Try a TensorRT bundle on this machine's device.")
    parser.add_argument("--bundle", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--report", type=Path, default=Path("verify_t4.json"))
    options = parser.parse_args(arguments)
    try:
        device = probe()
        version = probe_builder()
        trt = import_tensorrt()
        cuda = open_cuda()
    except EngineAbsent as error:
        print(f"error: {error}", file=sys.stderr)
        return EngineAbsent.exit_code
    with tempfile.TemporaryDirectory() as scratch, cuda.active():
        steps = Trial(trt, cuda, device, options.bundle, Path(scratch)).run()
    cuda.close()
    providers = {"used": cuda.name, "known": [provider.name for provider in PROVIDERS]}
    report = {"device": vars(device), "tensorrt": version, "providers": providers, "steps": steps}
    report["not_tried"] = ["the lean runtime without the full library", "the provider that was not used"]
    with replace_file(options.report) as file:
        file.write(json.dumps(report, indent=1).encode() + b"\n")
    failed = [step for step in steps if not step["ok"]]
    print(f"{len(steps) - len(failed)} of {len(steps)} steps held; report: {options.report}")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
