"""A report of a build with every kind of row."""

from compiler.base.records.build_report import (
    BuildReport,
    EngineRow,
    SpeedRow,
    StageReport,
)
from compiler.base.records.findings import Finding, at_most

REPORT = BuildReport(
    recipe="recipes/cpu.yaml",
    bundle="dist/tiny-cpu",
    stages=(
        StageReport("encoder", "capture", 1.5, cached=True),
        StageReport(
            "encoder", "pad_axes", 0.25, matched=3, rewritten=2, refused=("[MatMul m1]: axis cache is summed",) * 2
        ),
    ),
    gates=(
        at_most("parity.max_abs", "encoder", "logits", limit=1.2e-4, measured=2e-6, detail="100 steps"),
        at_most("parity.max_abs", "encoder", "keys", limit=1.0, measured=float("nan")),
        Finding("task.identical", "encoder", "metric:wer", 199, 200, False, is_least=True),
        Finding("budget.p95_ms", limit=20.0),
    ),
    sizes={"graphs/encoder.batch1.onnx": 1_234, "graphs/encoder.weights": 5_000_000},
    speed=(SpeedRow("encoder", "batch=1", 1.25, 1.5, 1),),
    engines=(
        EngineRow("encoder", "not built", "no toolchain on this machine"),
        EngineRow("head", "built", reached="run"),
    ),
)
