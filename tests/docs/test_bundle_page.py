"""docs/bundle.md tells every key of a manifest, as the runtime reads it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from runtime_lite import BundleRefused, manifest_from_json
from runtime_lite.format import manifest
from runtime_lite.format.manifest import SCHEMA_VERSION
from tests.docs import bundle_page
from tests.docs.recipe_page import attributes_told
from tests.runtime_lite.bundles import write_streaming_bundle


def test_page_is_what_the_records_say() -> None:
    assert bundle_page.PAGE.read_text(encoding="utf-8") == bundle_page.page(), "run python -m tests.docs.bundle_page"


def test_every_record_has_a_table_and_every_key_a_meaning() -> None:
    records = [each for each in vars(manifest).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]
    assert [each for each in records if each not in bundle_page.SECTIONS.values()] == []
    untold = [
        f"{record.__name__}.{field.name}"
        for record in bundle_page.SECTIONS.values()
        for field in dataclasses.fields(record)
        if field.name not in attributes_told(record)
    ]
    assert untold == [], "write it under Attributes of the record's docstring"


@pytest.mark.parametrize("record", bundle_page.LATER, ids=lambda record: record.__name__)
def test_what_the_absence_of_a_key_means_is_what_the_record_says(record: type) -> None:
    fields = {field.name: field for field in dataclasses.fields(record)}
    for key, meaning in bundle_page.LATER[record].items():
        field = fields[key]
        default: Any = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert default == meaning


def test_the_page_says_which_versions_are_read() -> None:
    text = bundle_page.PAGE.read_text(encoding="utf-8")
    assert f"`schema_version` is {SCHEMA_VERSION}." in text and f"here {SCHEMA_VERSION - 1}." in text


def test_a_bundle_of_a_newer_toolchain_is_refused_with_the_cure_to_update(tmp_path: Path) -> None:
    plain = json.loads((write_streaming_bundle(tmp_path) / "manifest.json").read_bytes())
    for changed in ({"schema_version": SCHEMA_VERSION + 1}, {"of_tomorrow": 1}):
        with pytest.raises(BundleRefused, match="; update "):
            manifest_from_json(json.dumps({**plain, **changed}).encode())
