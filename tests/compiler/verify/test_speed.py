"""How long a call takes: on every element type, with quiet windows."""

from pathlib import Path

import pytest

from compiler.verify.speed import measure_speed
from tests.kit.shipped import emitted


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "int64", "int8", "bool"])
def test_speed_is_measured_on_every_type(dtype: str, tmp_path: Path) -> None:
    artefact = emitted(tmp_path, f"({dtype}[1,2] x) => ({dtype}[1,2] y) {{ y = Identity(x) }}", {"batch": 1})
    (row,) = measure_speed(tmp_path, [artefact], "net")
    assert (row.graph, row.sizes, row.threads) == ("net", "batch=1", 1)
    assert 0 < row.p50_ms <= row.p95_ms
