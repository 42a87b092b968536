"""Rules LK and IX: tables cut by lengths and entries chosen by index; every claim holds under attack."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.facts.facts import Clamp, Fill, Index
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Segment, Side, joined
from tests.kit.judged import attack, check, check_refused, integers, rewrites
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, check_node, constant, number

TIME = graphs.symbol("time")
INT64 = ir.DataType.INT64
END = 2**63 - 1
ROWS = "0: rows(batch)"
TABLE = constant(np.random.default_rng(0).standard_normal((1, 16, 3)))


def rows_of(
    start: int | str, end: int | str, table: Operand = TABLE, right: bool = False, axis: int = 1, **least: int
) -> Node:
    bounds = [number(b, shape=(1,)) if isinstance(b, str) else integers(b) for b in (start, end)]
    return Node("Slice", [table, *bounds, integers(axis)], right=["time"] if right else [], least=least)


TABLES = {
    "the first": (rows_of(0, "time"), "LK1", "1: [time, left]"),
    "from the third": (rows_of(2, "time + 2"), "LK1", "1: [time, left]"),
    "as many as cuts leave": (rows_of(0, "time - 2"), "LK1", "1: [time - 2, left]"),
    "the last": (rows_of("-time", END), "LK2", "1: [time, right]"),
    "the last, counted from the front": (rows_of("16 - time", END), "LK2", "1: [time, right]"),
    "around a fixed one": (rows_of("9 - time", "8 + time"), "LK2", "1: [time, right] ++ [time - 1, left]"),
    "the last of a window": (rows_of("-time - 2", END, right=True), "LK2", "1: [time + 2, right]"),
    "around a fixed one, for a window": (rows_of("7 - time", 10, right=True), "LK2", "1: [time + 3, right]"),
    "of a window": (rows_of(0, "time + 2", right=True), "LK3", f"{ROWS}, 1: [time + 2, right]"),
    "of a window, a table of each row": (
        rows_of(0, "time + 2", Operand(("batch", 16, 3)), right=True), "LK3", f"{ROWS}, 1: [time + 2, right]"
    ),
    "of new frames, behind another axis": (
        rows_of("time", "time + 2", Operand(("batch", 4, 16)), right=True, axis=2), "LK3", ROWS
    ),
    "of new frames": (rows_of("time", "time + 2", right=True), "LK3", ROWS),
    "of new frames behind a suffix": (rows_of("time", "time + 2"), "LK3", ROWS),
}  # fmt: skip


@pytest.mark.parametrize(("node", "rule", "axes"), TABLES.values(), ids=TABLES)
def test_tables(node: Node, rule: str, axes: str) -> None:
    assert rewrites(check(node, rule, axes)) == (["look_up_positions"] if rule == "LK3" else [])


def test_a_table_of_positions_counts_them() -> None:
    table = constant(np.arange(16)[None], np.int64)
    assert check(rows_of(0, "time", table), "LK1", "1: [time, left]").outputs[0].index == Index(1)
    around = check(rows_of("9 - time", "8 + time", table), "LK2", "1: [time, right] ++ [time - 1, left]")
    assert around.outputs[0].index == Index(1, 9 - TIME)


X = Operand(("batch", "time", 3))
IDS = Operand(("batch", "late"), INT64, valid=Interval(0, 0))


def entry(axis: int, *numbers: int, data: Operand = X) -> Node:
    indices = constant(numbers[0], np.int64) if len(numbers) == 1 else integers(*numbers)
    return Node("Gather", [data, indices], {"axis": axis}, least={"time": 3})


BEHIND = Operand(("batch", "time + 1", 3), axes={1: joined([Segment(TIME), Segment(1)])})
ENTRIES = {
    "the first": (entry(1, 0), "IX1", ROWS, []),
    "the second and third": (entry(-2, 1, 2), "IX1", ROWS, []),
    "the last": (entry(1, -1), "IX1", ROWS, ["entries"]),
    "the last two": (entry(1, -2, -1), "IX1", ROWS, ["entries"]),
    "the first and last": (entry(1, 0, -1), "IX1", ROWS, ["entries"]),
    "the newest": (dataclasses.replace(entry(1, -1), right=["time"]), "IX1", ROWS, []),
    "the oldest": (dataclasses.replace(entry(1, 0), right=["time"]), "IX1", ROWS, ["entries"]),
    "the last, by length": (Node("Gather", [X, number("time - 1")], {"axis": 1}), "IX1", ROWS, ["entries"]),
    "behind a gap": (entry(1, -1, data=BEHIND), "IX1", ROWS, []),
    "channels": (entry(2, 0, 2), "IX2", f"{ROWS}, 1: [time, left]", []),
}  # fmt: skip


@pytest.mark.parametrize(("node", "rule", "axes", "forms"), ENTRIES.values(), ids=ENTRIES)
def test_fixed_entries(node: Node, rule: str, axes: str, forms: list[str]) -> None:
    assert rewrites(check(node, rule, axes)) == forms


def test_a_table_of_several_columns_counts_nothing() -> None:
    table = constant(np.arange(48).reshape(1, 16, 3), np.int64)
    assert check(rows_of(0, "time", table), "LK1", "1: [time, left]").outputs[0].index is None


@pytest.mark.parametrize("reduction", ["none", "max", "min"])
def test_what_is_put_in_place_is_data_or_update(reduction: str) -> None:
    ids = Operand(("batch", "time", 1), INT64, valid=Interval(0, 2))
    data, updates = (Operand(("batch", "time", n), valid=Interval(5 - n, 6 - n)) for n in (3, 1))
    node = Node("ScatterElements", [data, ids, updates], {"axis": 2, "reduction": reduction}, opset=18)
    assert check(node, "IX3", f"{ROWS}, 1: [time, left]").outputs[0].valid == Interval(2, 5)


def test_indices_in_the_padding_are_made_legal() -> None:
    embedding = Node("Gather", [constant(np.ones((5, 2))), dataclasses.replace(IDS, valid=Interval(0, 4))])
    assert check(embedding, "IX2", f"{ROWS}, 1: [late, left]").needs == (Clamp(1, -5, 4),)
    bounded = dataclasses.replace(IDS, valid=Interval(0, 4), padding=Interval(-5, 4))
    assert not check(Node("Gather", [constant(np.ones((5, 2))), bounded]), "IX2", f"{ROWS}, 1: [late, left]").needs
    shared = Node("Gather", [Operand(("time", 3)), IDS])
    assert check(shared, "IX1", f"{ROWS}, 1: [late, left]").needs == (Fill(1, 1, 0.0),)
    wide = Node("Gather", [Operand(("time", "more")), IDS])
    assert check(wide, "IX1", f"{ROWS}, 1: [late, left], 2: [more, left]").needs == (Fill(1, 1, 0.0),)


def test_positions_along_an_axis_are_its_entries() -> None:
    counted = Interval(0, 2.0**31)
    positions = Operand(("time",), INT64, counted, counted, index=Index(0))
    assert not check(Node("Gather", [X, positions], {"axis": 1}), "IX1", f"{ROWS}, 1: [time, left]").needs


def test_elements_along_one_axis() -> None:
    ids = dataclasses.replace(IDS, shape=("batch", "time", 2), valid=Interval(0, 2))
    check(Node("GatherElements", [X, ids], {"axis": 2}), "IX2", f"{ROWS}, 1: [time, left]")
    frames = dataclasses.replace(IDS, shape=("batch", 4, 3))
    assert check(Node("GatherElements", [X, frames], {"axis": 1}), "IX1", ROWS).outputs[0].valid == ANYTHING
    scores = Operand(("2*batch", "time", 5))
    relative = Operand(("2*batch", "time", "time"), INT64, valid=Interval(0, 4))
    check(
        Node("GatherElements", [scores, relative], {"axis": -1}),
        "IX2",
        "0: rows(batch) * 2, 1: [time, left], 2: [time, left]",
    )


def test_other_lookups() -> None:
    check(Node("OneHot", [IDS, constant(4, np.int64), constant([0.0, 1.0])]), "IX19", f"{ROWS}, 1: [late, left]")
    classes = Node("OneHot", [IDS, number("time"), constant([0.0, 1.0])])
    assert not check(classes, "IX19", f"{ROWS}, 1: [late, left], 2: [time, left]").pointwise
    ids = Operand(("batch", "time", 1), INT64, valid=Interval(0, 2))
    check(
        Node("ScatterElements", [X, ids, Operand(("batch", "time", 1))], {"axis": 2}), "IX3", f"{ROWS}, 1: [time, left]"
    )
    frames = Operand(("batch", "time", 1), INT64, valid=Interval(0, 2))
    check(Node("GatherND", [Operand(("batch", 3, 2)), frames], {"batch_dims": 1}), "IX4", f"{ROWS}, 1: [time, left]")


def test_indices_that_all_rows_share_stay_within_the_slots() -> None:
    shared = dataclasses.replace(IDS, shape=(1, "late"))
    for data, indices, axis in ((Operand(("time", 3)), shared, 0), (X, dataclasses.replace(IDS, shape=("late",)), 1)):
        assert rewrites(check_node(Node("Gather", [data, indices], {"axis": axis}), trials=25)) == ["in_range"]


WRITTEN = """(float[batch,time,4] x, int64[batch,time] ids) => (float[batch,9,4] y)
    <int64 first = {0}, int64 step = {1}, int64[1] one = {1}, int64[1] two = {2}, int64[2] rest = {9, 4}> {
    rows = Shape<start = 0, end = 1>(x)  r = Squeeze(rows)  i = Range(first, r, step)  i2 = Unsqueeze(i, one)
    wide = Shape(ids)  own = Expand(i2, wide)  own3 = Unsqueeze(own, two)  at3 = Unsqueeze(ids, two)
    index = Concat<axis = 2>(own3, at3)  all = Concat<axis = 0>(rows, rest)  none = ConstantOfShape(all)
    y = ScatterND<reduction = "REDUCTION">(none, index, x) }"""


@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_what_each_row_writes_into_itself_by_pairs_is_nothing_in_the_padding(reduction: str) -> None:
    verify_offline(offline(WRITTEN.replace("REDUCTION", reduction)))


def test_padded_updates_that_replace_entries_by_pairs_are_refused() -> None:
    with pytest.raises(Refused, match="replaces entries by padded updates"):
        verify_offline(offline(WRITTEN.replace("REDUCTION", "none")))


def test_updates_in_the_padding_change_nothing() -> None:
    whole = Interval(-1, 1)
    tame = Operand(("batch", "time", 3), valid=whole, padding=whole)
    few = Operand(("batch", 5, 3), valid=whole)
    for reduction in ("add", "mul", "max", "min"):
        how = {"axis": 1, "reduction": reduction}
        extreme = reduction in ("max", "min")
        data, updates = tame if extreme else X, dataclasses.replace(X, valid=whole) if extreme else X
        written = Node("ScatterElements", [data, LONG_EACH, updates], how)
        check(written, "IX8", f"{ROWS}, 1: [time, left]", extremes=False)
        check(Node("ScatterElements", [few, LONG_EACH, updates], how), "IX8", ROWS, extremes=False)
        one = Operand(("batch", 1, 3), valid=whole)
        for indices in (ONE_EACH, LAST_EACH):
            check(Node("ScatterElements", [data, indices, one], how), "IX8", f"{ROWS}, 1: [time, left]", extremes=False)


GAP = Operand(("batch", "time + 2", 3), axes={1: joined([Segment(2), Segment(TIME, Side.RIGHT)])})
SIGNED = dataclasses.replace(IDS, valid=Interval(-1, 0))
ONE_EACH = dataclasses.replace(IDS, shape=("batch", 1, 3))
LONG_EACH = dataclasses.replace(IDS, shape=("batch", "time", 3))
LAST_EACH = Operand(("batch", 1, 3), INT64, valid=Interval(-1, -1))
REFUSED = [
    (rows_of("time", "time + 2", constant(np.arange(96.0).reshape(2, 16, 3))), "looked up at positions of each row"),
    (rows_of("8 - time", "8 - time"), "counts 0 positions"),
    (entry(0, 0), "rows of one batch would mix"),
    (entry(1, -1, data=Operand((1, "time", 3))), "lie in other slots in every row"),
    (entry(1, 2, data=GAP), "Gather of entries [2] of [2] ++ [time, right]"),
    (Node("Gather", [X, IDS], {"axis": 1}), "one row's entries by every row's indices"),
    (Node("Gather", [Operand(("time", 3)), SIGNED]), "by indices of finite[-1, 0] along [time, left]"),
    (Node("GatherElements", [X, dataclasses.replace(IDS, shape=(1, "time", 3))], {"axis": 2}), "rows(batch) by"),
    (Node("GatherND", [X, Operand(("batch", 2, 1), INT64)], {"batch_dims": 1}), "along [time, left]"),
    (
        Node(
            "OneHot",
            [dataclasses.replace(IDS, valid=Interval(0, 3)), number("time"), constant([0.0, 1.0])],
            right=["time"],
        ),
        "OneHot of indices of finite[0, 3]",
    ),
    (Node("OneHot", [SIGNED, number("time"), constant([0.0, 1.0])]), "OneHot of indices of finite[-1, 0]"),
    (Node("ScatterElements", [X, LONG_EACH, X], {"axis": 1}), "replaces entries by padded updates"),
    (Node("ScatterND", [X, Operand((2, 1), INT64), Operand((2, "time", 3))]), "other than (row, entry)"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_refused(node: Node, message: str) -> None:
    check_refused(node, message)


def drawn_rows(rng: np.random.Generator) -> Node:
    starts: list[int | str] = [0, 1, 2, "-time", "9 - time", "16 - time", "time", "-time - 2", "8 + time"]
    ends: list[int | str] = [END, 16, "time", "time + 2", "8 + time", "2*time", "time + late", "late"]
    start, end = (each[int(rng.integers(len(each)))] for each in (starts, ends))
    return rows_of(start, end, right=rng.random() < 0.3)


def drawn_lookup(rng: np.random.Generator) -> Node:
    pool: list[list[int | str]] = [["batch", 1], ["time", 4], ["late", 3]]
    shape = [pair[int(rng.integers(2))] for pair in pool]
    axis = int(rng.integers(3))
    padding = ANYTHING if rng.random() < 0.5 else Interval(-1, 0)
    if rng.random() < 0.5:
        shapes: list[tuple[int | str, ...]] = [("batch", "late"), ("time",), (1, "late", 2), (2,)]
        ids = Operand(shapes[int(rng.integers(4))], INT64, valid=Interval(0, 0), padding=padding)
        return Node("Gather", [Operand(tuple(shape)), ids], {"axis": axis})
    own = list(shape)
    lengths: list[int | str] = [2, "time", shape[axis]]
    own[axis] = lengths[int(rng.integers(3))]
    ids = Operand(tuple(own), INT64, valid=Interval(0, 0), padding=padding)
    return Node("GatherElements", [Operand(tuple(shape)), ids], {"axis": axis})


def test_random_tables() -> None:
    attack(drawn_rows, 80, 30)


def test_random_lookups() -> None:
    attack(drawn_lookup, 80, 40)
