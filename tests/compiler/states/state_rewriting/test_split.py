"""Operators run on new frames; what they made of old ones comes in as a state."""

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, State
from compiler.states.state_rewriting.split import Split
from compiler.states.streaming.carrying_cut import Choice
from compiler.states.streaming.contexts import find_context
from compiler.states.streaming.stable import Stable
from tests.kit.graphs import BATCH, node_named, parse

TEXT = """(float[batch,5,4] x, float[batch,3,4] context) => (float[batch,q,r] y, float[batch,3,4] next_context)
<int64[1] one = {1}, int64[1] newest = {-3}, int64[1] end = {9223372036854775807}>
{ joined = Concat<axis = 1>(context, x)  next_context = Slice(joined, newest, end, one)
  bent = Tanh(joined)  turned = Sigmoid(bent)  y = CumSum(turned, one) }"""


def split(choice: Choice) -> tuple[Lowered, Split]:
    lowered = Lowered("tiny", parse(TEXT), states=(State("context", "next_context", None),), batch_axis=BATCH)
    found = find_context(lowered, lowered.states[0])
    assert isinstance(found, tuple)
    made = Split(lowered.model, Stable(lowered.model, found[:1], found[1]), choice, "tiny_pass")
    assert made.write() == 1
    return lowered, made


def test_a_state_of_one_size_is_fed_its_newest_frames() -> None:
    lowered, made = split(Choice(frozenset({"turned"}), frozenset(), 0, 0))
    assert made.states == [State("context_carried_0", "next_context_carried_0", None)]
    assert list(graphs.inputs_named(lowered.model)) == ["x", "context_carried_0"]
    cut = node_named(lowered.model, "next_context_carried_0")
    assert cut.op_type == "Slice"
    assert [str(dim) for dim in cut.outputs[0].shape or ()] == [BATCH, "3", "4"]
    assert made.map is not None


def test_what_runs_again_stays_on_all_frames() -> None:
    lowered, made = split(Choice(frozenset({"bent"}), frozenset({1}), 0, 0))
    assert [str(dim) for dim in node_named(lowered.model, "turned").outputs[0].shape or ()] == [BATCH, "8", "4"]
    assert [state.input for state in made.states] == ["context_carried_0"]


def test_new_nodes_say_which_pass_made_them() -> None:
    lowered, _ = split(Choice(frozenset({"turned"}), frozenset(), 0, 0))
    stamps = {node.metadata_props.get(graphs.PASS_KEY) for node in lowered.model.graph}
    assert "tiny_pass" in stamps
