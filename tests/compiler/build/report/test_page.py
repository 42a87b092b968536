"""report_page: one page that is well-formed, stands alone, and holds every figure."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from compiler.base.records.build_report import BuildReport, EngineRow, Failure, SpeedRow, StageReport
from compiler.base.records.compression import Compression, Cut, Point, Training
from compiler.base.records.drift_curves import DriftCurve
from compiler.base.records.findings import Finding, at_most
from compiler.base.records.precision import Pin, TensorRange
from compiler.build.report.graph_drawing import Box
from compiler.build.report.page import ROWS, report_page, table, write_page
from compiler.build.report.page_figures import GraphFigures, OriginalCosts, Precision, TensorHistogram
from tests.kit.models.project import Project

PIN = Pin("exp_3", "Exp", "its output reaches <90112>", "e", 90112.0, "m.py:3 in forward", 2.0, "us")
RANGES = tuple(TensorRange(f"t{at}", -1.0, 1.0 + at, "percentile 99.9", at / 1000) for at in range(ROWS + 5))
COMPRESSION = Compression(
    (Cut("reduce_7", "m.py:9 in forward", 64, 48, 0.25, 31.5, 33.0, 28.1),),
    (Point(1.0, 300.0), Point(0.8, 28.1)),
    Point(0.79, 27.0),
    Training(((0, 0.3125), (40, 0.125)), "nats", 90.0),
)
REPORT = BuildReport(
    recipe="recipes/cpu.yaml",
    bundle="dist/tiny-cpu",
    stages=(
        StageReport("net", "capture", 1.5, cached=True),
        StageReport("net", "pad_axes", 0.25, False, 3, 2, ("axis cache is summed & lost",) * 2, 1e-6, 1e-5, "", 121.5),
        StageReport("net", "compress", 0.5, detail="0.79 of the time", compression=COMPRESSION),
        StageReport("net", "lower_precision", 0.25, False, 3, 2, (), 1e-3, 1e-2, "", 61.5, (PIN, *RANGES)),
    ),
    gates=(
        at_most("parity.max_abs", "net", "logits", limit=1.2e-4, measured=2e-6, detail="100 steps & no more"),
        Finding("parity.sqnr_db", "net", "logits", 99.9, 40.0, True, is_least=True),
        at_most("parity.max_abs", "net", "keys", limit=1.0, measured=float("nan")),
        at_most("task.max_increase", "net", "error_rate", limit=0.0, measured=0.001),
        Finding("budget.p95_ms", limit=20.0),
    ),
    sizes={"graphs/net.batch1.onnx": 1_234, "graphs/net.weights": 5_000_000, "manifest.json": 10},
    speed=(SpeedRow("net", "batch=1", 1.25, 1.5, 1),),
    drift={"net": (DriftCurve("cache_0", True, 1000, 8, 1.0, 1e-4, 2e-4, (1e-4, 2e-4)),)},
    engines=(EngineRow("net", "not built", "no toolchain on this machine"),),
)
FIGURES = GraphFigures(
    "net",
    (
        Box("x", "input", Precision.FLOAT32, "float32 [2]", True, ("x",), (), ("x",)),
        Box("exp_3", "Exp", Precision.PINNED, "float32 [2]", True, ("exp_3: Exp", "kept in float32"), ("x",), ("e",)),
        Box("relu", "Relu", Precision.HALF, "float16 [2]", True, ("relu: Relu",), ("e",), ("y",)),
    ),
    (TensorHistogram("e", "m.py:3 in forward", 0.0, 1.0, (1, 2), (2, 1), 0.5, 12.3),),
    OriginalCosts(120, 20_000_000, 2.5, 1),
    100,
)


def words_of(page: str) -> str:
    return " ".join(" ".join(ET.fromstring(page.split("\n", 1)[1]).itertext()).split())


def test_every_figure_is_on_the_page() -> None:
    said = words_of(report_page(REPORT, {"": [FIGURES]}))
    for words in (
        "0.79 of the time, 27.0 dB",
        "1.5 minutes. updates apart, nats 0 0.3125 40 0.125",
        "reduce_7 64 48 0.250 31.5 33.0 28.1 m.py:9 in forward",
        "tiny-cpu",
        "recipes/cpu.yaml",
        "Parity by stage",
        "121.5",
        "logits",
        "99.9 at least 40 holds",
        "100 steps & no more",
        "FAILS",
        "not reached",
        "Drift over chained calls",
        "cache_0 2.00",
        "Tensors that differ most",
        "SQNR 12.3 dB",
        "1 nodes kept precise",
        "its output reaches <90112>",
        "m.py:3 in forward",
        "2 us",
        f"{len(RANGES)} ranges of quantised tensors",
        "5 more",
        "axis cache is summed & lost",
        "error_rate",
        "20.00",
        "5.00",
        "2.00",
        "manifest.json",
        "not built no toolchain on this machine",
        "float16: 1",
        "kept precise on purpose: 1",
    ):
        assert words in said, words


def test_the_map_has_one_box_per_node_in_the_class_of_its_precision() -> None:
    page = report_page(REPORT, {"": [FIGURES]})
    assert [page.count(f'class="node {kind}"') for kind in ("float32", "pinned", "half")] == [1, 1, 1]
    assert 'style="' not in page.split("</style>")[1], "the style sheet has the colours, for dark and for paper"


def test_the_page_stands_alone() -> None:
    page = report_page(REPORT, {"": [FIGURES]})
    elements = ET.fromstring(page.split("\n", 1)[1]).iter()
    links = [value for each in elements for key, value in each.items() if key.endswith(("href", "src"))]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"<script|<link|@import|url\(|https?://(?!www\.w3\.org/2000/svg)", page)
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


def test_a_report_without_figures_is_a_page_too() -> None:
    page = report_page(BuildReport("r.yaml", "b"), {})
    assert "<h2>" not in page
    assert words_of(report_page(REPORT, {})).count("Tensors that differ most") == 0


def test_the_worst_tensor_is_on_top_even_where_it_is_no_number() -> None:
    assert "inf % of the limit of parity.max_abs used by keys" in words_of(report_page(REPORT, {}))


def test_long_tables_are_folded() -> None:
    assert "<details>" not in table(["a"], [["x"]] * ROWS)
    assert "1 more" in table(["a"], [["x"]] * (ROWS + 1))


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    write_page(REPORT, {"": [FIGURES]}, tmp_path / "deep" / "page.html")
    assert (tmp_path / "deep" / "page.html").read_text() == report_page(REPORT, {"": [FIGURES]})


@pytest.mark.parametrize("again", [False, True])
def test_a_build_writes_its_page(project: Project, again: bool) -> None:
    ended = project.build("--report-html", "page.html")
    ended = project.build("--report-html", "page.html") if again else ended
    assert ended.code == 0, ended.err
    said = words_of((project.folder / "page.html").read_text())
    for words in ("Parity by stage", "window_states", "logits", "error_rate", "One call of what ships", "batch=2"):
        assert words in said, words
    assert "page: page.html" in ended.out


@pytest.mark.parametrize(
    ("gates", "place", "words"),
    [
        (
            (at_most("parity.max_abs", "net", "y", limit=1e-5, measured=2e-3),),
            {},
            "failed parity.max_abs: 0.002 where 1e-05",
        ),
        ((at_most("parity.max_abs", "net", "y", limit=1.0, measured=0.5),), {"stage": "capture"}, "failed in capture"),
        ((), {}, "tiny-cpu failed"),
    ],
)
def test_the_headline_of_a_failed_build_says_which_gate_and_by_how_much(
    gates: tuple[Finding, ...], place: dict[str, str], words: str
) -> None:
    failure = Failure("expected y within 1e-05", "loosen it", 4, place)
    page = report_page(dataclasses.replace(REPORT, gates=gates, failure=failure, verdict="failed"), {})
    headline = re.search("<h1>(.*?)</h1>", page)
    assert headline is not None and words in headline[1]


def test_the_headline_of_a_build_that_holds_is_its_name() -> None:
    assert "<h1>tiny-cpu</h1>" in report_page(REPORT, {})
