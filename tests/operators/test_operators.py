"""The idioms are graphs that ONNX Runtime computes, and tables and pages are those of the list."""

import json

import numpy as np
import pytest

from compiler.graph.runners.session import run_model
from compiler.targets.operator_table import TAKEN, WRONG
from tests.operators.idioms import Idiom, idioms
from tests.operators.sweep import sweep, verdict
from tests.operators.table import page, page_of
from tests.operators.vendors import VENDORS, Answer

SOME = ("add", "erf", "pad_edge", "matmul_weights", "log")


@pytest.mark.parametrize("idiom", idioms(), ids=lambda idiom: idiom.name)
def test_every_idiom_is_a_graph_of_its_operator(idiom: Idiom) -> None:
    model, feed = idiom.model(), idiom.feed()
    assert idiom.op == "*" or idiom.op in [node.op_type for node in model.graph]
    answer = run_model(model, feed)["y"]
    assert np.isfinite(answer).all() and np.ptp(answer) > 0
    assert all(np.array_equal(array, idiom.feed()[name]) for name, array in feed.items())


def test_no_name_stands_twice() -> None:
    assert len({idiom.name for idiom in idioms()}) == len(idioms())


@pytest.mark.parametrize("name", VENDORS)
def test_the_table_has_a_verdict_for_every_idiom_and_the_page_is_that_of_the_table(name: str) -> None:
    vendor = VENDORS[name]
    table = json.loads(vendor.table.read_text(encoding="utf-8"))
    assert table["toolchain"] == vendor.environment.version, f"sweep again: python -m tests.operators {name}"
    assert [(row["idiom"], row["op"], row["case"]) for row in table["rows"]] == [
        (idiom.name, idiom.op, idiom.case) for idiom in idioms()
    ]
    assert all(row[precision]["verdict"] for row in table["rows"] for precision in vendor.precisions)
    assert page_of(name).read_text(encoding="utf-8") == page(name)


def test_an_answer_is_worth_what_it_is_close() -> None:
    right = np.linspace(-1, 1, 100, dtype=np.float32)
    assert verdict(Answer({"y": right}), right, 40.0) == {"verdict": TAKEN}
    assert verdict(Answer({"y": right + np.float32(1e-3)}), right, 40.0)["verdict"] == TAKEN
    assert verdict(Answer({"y": right + np.float32(1e-1)}), right, 40.0)["verdict"] == WRONG
    assert verdict(Answer({"y": right * np.float32(np.nan)}), right, 40.0)["verdict"] == WRONG
    assert verdict(Answer({"y": right}), np.zeros_like(right), 40.0)["verdict"] == WRONG
    assert verdict(Answer({}, "left to the CPU"), right, 40.0) == {"verdict": "refused", "why": "left to the CPU"}


@pytest.mark.parametrize("name", VENDORS)
def test_the_toolchain_says_of_some_idioms_what_the_table_says(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vendor = VENDORS[name]
    if vendor.environment.fault():
        pytest.skip(f"{vendor.environment.fault()}; install it: {vendor.environment.install}")
    rows = {row["idiom"]: row for row in json.loads(vendor.table.read_text(encoding="utf-8"))["rows"]}
    some = tuple(idiom for idiom in idioms() if idiom.name in SOME)
    for idiom, precision, found in sweep(vendor, some, tmp_path_factory.mktemp("idioms")):
        assert found["verdict"] == rows[idiom.name][precision]["verdict"], (idiom.name, precision, found)
