"""Receipts of a bundle: those of graphs under their names, those of the whole beside them."""

import json
from pathlib import Path

from compiler.build.bundle.receipts import content_of_receipts, enter_receipts, receipts_in
from runtime_lite import read_bundle
from tests.runtime_lite.bundles import write_double_bundle


def test_the_whole_has_a_key_of_its_own_where_something_is_kept_of_it() -> None:
    assert json.loads(content_of_receipts({"task": {"limit": 1}, "": {}})) == {"parity": {"task": {"limit": 1}}}
    both = {"task": {"limit": 1}, "": {"task": {"wer": 0.5}}}
    assert json.loads(content_of_receipts(both)) == {"parity": {"task": {"limit": 1}}, "bundle": {"task": {"wer": 0.5}}}


def test_what_is_entered_late_is_listed_and_read_again(tmp_path: Path) -> None:
    folder = write_double_bundle(tmp_path / "bundle")
    receipts = {"streaming": {"engines": 3}, "": {"end": 1}}
    enter_receipts(folder, receipts)
    with read_bundle(folder) as bundle:
        assert bundle.read_file("receipts.json") == content_of_receipts(receipts)
    assert receipts_in(folder) == receipts
    before = (folder / "manifest.json").stat().st_mtime_ns
    enter_receipts(folder, receipts)
    assert (folder / "manifest.json").stat().st_mtime_ns == before
