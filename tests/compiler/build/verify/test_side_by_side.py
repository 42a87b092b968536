"""Bundles in turns: the ratio is that of their times, whatever the machine does."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.build.verify import side_by_side as module
from compiler.build.verify.side_by_side import side_by_side
from tests.runtime_lite.bundles import for_openvino, write_plain_bundle


def test_every_bucket_of_every_other_bundle_stands_beside_the_first(tmp_path: Path) -> None:
    bundles = {
        "first": write_plain_bundle(tmp_path / "first"),
        "second": for_openvino(write_plain_bundle(tmp_path / "second")),
        "third": write_plain_bundle(tmp_path / "third"),
    }
    ticks = itertools.count()
    found = side_by_side(bundles, lambda: next(ticks) * 1.0)
    assert {(row.sizes, row.target) for row in found} == {
        (f"batch={rows},frames={frames}", target)
        for rows in (1, 4)
        for frames in (2, 3)
        for target in ("second", "third")
    }
    assert {(row.graph, row.against, row.median, row.low, row.high) for row in found} == {
        ("plain", "first", 1.0, 1.0, 1.0)
    }


def test_the_ratio_is_that_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs, now = itertools.cycle([1.0, 2.0, 3.0]), [0.0]

    def call_of(*_: object) -> Callable[[], None]:
        seconds = next(costs)

        def call() -> None:
            now[0] += seconds

        return call

    monkeypatch.setattr(module, "bucket_call", call_of)
    bundles = {name: write_plain_bundle(tmp_path / name) for name in ("first", "second", "third")}
    found = side_by_side(bundles, lambda: now[0])
    assert {(row.target, row.against, row.median) for row in found} == {
        ("second", "first", 2.0),
        ("third", "first", 3.0),
    }
