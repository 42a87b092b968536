"""tied_weights: the module's own weights, equal where heads share."""

import numpy as np
import pytest

from compiler.compression.tied_weights import tied_weights
from compiler.errors import Refused
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Array, Lowered
from compiler.passes.merge_kv_heads import MergeKvHeads
from tests.kit.attention import POSITIONS, attention, feeds, text, weights
from tests.kit.calibration import with_streams
from tests.kit.graphs import BATCH, copy_of, parse

PARTS = {"q": "query", "k": "key", "v": "value", "o": "output"}


def parameters(positions: str) -> dict[str, Array]:
    """As a module holds them: channels that come out are rows."""
    given = weights(turned=positions == "turned")
    found = {f"layer.{name}.weight": given[f"w{short}"].T.copy() for short, name in PARTS.items()}
    return found | {f"layer.{name}.bias": given[f"b{short}"] for short, name in PARTS.items() if short != "o"}


def graph_with(changed: dict[str, Array], positions: str) -> Lowered:
    """The graph of whole heads with other weights."""
    given = weights(turned=positions == "turned")
    for short, name in PARTS.items():
        given[f"w{short}"] = changed[f"layer.{name}.weight"].T.copy()
        given |= {f"b{short}": changed[f"layer.{name}.bias"] for _ in [0] if short != "o"}
    lowered = Lowered("decoder", parse(text(positions), given), batch_axis=BATCH, data_outputs=("y",))
    return with_streams(lowered, *feeds(5))


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_module_answers_what_the_merged_graph_answers(positions: str) -> None:
    merged = copy_of(attention(positions))
    given = parameters(positions)
    tied = tied_weights(given, MergeKvHeads(2).merges(merged).merges)
    assert set(tied.parameters) == set(given)
    (feed,) = feeds(1, seed=7)[0]
    got = runner_of(graph_with({**given, **tied.parameters}, positions)).step(feed)["y"]
    right = runner_of(merged).step(feed)["y"]
    np.testing.assert_allclose(got, right, atol=1e-4 * np.abs(right).max())
    whole = runner_of(attention(positions)).step(feed)["y"]
    assert np.abs(got - whole).max() > 1e-2 * np.abs(whole).max()  # it is not what it was


def test_keys_and_values_with_their_biases_are_tied() -> None:
    tied = tied_weights(parameters("turned"), MergeKvHeads(2).merges(copy_of(attention("turned"))).merges)
    assert sorted(tie.parameter for tie in tied.ties) == [
        f"layer.{part}.{kind}" for part in ("key", "value") for kind in ("bias", "weight")
    ]
    for tie in tied.ties:
        assert tie.index.shape == (2, 2, 4) and sorted(tie.index.reshape(-1)) == list(range(16))
        members = np.moveaxis(tied.parameters[tie.parameter], tie.axis, 0)[tie.index]
        np.testing.assert_array_equal(members[:, 0], members[:, 1])


def test_a_projection_that_is_no_parameter_is_refused() -> None:
    given = parameters("none")
    del given["layer.value.weight"]
    with pytest.raises(Refused, match=r"the weights of the values of .+, got none"):
        tied_weights(given, MergeKvHeads(2).merges(copy_of(attention())).merges)
