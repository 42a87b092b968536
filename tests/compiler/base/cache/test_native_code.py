"""native_code: a library that calls nothing which opens files opens none; what cannot be told may open any."""

from pathlib import Path

import _cffi_backend  # type: ignore[import-untyped]
import markupsafe._speedups
import onnxruntime.capi.onnxruntime_pybind11_state as runtime
import pytest
import soxr.soxr_ext
import yaml._yaml

from compiler.base.cache.native_code import may_read


@pytest.mark.parametrize("module", [markupsafe._speedups, yaml._yaml, soxr.soxr_ext])
def test_libraries_that_compute(module: object) -> None:
    assert not may_read(str(vars(module)["__file__"]))


@pytest.mark.parametrize("module", [_cffi_backend, runtime])
def test_libraries_that_open_files(module: object) -> None:
    assert may_read(str(vars(module)["__file__"]))


@pytest.mark.parametrize("content", [b"", b"MZ", b"\x7fELF\x02\x01" + bytes(20), b"\x7fELF\x02\x01" + bytes(90)])
def test_what_cannot_be_told_may_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "library.so").write_bytes(content)
    assert may_read(str(tmp_path / "library.so")) and may_read(str(tmp_path / "absent.so"))
