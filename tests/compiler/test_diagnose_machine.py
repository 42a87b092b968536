"""The doctor knows every target and says what it lacks."""

import importlib.metadata

from compiler.diagnose_machine import PACKAGES_BY_TARGET, TargetState, diagnose, diagnosis_tables
from compiler.targets import TARGETS


def version_without_onnxruntime(package: str) -> str:
    if package == "onnxruntime":
        raise importlib.metadata.PackageNotFoundError(package)
    return "1.0"


def test_everything_works_where_everything_is_installed() -> None:
    diagnosis = diagnose()
    assert [state.missing for state in diagnosis.targets] == [()] * len(TARGETS)
    assert None not in diagnosis.versions.values()


def test_absent_package_is_named_by_the_target_that_needs_it() -> None:
    diagnosis = diagnose(version_without_onnxruntime)
    assert TargetState("onnx_static", ("onnxruntime",)) in diagnosis.targets
    assert TargetState("null", ()) in diagnosis.targets
    assert diagnosis.versions["onnxruntime"] is None
    rows = [table.row_count for table in diagnosis_tables(diagnosis)]
    assert rows == [len(TARGETS), len(diagnosis.parts), len(diagnosis.versions)]


def test_every_target_is_diagnosed() -> None:
    assert PACKAGES_BY_TARGET.keys() == TARGETS.keys()
