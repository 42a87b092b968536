"""Describes the kind of machine for which a measured time holds: processor, processor features, and runtime version."""

import platform
from collections.abc import Sequence
from pathlib import Path

NAMES = ("model name", "CPU implementer")
ABILITIES = ("flags", "Features")

FLAGS = (
    "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "asimddp", "i8mm", "bf16",
    "sve",
)  # fmt: skip
"""Of the instructions that a processor has, those that kernels are chosen by."""


def machine_kind(versions: Sequence[str], cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Describe the kind of machine in one line, e.g. `x86_64, AMD EPYC 9B45, avx2 avx512f, onnxruntime 1.31`.

    Args:
        versions: names and versions of the packages that run graphs.
        cpu_info: where Linux describes the processor.
    """
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        lines = []
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = next((entries[key] for key in NAMES if key in entries), platform.processor())
    has = next((entries[key].split() for key in ABILITIES if key in entries), [])
    abilities = " ".join(flag for flag in FLAGS if flag in has)
    return ", ".join(part for part in (platform.machine(), name, abilities, *versions) if part)
