"""The model's own step in PyTorch on the device, as the bundle's recipe has it, to be timed beside the bundle."""

import functools
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

Work = Callable[[], dict[str, Any]]

WARM_UP = 5


def peer_steps(bundle: Path, runs: int) -> Iterator[tuple[str, Work]]:
    """Yield what times the step of each graph, by name; one that says why not where PyTorch has no CUDA."""
    try:
        torch = importlib.import_module("torch")
        has_cuda = bool(torch.cuda.is_available())
    except ImportError:
        has_cuda = False
    if not has_cuda:
        yield "peers", lambda: {"skipped": "PyTorch with CUDA is not installed here"}
        return
    for name, graph in yaml.safe_load((bundle / "recipe.yaml").read_text(encoding="utf-8"))["graphs"].items():
        rows = next((axis["buckets"] for axis in graph["axes"].values() if "buckets" in axis), [1])
        for how in ("eager", "cuda graph", "compiled"):
            for count in rows:
                yield f"peer {name} {how} batch={count}", functools.partial(_timed, torch, graph, how, count, runs)


def _timed(torch: Any, graph: dict[str, Any], how: str, rows: int, runs: int) -> dict[str, Any]:
    """Median time of a step in half precision, with full caches."""
    module, _, function = graph["source"]["factory"].partition(":")
    model = (
        getattr(importlib.import_module(module), function)(**graph["source"].get("arguments", {})).eval().half().cuda()
    )
    sizes = {axis: record.get("fixed", record.get("window")) for axis, record in graph["axes"].items()}
    feeds = [
        _feed(torch, each["shape"], each.get("dtype", "float32"), sizes, rows) for each in graph["inputs"].values()
    ]
    with torch.no_grad():
        call = torch.compile(model, mode="reduce-overhead") if how == "compiled" else model
        for _ in range(WARM_UP):
            call(*feeds)
        torch.cuda.synchronize()
        if how == "cuda graph":
            recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recorded):
                model(*feeds)
            call = lambda *_: recorded.replay()  # noqa: E731
        times = []
        for _ in range(runs):
            started = time.perf_counter()
            call(*feeds)
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - started))
    return {"p50_ms": float(np.median(times)), "p95_ms": float(np.percentile(times, 95)), "torch": torch.__version__}


def _feed(torch: Any, shape: Sequence[int | str], dtype: str, sizes: dict[str, int | None], rows: int) -> Any:
    """An input of zeros; what has no size of its own is an axis of rows."""
    whole = [size if isinstance(size, int) else sizes.get(size) or rows for size in shape]
    kind = torch.float16 if dtype.startswith("float") else getattr(torch, dtype)
    return torch.zeros(whole, dtype=kind, device="cuda")
