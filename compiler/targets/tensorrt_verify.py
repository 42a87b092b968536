"""Tries on a real device everything about a TensorRT bundle that cannot be tried without one, and writes a report.

    python verify_t4.py [--bundle DIR] [--report FILE.json]

Ships inside bundles as `verify_t4.py`; needs numpy, tensorrt and cuda-python (or pycuda), nothing of the compiler. It
covers: the build of every engine, which layers were fused, accuracy on the recorded feeds, latency, memory, reuse of
the timing cache, equal bits of an engine that is opened twice, refit, version-compatible engines, and the copy code on
the real driver. Every step is a line of the report, with its figures or with why it was not done.
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

from compiler.targets.tensorrt_builder import build_one, probe_builder, timing_cache_name
from runtime_lite.cuda import PROVIDERS, Array, Cuda, Device, open_cuda, probe
from runtime_lite.errors import EngineAbsent
from runtime_lite.tensorrt_engine import StaticEngine, import_tensorrt, make_logger, open_engine

RUNS, WARM_UP_RUNS = 200, 20

Step = dict[str, Any]


class Trial:
    """One bundle on one device.

    Args:
        trt: the library.
        cuda: the device, active in this thread.
        device: what the driver says about it.
        bundle: folder of the bundle.
        scratch: where engines go.
    """

    def __init__(self, trt: Any, cuda: Cuda, device: Device, bundle: Path, scratch: Path) -> None:
        self.trt, self.cuda, self.device, self.bundle, self.scratch = trt, cuda, device, bundle, scratch
        self.cache = scratch / timing_cache_name(str(trt.__version__), device)
        self.steps: list[Step] = []

    def run(self) -> list[Step]:
        """Every step for every engine of every graph."""
        self._step("copies", {}, self._copies)
        for path in sorted((self.bundle / "tensorrt").glob("*.build_plan.json")):
            plan = json.loads(path.read_text(encoding="utf-8"))
            recorded = self._recorded(str(plan["graph"]))
            for engine in plan["engines"]:
                self._engine(plan, engine, recorded)
        return self.steps

    def _engine(self, plan: Mapping[str, Any], engine: Mapping[str, Any], recorded: Mapping[str, Array]) -> None:
        where = {"graph": plan["graph"], "bucket": engine["bucket"]}
        content: list[bytes] = []
        builder = plan["builder"]

        def build() -> Step:
            started = time.perf_counter()
            content.append(build_one(self.trt, self.bundle, builder, engine, self.cache))
            return {"seconds": time.perf_counter() - started, "bytes": len(content[-1])}

        if not self._step("build", where, build):
            return
        host_code = "VERSION_COMPATIBLE" in builder["flags"]
        prefix = f"{engine['bucket']}/"
        feeds = {key[len(prefix) + 5 :]: a for key, a in recorded.items() if key.startswith(f"{prefix}feed/")}
        wanted = {key[len(prefix) + 7 :]: a for key, a in recorded.items() if key.startswith(f"{prefix}output/")}
        self._step("build again with the timing cache", where, build)
        self._step("layers", where, lambda: self._layers(content[0], host_code))
        self._step("accuracy", where, lambda: self._accuracy(content[0], host_code, feeds, wanted, recorded))
        self._step("latency", where, lambda: self._latency(content[0], host_code, feeds))
        self._step("opened twice", where, lambda: self._opened_twice(content[0], host_code, feeds))
        for flag in ("REFIT", "VERSION_COMPATIBLE"):
            changed = {**builder, "flags": sorted({*builder["flags"], flag})}
            self._step(flag.lower(), where, lambda changed=changed: self._variant(changed, engine, feeds))  # type: ignore[misc]

    def _step(self, name: str, where: Mapping[str, Any], work: Callable[[], Step]) -> bool:
        """Do one step; what it raises is its result."""
        step: Step = {"step": name, **where}
        try:
            step |= {"ok": True, **work()}
        except Exception as error:  # noqa: BLE001  (a report of what fails is what this is for)
            step |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.steps.append(step)
        print(json.dumps(step), flush=True)
        return bool(step["ok"])

    def _recorded(self, graph: str) -> dict[str, Array]:
        """Inputs and outputs of every bucket, at the graph's own shapes."""
        with np.load(self.bundle / "tensorrt" / f"{graph}.feeds.npz", allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}

    def _copies(self) -> Step:
        """Bytes go to the device and come back as they were."""
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

    def _open(self, content: bytes, host_code: bool) -> StaticEngine:
        return StaticEngine(self.trt, self.cuda, content, host_code, "verify")

    def _layers(self, content: bytes, host_code: bool) -> Step:
        """What the engine's layers are called; fused attention has `mha` in its name."""
        _, engine = open_engine(self.trt, make_logger(self.trt), content, host_code, "verify")
        text = engine.create_engine_inspector().get_engine_information(self.trt.LayerInformationFormat.JSON)
        layers = json.loads(text).get("Layers", [])
        names = [layer if isinstance(layer, str) else str(layer.get("Name", "")) for layer in layers]
        return {"layers": len(names), "fused_attention": [name for name in names if "mha" in name.lower()]}

    def _accuracy(
        self,
        content: bytes,
        host_code: bool,
        feeds: Mapping[str, Array],
        wanted: Mapping[str, Array],
        recorded: Mapping[str, Array],
    ) -> Step:
        engine = self._open(content, host_code)
        outputs, _ = engine.run(feeds)
        engine.close()
        limit = float(recorded["tolerance"])
        worst = {name: _error(outputs[name], array) for name, array in wanted.items()}
        if not all(error <= limit for error in worst.values()):
            raise ValueError(f"expected every output within {limit:g}, got {worst}")
        return {"max_error": worst, "limit": limit}

    def _latency(self, content: bytes, host_code: bool, feeds: Mapping[str, Array]) -> Step:
        engine = self._open(content, host_code)
        device_ms, wall_ms = [], []
        for index in range(WARM_UP_RUNS + RUNS):
            started = time.perf_counter()
            _, elapsed_ms = engine.run(feeds)
            if index >= WARM_UP_RUNS:
                device_ms.append(elapsed_ms)
                wall_ms.append(1e3 * (time.perf_counter() - started))
        memory = engine.device_bytes
        engine.close()
        figures = {
            f"{kind}_p{at}_ms": float(np.percentile(times, at))
            for kind, times in (("device", device_ms), ("call", wall_ms))
            for at in (50, 95, 99)
        }
        return {**figures, "runs": RUNS, "context_bytes": memory}

    def _opened_twice(self, content: bytes, host_code: bool, feeds: Mapping[str, Array]) -> Step:
        """Two copies at work beside each other give equal bits."""
        engines = [self._open(content, host_code) for _ in range(2)]
        answers = [engine.run(feeds)[0] for engine in engines]
        for engine in engines:
            engine.close()
        for name, array in answers[0].items():
            if array.tobytes() != answers[1][name].tobytes():
                raise ValueError(f"expected equal bits of {name}, got others")
        return {"copies": len(engines)}

    def _variant(self, builder: Mapping[str, Any], engine: Mapping[str, Any], feeds: Mapping[str, Array]) -> Step:
        """The same engine under one more flag is built, opened and run."""
        content = build_one(self.trt, self.bundle, builder, engine, self.cache)
        opened = self._open(content, "VERSION_COMPATIBLE" in builder["flags"])
        opened.run(feeds)
        opened.close()
        return {"bytes": len(content)}


def _error(got: Array, expected: Array) -> float:
    """Largest difference relative to values above 1; infinite where one side has a NaN."""
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0.0)))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / scale


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a bundle, by default the one around this file: 0 all steps held, 4 one did not, 5 there is no device."""
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
    report["not_tried"] = ["the lean runtime without the full library", "CUDA graphs", "the provider that was not used"]
    options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    failed = [step for step in steps if not step["ok"]]
    print(f"{len(steps) - len(failed)} of {len(steps)} steps held; report: {options.report}")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
