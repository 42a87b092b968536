"""Speaks for Qualcomm's toolchain in its own environment, asked as `compiler.targets.toolchain` asks.

    python worker.py FOLDER < {"task": "version"}                               -> version.txt
    python worker.py FOLDER < {"task": "compile", "bundle": FOLDER, "soc": 43,
                               "programs": [{"graph": FILE, "engine": FILE}]}   -> engines/*.onnx, built.json

An engine is an ONNX file of one node that holds the context for the SoC. Every node has to be on the device: where the
provider takes one not, `built.json` names it, with the graph file, and there are no engines.
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

ABSENT = 5

PROVIDER = "QNNExecutionProvider"

ERRORS = 3
"""Severity of the log: the provider names nodes that it does not take in an error."""

UNSUPPORTED = re.compile(r"Unsupported nodes in QNN EP: (.*)")
NODE = re.compile(r"\{ name: (.*?), type: (\S+) \}")
LOG_LINE = re.compile(r"\[E:\w+:[^\]]*\] (.*)")


def start() -> tuple[Any, Any, list[Any]]:
    """Load the provider; return ONNX Runtime, the provider's package and its devices."""
    try:
        import onnxruntime
        import onnxruntime_qnn

        onnxruntime.set_default_logger_severity(ERRORS)
        onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    except (ImportError, OSError, RuntimeError) as error:
        raise SystemExit(_absent(f"expected the package onnxruntime-qnn, got {error}")) from None
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == PROVIDER]
    if not devices:
        raise SystemExit(_absent("expected a device of the provider QNN, its simulator included, got none"))
    return onnxruntime, onnxruntime_qnn, devices


def _absent(reason: str) -> int:
    print(f"error: {' '.join(reason.split())}", file=sys.stderr)
    return ABSENT


def versions(onnxruntime: Any, package: Any) -> dict[str, str]:
    """Return the versions that an engine depends on, by package."""
    return {"onnxruntime-qnn": str(package.__version__), "onnxruntime": str(onnxruntime.__version__)}


def compile_program(program: dict[str, str], request: dict[str, Any], out: pathlib.Path) -> dict[str, Any] | None:
    """Compile one graph file.

    Returns:
        None where every node is on the device; else what the provider says: `graph`, `nodes` as pairs of name and
        operator, and `reason`.
    """
    onnxruntime, package, devices = start()
    engine = out / program["engine"]
    engine.parent.mkdir(exist_ok=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS
    options.intra_op_num_threads = 1
    for key, value in (
        ("session.disable_cpu_ep_fallback", "1"),
        ("ep.context_enable", "1"),
        ("ep.context_file_path", str(engine)),
        ("ep.context_embed_mode", "1"),
    ):
        options.add_session_config_entry(key, value)
    told = {
        "backend_path": package.get_qnn_htp_path(),
        "soc_model": str(request["soc"]),
        "offload_graph_io_quantization": "0",
    }
    options.add_provider_for_devices(devices, told)
    error = ""
    with caught_log() as log:
        try:
            onnxruntime.InferenceSession(str(pathlib.Path(request["bundle"]) / program["graph"]), options)
        except Exception as raised:  # noqa: BLE001 - the library has no error of its own for a graph that it refuses
            error = str(raised)
    if not error and engine.is_file():
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    nodes = [pair for line in UNSUPPORTED.findall(text) for pair in NODE.findall(line)]
    lines = LOG_LINE.findall(text)
    reason = lines[-1] if lines else error or "it wrote no context"
    return {"graph": program["graph"], "nodes": sorted(set(nodes)), "reason": " ".join(reason.split())[:400]}


@contextlib.contextmanager
def caught_log() -> Iterator[pathlib.Path]:
    """Yield a file that has, at the end, what the library wrote to standard error meanwhile."""
    with tempfile.TemporaryDirectory() as scratch:
        log, before = pathlib.Path(scratch) / "log", os.dup(2)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield log
            os.dup2(before, 2)
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
        finally:
            os.dup2(before, 2)
            os.close(before)


def main() -> int:
    """Do one task."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    onnxruntime, package, _ = start()
    found = versions(onnxruntime, package)
    if request["task"] == "version":
        (out / "version.txt").write_text(", ".join(f"{name} {version}" for name, version in found.items()))
        return 0
    refused = [told for each in request["programs"] if (told := compile_program(each, request, out)) is not None]
    (out / "built.json").write_text(json.dumps({"versions": found, "refused": refused}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
