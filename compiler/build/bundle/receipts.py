"""Reads and writes the receipts of a bundle: what the gates have measured of each graph and of the whole bundle."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler.base.pieces import write_files
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import MANIFEST_FILE, FileEntry
from runtime_lite.format.manifest_json import json_from_manifest
from runtime_lite.format.reader import read_bundle

RECEIPTS = "receipts.json"
"""The file in a bundle."""

GRAPHS, WHOLE = "parity", "bundle"
"""Its keys; that of the whole is left out while nothing is kept of it."""


def content_of_receipts(receipts: Mapping[str, Any]) -> bytes:
    """Return the content of the file of receipts.

    Args:
        receipts: receipts by graph, and of the bundle under an empty name.
    """
    whole = receipts.get("")
    graphs = {name: kept for name, kept in receipts.items() if name}
    return canonical_json({GRAPHS: graphs, **({WHOLE: whole} if whole else {})})


def receipts_in(folder: Path) -> dict[str, Any]:
    """Return a bundle's receipts in the form in which gates return them."""
    kept = json.loads((folder / RECEIPTS).read_text())
    return {**kept[GRAPHS], "": kept.get(WHOLE, {})}


def enter_receipts(folder: Path, receipts: Mapping[str, Any]) -> None:
    """Write later measurements of gates into a written bundle; unchanged where there are none."""
    content = content_of_receipts(receipts)
    if (folder / RECEIPTS).read_bytes() == content:
        return
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    entry = FileEntry(len(content), hashlib.sha256(content).hexdigest())
    entered = dataclasses.replace(manifest, files={**manifest.files, RECEIPTS: entry})
    write_files(folder, {RECEIPTS: content, MANIFEST_FILE: json_from_manifest(entered)})
