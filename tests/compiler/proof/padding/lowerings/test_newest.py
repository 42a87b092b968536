"""The newest entries of a window and a chunk: where they end is counted per row; the mutants are found by an attack."""

from unittest import mock

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.facts.layout import Frames, Segment, Side, joined
from compiler.proof.padding.lowerings import newest
from compiler.proof.padding.lowerings.site import Site
from tests.kit.judged import integers
from tests.kit.soundness import Node, Operand, Unsound, check_node

MET = joined([Segment(graphs.symbol("cache"), Side.RIGHT), Segment(graphs.symbol("time"))])
LAST_THREE = [integers(-3), integers(2**63 - 1), integers(1)]


def node(dtype: ir.DataType = ir.DataType.FLOAT) -> Node:
    return Node("Slice", [Operand(("batch", "cache + time", 2), dtype, axes={1: MET}), *LAST_THREE], right=["cache"])


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.FLOAT16])
def test_every_row_keeps_its_own_newest(dtype: ir.DataType) -> None:
    check_node(node(dtype), trials=12)


def test_frames_on_another_axis() -> None:
    operand = Operand(("batch", 2, "cache + time"), axes={2: MET})
    check_node(Node("Slice", [operand, *LAST_THREE[:2], integers(2)], right=["cache"]), trials=12)


@pytest.mark.parametrize("shift", [-1, 1])
def test_an_end_that_is_off_by_one_is_found(shift: int) -> None:
    right = newest.slots_of_newest

    def shifted(site: Site, frames: Frames, kept: graphs.Dim) -> ir.Value:
        off = site.insert.constant(np.array(shift, np.int64), "shift")
        moved = site.insert.op("Add", [right(site, frames, kept), off], name="off")
        zero = site.insert.constant(np.array(0, np.int64), "zero")
        return site.insert.op(
            "Min", [site.insert.op("Max", [moved, zero], name="off"), _last(site, frames)], name="off"
        )

    with mock.patch.object(newest, "slots_of_newest", shifted), pytest.raises(Unsound):
        check_node(node(), trials=12)


def _last(site: Site, frames: Frames) -> ir.Value:
    one = site.insert.constant(np.array(1, np.int64), "one")
    return site.insert.op("Sub", [site.valid_slots.slot_count(frames.size), one], name="last")


def test_padding_that_stays_is_found() -> None:
    with mock.patch.object(newest, "cleaned", lambda site, found, axis, kept: found), pytest.raises(Unsound):
        check_node(node(), trials=12)
