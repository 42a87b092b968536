"""Runs Qualcomm's toolchain in its own Python environment, on requests from `compiler.targets.toolchain`.

    python worker.py FOLDER < {"task": "version"}                               -> version.txt
    python worker.py FOLDER < {"task": "compile", "bundle": FOLDER, "soc": 43,
                               "programs": [{"graph": FILE, "engine": FILE}]}   -> engines/*.onnx, built.json
    python worker.py FOLDER < {"task": "answer", "bundle": FOLDER, "soc": 43,
                               "programs": [{"graph": FILE, "feed": FILE}]}     -> <graph>.npz, answered.json

An engine is an ONNX file of one node that holds the context for the SoC. Every node has to be on the device: where the
provider leaves one to the CPU, `built.json` names it, with the graph file, which has no engine. `answer` compiles each
graph and runs it once in the simulator; `answered.json` has the versions, and what was said of those that were refused.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

ABSENT = 5

PROVIDER = "QNNExecutionProvider"

ERRORS = 3
"""Severity of the log: the provider names nodes that it does not take in an error."""

UNSUPPORTED = re.compile(r"Unsupported nodes in QNN EP: (.*)")
NODE = re.compile(r"\{ name: (.*?), type: (\S+) \}")
LOG_LINE = re.compile(r"\[E:\w+:[^\]]*\] ([^\x1b\n]*)")


class Provider(NamedTuple):
    """The provider, loaded: a process loads it once at most.

    Attributes:
        onnxruntime: ONNX Runtime.
        package: the provider's package.
        devices: what it computes on, a processor in the place of the NPU included.
    """

    onnxruntime: Any
    package: Any
    devices: list[Any]

    def versions(self) -> dict[str, str]:
        """Return the versions that an engine depends on, by package."""
        return {"onnxruntime-qnn": str(self.package.__version__), "onnxruntime": str(self.onnxruntime.__version__)}


def start() -> Provider:
    """Load the provider, or end the process: it is not here."""
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
    return Provider(onnxruntime, onnxruntime_qnn, devices)


def _absent(reason: str) -> int:
    print(f"error: {' '.join(reason.split())}", file=sys.stderr)
    return ABSENT


def compile_program(
    provider: Provider, program: dict[str, str], request: dict[str, Any], out: pathlib.Path
) -> dict[str, Any] | None:
    """Compile one graph file.

    Returns:
        None where every node is on the device; else what the provider says: `graph`, `nodes` as pairs of name and
        operator, and `reason`.
    """
    engine = out / program["engine"]
    engine.parent.mkdir(exist_ok=True)
    error, text, _ = opened(
        provider,
        program["graph"],  # a hash of its path is in the context
        request["soc"],
        ("ep.context_enable", "1"),
        ("ep.context_file_path", str(engine)),
        ("ep.context_embed_mode", "1"),
    )
    return None if not error and engine.is_file() else refusal(program["graph"], text, error)


def opened(provider: Provider, graph: str, soc: int, *entries: tuple[str, str]) -> tuple[str, str, Any]:
    """Return the error of a session that has every node on the device, what it logged, and the session."""
    onnxruntime, package, devices = provider
    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS
    options.intra_op_num_threads = 1
    for key, value in (("session.disable_cpu_ep_fallback", "1"), *entries):
        options.add_session_config_entry(key, value)
    told = {
        "backend_path": package.get_qnn_htp_path(),
        "soc_model": str(soc),
        "offload_graph_io_quantization": "0",
    }
    options.add_provider_for_devices(devices, told)
    error, session = "", None
    with caught_log() as log:
        try:
            session = onnxruntime.InferenceSession(graph, options)
        except Exception as raised:  # noqa: BLE001 - the library has no error of its own for a graph that it refuses
            error = str(raised)
    return error, log.getvalue(), session


def refusal(graph: str, text: str, error: str) -> dict[str, Any]:
    """Return what the provider says of a graph that it refuses: `graph`, `nodes` and `reason`."""
    nodes = [pair for line in UNSUPPORTED.findall(text) for pair in NODE.findall(line)]
    lines = LOG_LINE.findall(text)
    reason = lines[-1] if lines else error or "it wrote no context"
    return {"graph": graph, "nodes": sorted(set(nodes)), "reason": " ".join(reason.split())[:400]}


def answer_program(
    provider: Provider, program: dict[str, str], request: dict[str, Any], out: pathlib.Path
) -> dict[str, Any] | None:
    """Run one graph file on one feed, and write its outputs; return a refusal, or None."""
    import numpy as np

    error, text, session = opened(provider, program["graph"], request["soc"])
    if session is None:
        return refusal(program["graph"], text, error)
    names = [each.name for each in session.get_outputs()]
    with np.load(program["feed"]) as feed:
        try:
            found = session.run(names, dict(feed))
        except Exception as raised:  # noqa: BLE001 - nor for a run that fails
            return refusal(program["graph"], "", str(raised))
    np.savez(out / f"{pathlib.Path(program['graph']).stem}.npz", **dict(zip(names, found, strict=True)))
    return None


@contextlib.contextmanager
def caught_log() -> Iterator[io.StringIO]:
    """Yield a text that is, at the end, what libraries wrote to standard error meanwhile; it is written there, too."""
    text, before = io.StringIO(), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text.write(file.read().decode(errors="replace"))
            print(text.getvalue(), file=sys.stderr)


def main() -> int:
    """Do one task."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    provider = start()
    found = provider.versions()
    if request["task"] == "version":
        (out / "version.txt").write_text(", ".join(f"{name} {version}" for name, version in found.items()))
        return 0
    do, file = (answer_program, "answered.json") if request["task"] == "answer" else (compile_program, "built.json")
    os.chdir(request["bundle"])
    refused = [told for each in request["programs"] if (told := do(provider, each, request, out))]
    (out / file).write_text(json.dumps({"versions": found, "refused": refused}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
