"""The gate on the task: the metric must not rise, and texts must stay the same where that is asked for."""

from pathlib import Path

import pytest

from compiler.build.verify.gate import Shipped
from compiler.build.verify.gates.task import TASK
from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from runtime_lite.executors.executor import make_executor
from tests.kit.models.project import Project, digest_of

FORGETFUL = """
CALLS = [0]


def decode(outputs: list[Feed]) -> str:
    CALLS[0] += 1
    return SAID[CALLS[0] % 2]  # original, bundle, original, bundle
"""


@pytest.mark.parametrize(
    ("said", "max_increase", "code", "words"),
    [
        (["B" * 32, "A" * 32], 0.0, 4, "expected 2 identical results, got 2 others: ['r0', 'r1']"),
        (["C" * 32, "A" * 32], 0.4, 4, "expected error_rate to rise by at most 0.4, got 0.5 (0.5000 to 1.0000)"),
        (["A" * 32, "C" * 32], 0.0, 4, "expected 2 identical results"),
        (["A" * 32, "A" * 32], 0.0, 0, ""),
    ],
)
def test_task_gate(said: list[str], max_increase: float, code: int, words: str, project: Project) -> None:
    text = (project.folder / "tiny_task.py").read_text()
    body = text[: text.index("def decode")] + f"SAID = {said}\n" + FORGETFUL + "\n\n" + text[text.index("def error") :]
    project.write("tiny_task.py", body)
    first = project.build("--set", f"gates.task.max_increase={max_increase}")
    assert first.code == code, first.err
    assert words in first.message
    assert code == 0 or "stage task" in first.message
    assert (project.folder / "bundle").exists() == (code == 0)


def test_task_that_need_not_be_identical_reports_how_many_are(project: Project) -> None:
    text = (project.folder / "tiny_task.py").read_text()
    said = ["A" * 31 + "B", "A" * 32]
    body = text[: text.index("def decode")] + f"SAID = {said}\n" + FORGETFUL + "\n\n" + text[text.index("def error") :]
    project.write("tiny_task.py", body)
    ended = project.build("--set", "gates.task.identical=false", "--set", "gates.task.max_increase=0.1")
    assert ended.code == 0, ended.err
    (row,) = (row for row in ended.report["gates"] if row["gate"].startswith("task."))
    assert (row["figures"]["identical"], row["figures"]["recordings"]) == (0, 2)
    assert digest_of(project.folder / "bundle")


TWO_GRAPHS = str(Path(__file__).parents[4] / "docs" / "every_key.yaml")


@pytest.mark.parametrize(
    ("setting", "heard"), [((), "recogniser"), (("gates.task.graph=tagger",), "tagger")], ids=["the first", "named"]
)
def test_one_graph_hears_the_recordings_and_findings_name_it(setting: tuple[str, ...], heard: str) -> None:
    recipe = load_recipe(TWO_GRAPHS, setting).recipe
    asked = {graph: TASK.promises(recipe, graph) for graph in recipe.graphs}
    assert [graph for graph, found in asked.items() if found] == [heard]
    assert all(each.graph == heard for each in asked[heard])
    assert [graph for graph in recipe.graphs if recipe.task_of(graph) is not None] == [heard]


@pytest.mark.parametrize(
    ("graph", "simulated", "runs"), [("net", False, True), ("net", True, False), ("x", False, False)]
)
def test_it_runs_for_its_own_graph_and_in_no_simulator(
    graph: str, simulated: bool, runs: bool, project: Project, tmp_path: Path
) -> None:
    loaded = load_recipe(str(project.folder / "tiny.yaml"), ())
    shipped = Shipped(loaded, tmp_path, {}, {}, lambda path: None, make_executor, simulated=simulated, name=graph)  # type: ignore[arg-type, return-value]
    assert TASK.is_wanted(loaded.recipe, shipped) == runs


def test_a_graph_that_there_is_not_hears_nothing() -> None:
    with pytest.raises(RecipeError, match=r"gates.task.graph: expected the name of a graph, got 'taggr'; did you mean"):
        load_recipe(TWO_GRAPHS, ["gates.task.graph=taggr"])
