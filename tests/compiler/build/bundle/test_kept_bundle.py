"""A whole bundle in the cache: what comes back is what was kept."""

from pathlib import Path
from unittest import mock

from compiler.base.cache.results import StageResults
from compiler.base.cache.store import StageCache
from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding, at_most
from compiler.build.bundle.kept_bundle import Found, KeptBundle, checkpoint_hashes
from compiler.recipe.stage_inputs import BundleInputs, Surroundings
from tests.kit.models.project import digest_of

INPUTS = BundleInputs(Surroundings("code", (), (), (), "here"), "name: x", {"net": "key"}, {}, (), "", ())


def test_what_was_kept_comes_back_byte_for_byte(tmp_path: Path) -> None:
    results = StageResults(StageCache(tmp_path / "cache"), tmp_path)
    (tmp_path / "made" / "graphs").mkdir(parents=True)
    (tmp_path / "made" / "graphs" / "net.onnx").write_bytes(b"graph")
    (tmp_path / "made" / "manifest.json").write_bytes(b"{}")
    findings = (
        at_most("parity.max_abs", "net", "y", limit=1.0, measured=0.5, figures={"steps": 3, "sqnr_db": None}),
        Finding("parity.sqnr_db", "net", "y", 60.0, 40.0, True, is_least=True),
    )
    found = Found(findings, (SpeedRow("net", "batch=1", 1.0, 2.0, 1),))
    assert KeptBundle(results, INPUTS, {}).entry is None
    assert KeptBundle(results, INPUTS, {}).keep(tmp_path / "made", found) == ""
    (tmp_path / "again").mkdir()
    assert KeptBundle(results, INPUTS, {}).recall(tmp_path / "again") == found
    assert digest_of(tmp_path / "again") == digest_of(tmp_path / "made")


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    for name in ("a/w.bin", "b/w.bin", "b/v.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    files = [tmp_path / name for name in ("b/w.bin", "a/w.bin", "b/v.bin", "b/v.bin")]
    with mock.patch("compiler.build.bundle.kept_bundle.shown_path", str):
        named = checkpoint_hashes(files)
    assert set(named) == {"v.bin", str(files[0]), str(files[1])}
    assert len(set(named.values())) == 3
