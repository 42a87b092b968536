"""The forms "look_up_positions" and "entries": under attack, and on windows whose number of slots is fixed."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Verdict, make_fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Axis, Rows, Segment, Side, joined
from compiler.proof.padding.lowerings.lookup import NODE_LOWERINGS
from compiler.proof.padding.lowerings.site import Site
from compiler.proof.padding.valid_slots import Length, ValidSlots
from compiler.proof.propagation.judge import judge
from tests.kit.graphs import node_named, parse
from tests.kit.judged import integers, layouts, rewrites
from tests.kit.soundness import Node, Operand, check_node, constant, number

TIME, CACHE = graphs.symbol("time"), graphs.symbol("cache")
END = 2**63 - 1
RNG = np.random.default_rng(0)
TABLE = constant(RNG.standard_normal((1, 16, 3)))


def rows_of(start: int | str, end: str, table: Operand = TABLE, axis: int = 1, right: bool = True) -> Node:
    first = number(start, shape=(1,)) if isinstance(start, str) else integers(start)
    cut = [first, number(end, shape=(1,)), integers(axis)]
    return Node("Slice", [table, *cut], right=["time"] if right else [])


TABLES = {
    "a window": rows_of(0, "time + 2"),
    "a window, from the third row": rows_of(2, "time + 4"),
    "new frames": rows_of("time", "time + 2"),
    "new frames behind a suffix": rows_of("time", "time + 2", right=False),
    "as many again": rows_of("time", "2*time", right=False),
    "along the last axis": rows_of(0, "time", constant(RNG.standard_normal((1, 3, 16))), axis=2),
    "along a middle axis": rows_of(0, "time", constant(RNG.standard_normal((1, 2, 16, 3))), axis=2),
    "of a computed table": rows_of(0, "time + 2", Operand((1, 16, 3))),
    "hardly enough rows": rows_of(0, "time", constant(RNG.standard_normal((1, 6, 3)))),
}


@pytest.mark.parametrize("node", TABLES.values(), ids=TABLES)
def test_positions_of_every_slot(node: Node) -> None:
    assert rewrites(check_node(node, trials=25)) == ["look_up_positions"]


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        (joined([Segment(TIME), Segment(2)]), "time + 2"),
        (joined([Segment(1), Segment(TIME, Side.RIGHT)]), "time + 1"),
        (joined([Segment(TIME, Side.RIGHT), Segment(TIME, Side.LEFT)]), "2*time"),
    ],
)
def test_positions_of_axes_of_several_segments(axis: Axis, size: str) -> None:
    def known(case: Case) -> Verdict:
        case.seen = {axis[0].size: axis}
        return judge(case)

    verdict = check_node(rows_of(0, size, right=False), rule=known, trials=25)
    assert layouts(verdict) == f"0: rows(batch), 1: {axis[0]}"


X = Operand(("batch", "time", 3))
ENTRIES = {
    "the last": ("entry", X, 1, [-1]),
    "the last three": ("entries", X, 1, [-3, -2, -1]),
    "both ends": ("entries", X, 1, [0, -1, 1]),
    "frames in front": ("entry", Operand(("time", "batch", 3)), 0, [-1]),
    "frames behind": ("entries", Operand(("batch", 3, "time")), 2, [-1, -2]),
    "a sum of lengths": ("entry", Operand(("batch", "time + 2", 3)), 1, [-1]),
    "the oldest of a window": ("entry", dataclasses.replace(X, shape=("batch", "cache", 3)), 1, [0]),
    "of a window": ("entries", dataclasses.replace(X, shape=("batch", "cache", 3)), 1, [1, -1, 0]),
}


@pytest.mark.parametrize(("what", "data", "axis", "numbers"), ENTRIES.values(), ids=ENTRIES)
def test_entries_counted_from_true_ends(what: str, data: Operand, axis: int, numbers: list[int]) -> None:
    indices = constant(numbers[0], np.int64) if what == "entry" else integers(*numbers)
    node = Node("Gather", [data, indices], {"axis": axis}, right=["cache"], least={"time": 3, "cache": 2})
    assert rewrites(check_node(node, trials=25)) == ["entries"]


def test_the_last_entries_as_a_slice() -> None:
    node = Node("Slice", [X, integers(-2), integers(END), integers(1)], least={"time": 2})
    assert rewrites(check_node(node, trials=25)) == ["entries"]


def frozen(rows: int) -> ir.Model:
    """A window of 6 slots and 2 new frames, with a table of `rows` rows; the lookup is written."""
    model = parse(
        """(float[batch,cache,3] past, int64[batch] real_length, float[1,rows,3] table) => (float[b,t,d] out)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
        { c = Shape<start = 1, end = 2>(past)  n = Add(c, two)  y = Slice(table, zero, n, one)  out = Identity(y) }""",
        {"table": np.arange(rows * 3, dtype=np.float32).reshape(1, rows, 3)},
    )
    node = node_named(model, "y")
    length = Length("cache", graphs.inputs_named(model)["real_length"], slots=6)
    places = ValidSlots(model, [length], "batch", "test")
    facts = [Fact(), Fact(), Fact(is_number=True), Fact()]
    window = joined([Segment(CACHE + 2, Side.RIGHT)])
    out = make_fact({0: (Rows(graphs.symbol("batch")),), 1: window}, lambda region: ANYTHING)
    insert = graphs.Inserter(model, "test", before=node)
    NODE_LOWERINGS["look_up_positions"](Site(model, node, (1, 0, CACHE + 2), facts, (out,), places, insert))
    return model


def test_a_fixed_window_keeps_the_rows_it_may_ask_for() -> None:
    model = frozen(16)
    (rows,) = [value for name, value in model.graph.initializers.items() if name.startswith("table_rows")]
    assert rows.shape == ir.Shape([8, 3])
    assert "Min" not in [node.op_type for node in model.graph]
    found = run_model(model, {"past": np.zeros((2, 6, 3), np.float32), "real_length": np.array([0, 4])})["out"]
    assert found.shape == (2, 8, 3)
    assert found[0, -2:, 0].tolist() == [0, 3]
    assert found[1, -6:, 0].tolist() == [0, 3, 6, 9, 12, 15]


def test_a_table_with_fewer_rows_than_slots_is_refused() -> None:
    with pytest.raises(Refused, match="the position table has 7 rows, the padded axis 8"):
        frozen(7)
