"""edges: what silence, full scale and their like show of a graph, and what they must not complain about."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.edge_agreement import FINITE, EdgeCase, agreement_words, edge_cases, first_disagreement
from compiler.build.verify.edge_feeds import Range
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import Session, open_session
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Array, Lowered
from compiler.recipe.gates import EdgeKind, Tolerance
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.graphs import parse
from tests.kit.models.project import Ended, Project
from tests.kit.sabotage import Spoil, sabotage

CLOSE = Tolerance(max_abs=1e-5)

ENERGY = "size = Abs(features)  safe = Add(size, floor)  y = Log(safe)"
BARE = "size = Abs(features)  y = Log(size)"
RATIO = "y = Div(features, features)"
CENTRED = """mean = ReduceMean(features, last)  centred = Sub(features, mean)  power = ReduceL2(centred, last)
    y = Div(centred, power)"""

RECIPE = """\
name: energy
graphs:
  net:
    source: {onnx: energy.onnx}
    inputs: {features: {shape: [batch, 4, 8], dtype: float32}}
    outputs: [y]
    axes: {batch: {buckets: [1]}}
    passes: [canonicalize_transposes]
data:
  verification: {feeds: "tiny_data:verification", count: 2, files: [level.txt]}
targets: [{kind: onnx_static}]
gates: {parity: {net: {max_abs: 1.0e-5, chained_steps: 6}}}
"""


def energy(body: str = ENERGY) -> ir.Model:
    text = f"""(float[batch,4,8] features) => (float[batch,4,8] y)
        <float floor = {{1e-9}}, int64[1] last = {{-1}}> {{ {body} }}"""
    return parse(text)


def built(project: Project, *options: str, body: str = ENERGY, recipe: str = RECIPE) -> Ended:
    ir.save(energy(body), project.folder / "energy.onnx")
    project.write("energy.yaml", recipe)
    return project.build(*options, recipe="energy.yaml", out="energy")


def without_the_floor(model: ir.Model) -> None:
    """The addition goes, as an optimiser does that takes it for nothing."""
    (add,) = [node for node in model.graph if node.op_type == "Add"]
    assert add.inputs[0] is not None
    graphs.take_over(model, add.outputs[0], add.inputs[0])
    graphs.prune(model)


def behind(model: ir.Model, op: str, *constants: float) -> None:
    """One more operator behind the output."""
    (value,) = model.graph.outputs
    producer = value.producer()
    assert producer is not None
    insert = graphs.Inserter(model, "test", after=producer)
    more = [insert.constant(np.array(each, np.float32), "c") for each in constants]
    found = insert.op(op, [value, *more], name="spoiled", shape=value.shape)
    node = found.producer()
    assert node is not None
    graphs.take_over(model, value, found, except_in=[node])


def no_lower_than(model: ir.Model) -> None:
    behind(model, "Max", -60.0)


def ones_for_nan(model: ir.Model) -> None:
    (value,) = model.graph.outputs
    division = value.producer()
    assert division is not None
    insert = graphs.Inserter(model, "test", after=division)
    bad = insert.op("IsNaN", [value], name="bad", dtype=ir.DataType.BOOL)
    one = insert.constant(np.array(1.0, np.float32), "one")
    found = insert.op("Where", [bad, one, value], name="mended", shape=value.shape, dtype=value.dtype)
    nodes = [node for each in (bad, found) if (node := each.producer()) is not None]
    graphs.take_over(model, value, found, except_in=nodes)


def mean_in_another_order(model: ir.Model) -> None:
    """The mean is off by one rounding, as in another order of summation on some other machine."""
    (node,) = [node for node in model.graph if node.op_type == "ReduceMean"]
    insert = graphs.Inserter(model, "test", after=node)
    scale = insert.constant(np.array(1 + 2.0**-23, np.float32), "scale")
    moved = insert.op("Mul", [node.outputs[0], scale], name="moved")
    made = moved.producer()
    assert made is not None
    graphs.take_over(model, node.outputs[0], moved, except_in=[made])


@pytest.mark.parametrize(
    ("body", "spoil", "expected", "op"),
    [
        pytest.param(ENERGY, without_the_floor, "-20.7233 at [0, 0, 0], got -inf", "Log", id="finite became infinite"),
        pytest.param(BARE, no_lower_than, "-inf at [0, 0, 0], got -60", "Max", id="infinite became finite"),
        pytest.param(RATIO, ones_for_nan, "nan at [0, 0, 0], got 1", "Where", id="NaN became finite"),
    ],
)
def test_pass_that_answers_silence_otherwise_fails_with_the_node_named(
    body: str, spoil: Spoil, expected: str, op: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = built(project, body=body)
    assert clean.code == 0, clean.err
    sabotage(monkeypatch, "canonicalize_transposes", spoil)
    ended = built(project, "--set", "gates.parity.net.max_abs=1.1e-5", body=body)
    assert ended.code == 4, ended.out
    for word in (
        "stage canonicalize_transposes, graph net, node ",
        f", op {op}, tensor y",
        f"edge feed 'silence' at chained step 0, {expected}",
        "1 node is to blame",
        "declare the range of its inputs",
    ):
        assert word in ended.message, ended.message
    assert not (project.folder / "energy.failure" / "x").exists()


def test_random_data_alone_do_not_see_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above show something that the recipe's data do not; naming other kinds leaves the others out."""
    sabotage(monkeypatch, "canonicalize_transposes", without_the_floor)
    ended = built(project, "--set", "gates.parity.net.edges=[full_scale]")
    assert ended.code == 0, ended.err
    assert "edge feeds: 1 kinds x 3 calls agree" in ended.out


