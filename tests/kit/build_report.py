"""A report of a build with every kind of row."""

from compiler.records.build_report import (
    BuildReport,
    EngineRow,
    ParityRow,
    SpeedRow,
    StageReport,
    TaskRow,
)

REPORT = BuildReport(
    recipe="recipes/cpu.yaml",
    bundle="dist/tiny-cpu",
    stages=(
        StageReport("encoder", "capture", 1.5, cached=True),
        StageReport(
            "encoder", "pad_axes", 0.25, matched=3, rewritten=2, refused=("[MatMul m1]: axis cache is summed",) * 2
        ),
    ),
    parity=(
        ParityRow("encoder", "logits", 100, 2e-6, 12.0, 1.2e-4),
        ParityRow("encoder", "keys", 100, float("nan"), 1, 1),
    ),
    task=TaskRow("metric:wer", 0.031, 0.032, 0.001, 0.0, 200, 199),
    sizes={"graphs/encoder.batch1.onnx": 1_234, "graphs/encoder.weights": 5_000_000},
    speed=(SpeedRow("encoder", "batch=1", 1.25, 1.5, 1),),
    engines=(EngineRow("encoder", "not built", "no toolchain on this machine"), EngineRow("head", "built")),
)
