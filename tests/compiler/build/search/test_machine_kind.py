"""machine_kind: the processor by its name and by what kernels are chosen by."""

import platform
from pathlib import Path

from compiler.build.search.machine_kind import machine_kind


def test_name_and_abilities_of_the_processor(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2 amx_int8 avx512f\n\n" * 2)
    assert machine_kind(["runs 1.0"], info) == f"{platform.machine()}, Some CPU, avx2 avx512f amx_int8, runs 1.0"
    info.write_text("Features\t: fp asimddp\nCPU implementer\t: 0x41\n")
    assert machine_kind([], info) == f"{platform.machine()}, 0x41, asimddp"


def test_a_machine_that_does_not_describe_itself_has_a_kind_all_the_same(tmp_path: Path) -> None:
    assert machine_kind(["runs 1.0"], tmp_path / "none").endswith("runs 1.0")
