"""The list of targets: what holds of every one of them."""

from pathlib import Path

import pytest

import compiler.targets
from compiler.numerics.quantization.placement import CPU
from compiler.targets import TARGETS, placements
from compiler.targets.base import Target

HERE = Path(compiler.targets.__file__).parent


@pytest.mark.parametrize("kind", TARGETS.values())
def test_a_target_stands_under_its_name_and_can_be_made_without_options(kind: type[Target]) -> None:
    assert TARGETS[kind.name] is kind
    assert isinstance(kind(), Target)


def test_the_folder_of_a_vendor_has_the_name_of_its_target() -> None:
    folders = {path.parent.name for path in HERE.glob("*/target.py")}
    assert folders == {kind.name for kind in TARGETS.values() if (HERE / kind.name).is_dir()} != set()
    assert all(TARGETS[name].__module__ == f"compiler.targets.{name}.target" for name in folders)


def test_rules_of_quantisation_are_those_of_the_targets() -> None:
    assert placements()["cpu"] == CPU == TARGETS["onnx_static"].placement
    assert placements().keys() == {kind.placement.name for kind in TARGETS.values() if kind.placement is not None}
