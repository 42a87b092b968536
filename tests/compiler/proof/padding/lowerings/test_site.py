"""Forms take a node's place."""

from compiler.graph import model as graphs
from compiler.proof.facts.facts import Fact
from compiler.proof.padding.lowerings.site import Site
from compiler.proof.padding.valid_slots import ValidSlots
from tests.kit.graphs import node_named, parse


def test_what_replaces_an_output_keeps_its_name_at_the_border() -> None:
    model = parse("(float[batch,4] x) => (float[batch,4] y) { y = Relu(x)  }")
    node = node_named(model, "y")
    insert = graphs.Inserter(model, "test", before=node)
    site = Site(model, node, (), [Fact()], [Fact()], ValidSlots(model, [], "batch", "test"), insert)
    new = insert.op("Neg", [node.inputs[0]], name="new")
    site.replace(0, new)
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert model.graph.outputs[0] is new
    assert site.replaced == [new]
    assert str(new.shape) == "[batch,4]"
