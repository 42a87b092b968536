"""searched: builds that find their forms by measuring; what was found is told, kept, and builds the same if pinned."""

import json
from pathlib import Path

import pytest

from compiler.base.records.timings import Comparison
from compiler.build.search.form_bench import VariantBench
from compiler.build.search.greedy import Plan
from compiler.graph.runners.paired_rounds import ratio_of
from compiler.targets import TARGETS
from tests.kit.formed import LegalStatic
from tests.kit.models.project import Ended, Project, digest_of, stream_project

FACTORS = {"swap_operands": 0.8, "scale_operand.by_one": 1.1, "round_operand": 0.9}

ASKED: list[tuple[Plan, Plan]] = []


def planted(bench: VariantBench, plan: Plan, other: Plan, seconds: float) -> Comparison:
    """What forms do to the time, whatever the machine does."""
    ASKED.append((plan, other))
    ratio = 1.0
    for name in set(plan) - set(other):
        ratio *= FACTORS[name]
    found = ratio_of([ratio * (1.0 + 0.001 * place) for place in range(-5, 6)], "batch=1")
    return Comparison((found,), found, (10.0 * (1.0 - ratio),))


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A graph of one screen, for a target with toy forms whose times are known."""
    monkeypatch.setitem(TARGETS, "onnx_static", LegalStatic)
    monkeypatch.setattr(VariantBench, "compare", planted)
    ASKED.clear()
    return stream_project(tmp_path / "project", tmp_path / "cache")


def build(project: Project, forms: str, *options: str, out: str = "bundle", cached: bool = True) -> Ended:
    settings = ["--set", f"targets.0.forms={forms}", *options]
    ended = project.build(*settings, recipe="stream.yaml", out=out, cached=cached)
    assert ended.code == 0, ended.err
    return ended


LOSSY = ("--set", "gates.parity.net.lossy={max_abs: 1.0e-2}")


def graphs_of(project: Project, out: str) -> dict[str, str]:
    return {name: digest for name, digest in digest_of(project.folder / out).items() if name.startswith("graphs/")}


def test_what_wins_is_kept_and_told_in_terminal_json_and_page(stream: Project) -> None:
    ended = build(stream, "search", "--report-html", "page.html")
    (search,) = ended.report["searches"]
    assert (search["graph"], search["plan"]) == ("net", ["swap_operands"])
    assert search["total"]["together"]["median"] == pytest.approx(0.8)
    assert {each["candidate"]: each["verdict"] for each in search["trials"] if not each["plan"]} == {
        "swap_operands": "kept", "scale_operand.by_one": "slower", "refuse_all": "changes nothing",
    }  # fmt: skip
    assert "onnxruntime" in search["machine"] and search["seconds"] > 0.0
    line = "forms: [swap_operands]"
    assert ended.report["forms"] == line
    assert line in ended.out and line in (stream.folder / "page.html").read_text()
    assert "net: search " in ended.out and "0.80 of the time without; " in ended.out
    assert [stage["stage"] for stage in ended.report["stages"]].count("swap_operands") == 1


def test_a_search_is_kept_and_another_kind_of_machine_or_another_time_searches_again(
    stream: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(stream, "search")
    asked = len(ASKED)
    again = build(stream, "search", out="again")
    assert len(ASKED) == asked > 0
    assert again.stages(cached=False) == []
    assert again.report["searches"][0]["plan"] == ["swap_operands"]
    assert digest_of(stream.folder / "again") == digest_of(stream.folder / "bundle")
    monkeypatch.setenv("ORT_KIND", "another")
    build(stream, "search")
    assert len(ASKED) == 2 * asked
    monkeypatch.delenv("ORT_KIND")
    build(stream, "search", "--set", "targets.0.search_s=7.0")
    assert len(ASKED) == 3 * asked


def test_what_was_found_and_pinned_gives_the_same_graphs_without_a_search(stream: Project) -> None:
    line = build(stream, "search").report["forms"].removeprefix("forms: ")
    asked = len(ASKED)
    for number, forms in enumerate((line, f"{{net: {line}}}")):
        pinned = build(stream, forms, out=f"pinned{number}", cached=False)
        assert pinned.report["searches"] == []
        assert graphs_of(stream, f"pinned{number}") == graphs_of(stream, "bundle")
    assert len(ASKED) == asked
    build(stream, "[]", out="without", cached=False)
    assert graphs_of(stream, "without") != graphs_of(stream, "bundle")


CALIBRATION = ("--set", "data.calibration={feeds: 'more_data:calibration', count: 1}")

MORE_DATA = """import tiny_data


def calibration():
    yield [{"features": feed["features"] * 1.5} for feed in tiny_data.one_stream(9)]
"""


@pytest.mark.parametrize(("sqnr_db", "plan"), [(30.0, ["swap_operands", "round_operand"]), (200.0, ["swap_operands"])])
def test_what_rounds_is_tried_where_the_recipe_says_how_much_may_be_lost(
    sqnr_db: float, plan: list[str], stream: Project
) -> None:
    stream.write("more_data.py", MORE_DATA)
    limits = f"gates.parity.net.lossy={{max_abs: 1.0e-2, sqnr_db: {sqnr_db}}}"
    loss = "gates.parity.net.max_form_loss_db=3"  # swapped operands have another one rounded, here once in all
    ended = build(stream, "search", *CALIBRATION, "--set", limits, "--set", loss)
    (search,) = ended.report["searches"]
    assert search["plan"] == plan
    noises = {each["noise_db"] for each in search["trials"] if each["candidate"] == "round_operand"}
    assert all(noise is not None and 50.0 < noise < 90.0 for noise in noises)


def test_without_calibration_data_nothing_that_rounds_is_tried(stream: Project) -> None:
    (search,) = build(stream, "search", *LOSSY).report["searches"]
    assert "round_operand" not in json.dumps(search)


def test_a_time_that_is_none_is_refused(stream: Project) -> None:
    ended = stream.build("--set", "targets.0={kind: onnx_static, search_s: 0}", recipe="stream.yaml")
    assert (ended.code, "search_s: expected seconds above 0, got 0" in ended.message) == (2, True)
