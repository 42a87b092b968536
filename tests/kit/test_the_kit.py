"""Sabotaged passes are caught by the contract, each for its own reason."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates, rename_output
from tests.kit.contract import ContractBroken, verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import STEP, WINDOW, copy_of, node_named, parse, streaming
from tests.kit.numerics import assert_close

Change = Callable[[Lowered], Lowered | None]


@dataclasses.dataclass(frozen=True)
class Sabotage:
    """An honest pass, then a change; `claim` replaces the reported number of rewrites.

    Attributes:
        change: applied after the honest pass, in place or with a new record.
        honest: the pass that does the right thing first, or None.
        claim: reported rewrites, or None for the honest number and one for the change.
    """

    name: ClassVar[str] = "sabotage"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    change: Change
    honest: PadAxes | WindowStates | None = None
    claim: int | None = None

    def apply(self, lowered: Lowered) -> Outcome:
        outcome = self.honest.apply(lowered) if self.honest else Outcome(lowered)
        if self.honest is not None and outcome.rewritten == 0:
            return outcome
        changed = self.change(outcome.lowered)
        done = outcome.rewritten + 1 if self.claim is None else self.claim
        return dataclasses.replace(outcome, lowered=changed or outcome.lowered, rewritten=done)


def nothing(lowered: Lowered) -> None:
    """Leave the graph as it is."""


def insert_before_output(lowered: Lowered, name: str, op: str, *constants: ir.Value, **attributes: int) -> None:
    model = lowered.model
    old = graphs.outputs_named(model)[name]
    insert = graphs.Inserter(model, "sabotage", source="tiny.py:1 in forward: sabotage")
    rename_output(
        model, old, insert.op(op, [old, *constants], attributes, name=f"{name}_changed", shape=old.shape), name
    )


def double_an_output(lowered: Lowered) -> None:
    insert = graphs.Inserter(lowered.model, "sabotage")
    insert_before_output(lowered, "y", "Mul", insert.constant(np.array(2, np.float32), "two_times"))


def raise_zeros(lowered: Lowered) -> None:
    """An output becomes infinite where the input is exactly zero."""
    insert = graphs.Inserter(lowered.model, "sabotage", source="tiny.py:1 in forward: sabotage")
    x, old = graphs.inputs_named(lowered.model)["x"], graphs.outputs_named(lowered.model)["y"]
    zero, high = (insert.constant(np.array(each, np.float32), "c") for each in (0.0, np.inf))
    silent = insert.op("Equal", [x, zero], name="silent", dtype=ir.DataType.BOOL)
    found = insert.op("Where", [silent, high, old], name="raised", shape=old.shape, dtype=old.dtype)
    rename_output(lowered.model, old, found, "y")


def nudge_always(lowered: Lowered) -> None:
    insert = graphs.Inserter(lowered.model, "sabotage")
    insert_before_output(lowered, "y", "Mul", insert.constant(np.array(1, np.float32), "once"))


def drop_a_node(lowered: Lowered) -> None:
    softmax = next(node for node in lowered.model.graph if node.op_type == "Softmax")
    score = softmax.inputs[0]
    assert score is not None
    ir.convenience.replace_all_uses_with(softmax.outputs[0], score)
    graphs.prune(lowered.model)


def forget_the_last_node(lowered: Lowered) -> None:
    lowered.model.graph.remove(node_named(lowered.model, "y"))


def change_a_type(lowered: Lowered) -> None:
    insert_before_output(lowered, "y", "Cast", to=int(ir.DataType.DOUBLE))
    graphs.outputs_named(lowered.model)["y"].dtype = ir.DataType.DOUBLE


def rename_an_output(lowered: Lowered) -> None:
    graphs.outputs_named(lowered.model)["y"].name = "result"


def reorder_outputs(lowered: Lowered) -> None:
    lowered.model.graph.inputs.append(lowered.model.graph.inputs.pop(0))
    extra = ir.Value(name="extra", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.FLOAT))
    lowered.model.graph.inputs.append(extra)


def forget_a_stamp(lowered: Lowered) -> None:
    for node in lowered.model.graph:
        node.metadata_props.pop(graphs.PASS_KEY, None)


def forget_a_source(lowered: Lowered) -> None:
    for node in lowered.model.graph:
        if graphs.PASS_KEY in node.metadata_props:
            node.metadata_props.pop(graphs.SOURCE_KEY, None)


def spoil_weights(lowered: Lowered) -> None:
    tensor = lowered.model.graph.initializers["wq"].const_value
    assert tensor is not None
    tensor.numpy()[0, 0] += 1


def lose_the_state(lowered: Lowered) -> Lowered:
    return dataclasses.replace(lowered, state_maps=())


def roll_dice(lowered: Lowered) -> None:
    for node in lowered.model.graph:
        if node.op_type == "Where":
            node.metadata_props["token"] = str(np.random.default_rng().integers(1 << 60))


def reach_through_clean(lowered: Lowered) -> None:
    """The selection on the cache is taken out; zero padding hides it, NaN does not."""
    clean = next(node for node in lowered.model.graph if str(node.outputs[0].name).startswith("past_filled"))
    cache = clean.inputs[1]
    assert cache is not None
    ir.convenience.replace_all_uses_with(clean.outputs[0], cache)
    graphs.prune(lowered.model)


def mask_softly(lowered: Lowered) -> None:
    """A fill that is too shallow lets padded keys into the sum."""
    for node in lowered.model.graph:
        if node.op_type == "Where" and str(node.outputs[0].name).startswith("scores"):
            insert = graphs.Inserter(lowered.model, "sabotage", before=node)
            node.replace_input_with(2, insert.constant(np.array(-2, np.float32), "shallow"))


def skip_first_mask(lowered: Lowered) -> None:
    for node in graphs.nodes_of(lowered.model):
        if node.op_type == "Where" and str(node.outputs[0].name).startswith("scores"):
            scores = node.inputs[1]
            assert scores is not None
            ir.convenience.replace_all_uses_with(node.outputs[0], scores)
    graphs.prune(lowered.model)


def edit_constant(stem: str, edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(lowered: Lowered) -> None:
        for name, value in list(lowered.model.graph.initializers.items()):
            if name.startswith(stem):
                assert value.const_value is not None
                value.const_value = ir.tensor(edit(value.const_value.numpy()), name=name)

    return change


def move_masks(frames: int) -> Change:
    """Let every mask begin `frames` slots later."""

    def change(lowered: Lowered) -> None:
        for node in graphs.nodes_of(lowered.model):
            if node.op_type == "GreaterOrEqual" and str(node.outputs[0].name).startswith("valid"):
                first = node.inputs[1]
                insert = graphs.Inserter(lowered.model, "sabotage", before=node)
                moved = insert.op("Add", [first, insert.constant(np.array(frames, np.int64), "frames")], name="moved")
                node.replace_input_with(1, moved)

    return change


def turn_masks(lowered: Lowered) -> None:
    """As many slots are valid, on the other side."""
    for node in graphs.nodes_of(lowered.model):
        if node.op_type == "GreaterOrEqual" and str(node.outputs[0].name).startswith("valid"):
            slots, first = node.inputs
            begins = None if first is None else first.producer()
            assert begins is not None and begins.op_type == "Sub"
            insert = graphs.Inserter(lowered.model, "sabotage", before=node)
            true = insert.op("Sub", [begins.inputs[0], first], name="true")
            left = insert.op("Less", [slots, true], name="left", dtype=ir.DataType.BOOL)
            ir.convenience.replace_all_uses_with(node.outputs[0], left)
    graphs.prune(lowered.model)


def shift_window(start: int) -> Change:
    def change(lowered: Lowered) -> None:
        cut = node_named(lowered.model, "next_past")
        insert = graphs.Inserter(lowered.model, "sabotage", before=cut)
        cut.replace_input_with(1, insert.int64s(start))
        cut.replace_input_with(2, insert.int64s(start + WINDOW))

    return change


LENGTHS = {"mask_input": None}
"""The graph that computes its mask, so that mutants of the mask live inside it."""

SABOTEURS: dict[str, tuple[Sabotage, str]] = {
    "doubles an output": (Sabotage(double_an_output, PadAxes()), "meaning"),
    "raises zeros": (Sabotage(raise_zeros, PadAxes()), "edges"),
    "drops a node": (Sabotage(drop_a_node, PadAxes()), "meaning"),
    "forgets the last node": (Sabotage(forget_the_last_node, PadAxes()), "form"),
    "changes without saying so": (Sabotage(double_an_output, PadAxes(), claim=0), "honesty"),
    "says it changed what it left": (Sabotage(nothing, claim=3), "honesty"),
    "never finishes": (Sabotage(nudge_always), "idempotence"),
    "changes a type": (Sabotage(change_a_type, PadAxes()), "signature"),
    "renames an output": (Sabotage(rename_an_output, PadAxes()), "signature"),
    "reorders and adds inputs": (Sabotage(reorder_outputs, PadAxes()), "signature"),
    "leaves nodes without its name": (Sabotage(forget_a_stamp, PadAxes()), "stamp"),
    "loses the source line": (Sabotage(forget_a_source, PadAxes()), "stamp"),
    "writes into shared weights": (Sabotage(spoil_weights, PadAxes()), "weights"),
    "rolls dice": (Sabotage(roll_dice, PadAxes()), "determinism"),
    "does not say what became of states": (Sabotage(lose_the_state, PadAxes()), "meaning"),
    "lets NaN through": (Sabotage(reach_through_clean, PadAxes()), "padding"),
}


@pytest.mark.parametrize("name", SABOTEURS)
def test_a_sabotaged_pass_is_caught_for_its_own_reason(name: str) -> None:
    saboteur, clause = SABOTEURS[name]
    with pytest.raises(ContractBroken) as raised:
        verify_pass(saboteur, streaming(), tolerance=1e-5)
    assert raised.value.clause == clause, raised.value


# the mutations of the padding reference, applied to what pad_axes and window_states make
MUTATIONS: dict[str, Sabotage] = {
    "mask one frame too long": Sabotage(move_masks(-1), PadAxes()),
    "mask one frame too short": Sabotage(move_masks(1), PadAxes()),
    "position table shifted by one": Sabotage(edit_constant("table_rows", lambda rows: np.roll(rows, 1, 0)), PadAxes()),
    "positions start at the window": Sabotage(edit_constant("first_row", lambda zero: zero + WINDOW), PadAxes()),
    "first mask dropped": Sabotage(skip_first_mask, PadAxes()),
    "first mask too shallow": Sabotage(mask_softly, PadAxes()),
    "left mask on a right-aligned cache": Sabotage(turn_masks, PadAxes()),
    "window cut off by one": Sabotage(shift_window(STEP - 1), WindowStates()),
    "window cut at the wrong end": Sabotage(shift_window(0), WindowStates()),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_of_the_padding_is_caught(name: str) -> None:
    origin = streaming(mask_input=None)
    mutation = MUTATIONS[name]
    before = origin if isinstance(mutation.honest, PadAxes) else PadAxes().apply(copy_of(origin)).lowered
    with pytest.raises(ContractBroken) as raised:
        verify_pass(mutation, before, tolerance=1e-5, origin=origin)
    assert raised.value.clause in ("meaning", "padding"), raised.value


def test_the_second_mask_alone_is_not_noticed_as_long_as_the_first_is_deep() -> None:
    assert np.exp(np.finfo(np.float32).min) == 0.0


def test_honest_passes_keep_the_contract() -> None:
    origin = streaming()
    padded = verify_pass(PadAxes(), origin, tolerance=1e-5)
    verify_pass(WindowStates(), padded.lowered, tolerance=1e-5, origin=origin)


def test_a_refusal_that_does_not_come_is_caught() -> None:
    with pytest.raises(pytest.fail.Exception):
        verify_refusal(PadAxes(), streaming(), message="anything", cure="anything")


def test_a_twin_that_is_rewritten_is_caught() -> None:
    with pytest.raises(ContractBroken, match="left alone"):
        verify_untouched(PadAxes(), streaming())


def test_a_twin_left_alone_for_another_reason_is_caught() -> None:
    with pytest.raises(AssertionError, match="expected the reason"):
        verify_untouched(WindowStates(), dataclasses.replace(streaming(), caches=()), refused="no rule")


def test_comparison_is_infinite_for_other_shapes_and_one_sided_nan() -> None:
    ones = np.ones(2, np.float32)
    for other in (np.ones(3, np.float32), np.array([1, np.nan], np.float32)):
        with pytest.raises(AssertionError, match="got inf"):
            assert_close(other, ones, tolerance=1.0, what="y")
    assert_close(ones, ones, tolerance=0.0, what="y")


def test_tiny_graphs_know_their_lines() -> None:
    model = parse("(float[2] x) => (float[2] y) { y = Relu(x) }")
    assert graphs.source_of(node_named(model, "y")) == "tiny.py:1 in forward: Relu"
