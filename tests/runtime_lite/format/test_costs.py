"""The cost table survives the way to JSON and back; attacks on it are in tests/attacks."""

from runtime_lite.format.costs import Cost, costs_from_json, json_from_costs
from tests.runtime_lite.bundles import manifest_of, plain_graph, streaming_graph


def test_costs_survive_the_way_to_json_and_back() -> None:
    manifest = manifest_of({"streaming": streaming_graph(), "plain": plain_graph()}, {})
    costs = {"streaming": {"batch=4": Cost(2, 1.25, 2.5)}, "plain": {"batch=1,frames=2": Cost(1, 0.5, 1.0, 2.0)}}
    text = json_from_costs(costs)
    assert costs_from_json(text, manifest) == costs
    assert json_from_costs(dict(reversed(costs.items()))) == text
    assert costs_from_json(b"{}", manifest) == {}
    assert text.count(b"p99_ms") == 1, "what was not measured is not written"