def test_what_ships_is_run_on_edge_feeds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(self: OnnxStatic, path: Path) -> Session:
        model = ir.load(path)
        without_the_floor(model)
        session: Session = open_session(graphs.serialized(model))
        return session

    monkeypatch.setattr(OnnxStatic, "open", spoiled)
    ended = built(project)
    assert ended.code == 4, ended.out
    assert "stage verify" in ended.message and "edge feed 'silence'" in ended.message


def test_original_that_is_infinite_at_the_edge_is_no_error(project: Project) -> None:
    ended = built(project, body=BARE)
    assert ended.code == 0, ended.err
    assert "edge feeds: 5 kinds x 3 calls agree" in ended.out


def test_declared_range_is_kept_and_is_part_of_what_a_cached_result_follows_from(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = RECIPE.replace("dtype: float32}", "dtype: float32, range: [1.0, 9.0]}")
    project.write("tiny_data.py", (project.folder / "tiny_data.py").read_text().replace(
        "numbers * np.float32(level)", "1 + np.minimum(abs(numbers), 7) * np.float32(level)"
    ))  # fmt: skip
    sabotage(monkeypatch, "canonicalize_transposes", without_the_floor)
    assert built(project, recipe=within).code == 0, "nothing as small as the floor is ever fed"
    assert built(project).code == 4, "the result of the narrower range does not serve"


def test_data_beyond_the_declared_range_are_refused(project: Project) -> None:
    ended = built(project, recipe=RECIPE.replace("dtype: float32}", "dtype: float32, range: [-1, 1]}"))
    assert ended.code == 2, ended.out
    assert "features: expected numbers from -1 to 1, the declared range, got " in ended.message


def test_numbers_that_hang_on_rounding_are_not_compared(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a constant the centred signal is rounding, and its direction 0 / 0 or anything."""
    sabotage(monkeypatch, "canonicalize_transposes", mean_in_another_order)
    ended = built(project, body=CENTRED)
    assert ended.code == 0, ended.err


# --- the comparison ---------------------------------------------------------------------------------------------------


def lowered(model: ir.Model) -> Lowered:
    return Lowered("net", model, batch_axis="batch", data_outputs=("y",))


def cases_of(model: ir.Model, *kinds: EdgeKind) -> list[EdgeCase]:
    feed = {"features": np.ones((1, 4, 8), np.float32)}
    origin = lowered(model)

    def run(feeds: object) -> object:
        runner = runner_of(origin)
        for each in feeds:  # type: ignore[attr-defined]
            yield runner.step(each), dict(runner.states)

    return edge_cases(kinds, [feed] * 2, {"features": Range(-2.0, 4.0)}, run, origin)  # type: ignore[arg-type]


def test_lossy_graphs_may_be_off_and_must_be_finite() -> None:
    cases = cases_of(energy(), "silence", "full_scale")
    twice, broken = energy(), energy()
    behind(twice, "Mul", 2.0)
    without_the_floor(broken)
    for model, limits, tensor in ((twice, FINITE, None), (twice, CLOSE, "y"), (broken, FINITE, "y")):
        found = first_disagreement(lowered(model), lambda m=model: runner_of(lowered(m)), cases, limits)  # type: ignore[misc]
        assert (found and found.tensor) == tensor


def test_original_that_raises_is_told_and_a_graph_that_raises_is_found() -> None:
    cases = cases_of(lookup(3), "silence", "full_scale")
    assert [bool(case.steps) for case in cases] == [True, False]
    assert "1 kinds x 2 calls agree, full_scale is not answered by the original (" in agreement_words(cases)
    found = first_disagreement(lowered(lookup(0)), lambda: runner_of(lowered(lookup(0))), cases, CLOSE)
    assert found is not None and found.tensor == "" and "indices" in found.got


def lookup(rows: int) -> ir.Model:
    """Rows of a table by numbers that are the data."""
    text = """(float[batch,4,8] features, float[rows] table) => (float[batch,4,8] y) {
        whole = Cast<to = 7>(features)  y = Gather(table, whole) }"""
    return parse(text, {"table": np.ones(rows, np.float32)})


@pytest.mark.parametrize(
    ("expected", "got", "moved", "holds"),
    [
        ([np.nan], [np.nan], [np.nan], True),
        ([np.nan], [np.inf], [np.nan], False),
        ([np.inf], [-np.inf], [np.inf], False),
        ([1.0], [np.nan], [1.0], False),
        ([np.nan], [1.0], [0.5], True),
        ([1.0], [1.1], [1.0], False),
        ([1.0], [1.1], [1.05], True),
        ([1.0], [1.0, 1.0], [1.0], False),
        ([1.0], [1.0, 1.0], [1.0, 1.0], True),
    ],
)
def test_agreement_of_one_tensor(expected: list[float], got: list[float], moved: list[float], holds: bool) -> None:
    class Given:
        states: dict[str, Array] = {}  # noqa: RUF012

        def step(self, feed: object) -> dict[str, Array]:
            return {"y": np.array(got)}

    steps = [(OriginalCall({}, {"y": np.array(each)}, {}),) for each in (expected, moved)]
    case = EdgeCase("silence", steps[0], (steps[1],))
    assert (first_disagreement(lowered(energy()), Given, [case], CLOSE) is None) == holds


@pytest.mark.parametrize(("moved", "limits", "agrees"), [(7, CLOSE, False), (7, FINITE, True), (9, CLOSE, True)])
def test_classes_on_edge_feeds_are_equal_unless_rounding_decides(moved: int, limits: Tolerance, agrees: bool) -> None:
    """The original says 7. The graph says 8, which 1e6 of difference would allow; rounding may have decided on 9."""
    lowered = Lowered("net", parse("(int64[1] x) => (int64[1] y) <int64[1] one = {1}> { y = Add(x, one) }"))
    feed = {"x": np.array([7])}
    right, other = (OriginalCall(feed, {"y": np.array([label])}, {}) for label in (7, moved))
    case = EdgeCase("silence", (right,), ((other,),))
    found = first_disagreement(lowered, lambda: runner_of(lowered), [case], limits.model_copy(update={"max_abs": 1e6}))
    assert (found is None) == agrees
    if found is not None:
        assert (found.expected, found.got) == (
            "equal in all of its entries", "0 of 1 equal, the first other one: 8 at [0], not 7",
        )  # fmt: skip
