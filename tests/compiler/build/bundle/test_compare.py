"""Two bundles are compared by everything they say about themselves."""

import shutil
from pathlib import Path

from compiler.build.bundle.compare import Difference, compare_bundles, difference_table, is_measured
from tests.runtime_lite.bundles import edit_manifest, replace_hashed, write_double_bundle, write_streaming_bundle


def test_equal_bundles_have_no_difference(tmp_path: Path) -> None:
    first = write_streaming_bundle(tmp_path / "first")
    shutil.copytree(first, tmp_path / "second")
    assert compare_bundles(first, tmp_path / "second") == ()


def test_differences_name_their_place(tmp_path: Path) -> None:
    first, second = write_streaming_bundle(tmp_path / "first"), write_streaming_bundle(tmp_path / "second")
    edit_manifest(second, lambda plain: plain["front_end"].update(dither=0.0))
    edit_manifest(second, lambda plain: plain["graphs"]["streaming"]["states"][0].update(parts=["other"]))
    replace_hashed(second, "receipts.json", b'{"parity": [{"graph": "g", "tensor": "y", "max_abs": 1e-06}]}\n')
    found = compare_bundles(first, second)
    assert Difference("manifest: front_end.dither", "0.5", "0.0") in found
    assert Difference("manifest: graphs.streaming.states.keys.parts", '["layer.keys"]', '["other"]') in found
    assert Difference("receipts: parity.g/y.max_abs", "-", "1e-06") in found
    assert [row.where for row in found if row.where.startswith("manifest: files")] == [
        "manifest: files.receipts.json.bytes",
        "manifest: files.receipts.json.sha256",
    ]


def test_graph_that_only_one_bundle_has_is_listed(tmp_path: Path) -> None:
    first, second = write_streaming_bundle(tmp_path / "first"), write_double_bundle(tmp_path / "second")
    found = compare_bundles(first, second)
    assert Difference("manifest: graphs.plain.opset", "-", "20") in found
    assert difference_table(found, first, second).row_count == len(found)


def test_measured_times_are_told_from_what_ships() -> None:
    assert is_measured(Difference("costs: encoder.batch=1.p50_ms", "1", "2"))
    assert not is_measured(Difference("manifest: graphs.encoder.opset", "20", "21"))
