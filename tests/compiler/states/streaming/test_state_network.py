"""Prices by hand beside prices from the graph."""

from compiler.graph.operator_costs import Rates
from compiler.graph.stages import Lowered, State
from compiler.states.streaming.carrying_cut import choose
from compiler.states.streaming.stable import Frames, Stable, find_caches
from compiler.states.streaming.state_network import figures, network_of
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse, random_weights

ALONG = CacheAxis("cache", 6, 2, "real_length", None)

RATES = Rates(multiply_adds=1e12, bytes=1e12)
"""One picosecond per multiply-add and per byte."""


def stable() -> Stable:
    text = """(float[batch,2,4] x, float[batch,cache,4] past, float[4,16] w)
    => (float[a,b,c] y, float[batch,kept,4] joined)
    {
        joined = Concat<axis = 1>(past, x)
        wide = MatMul(joined, w)
        moved = Transpose<perm = [1, 0, 2]>(wide)
        y = Softmax<axis = 0>(moved)
    }"""
    lowered = Lowered(
        "tiny", parse(text, random_weights({"w": (4, 16)})), states=(State("past", "joined", 1, "cache"),)
    )
    return Stable(lowered.model, find_caches(lowered, ALONG)[0], Frames.along(ALONG))


def test_a_carried_value_is_read_and_written_by_the_join_and_by_the_cut() -> None:
    values = network_of(stable(), RATES).values
    assert values["joined"].cost == 16 * (8 + 8 + 6 + 6)
    assert (values["wide"].cost, values["wide"].held) == (4 * values["joined"].cost, 6 * 64)
    assert values["moved"].cost is None  # the batch is not in front


def test_an_operator_that_runs_again_costs_what_it_does_for_cached_frames() -> None:
    network = network_of(stable(), RATES)
    product, transpose = network.operators
    assert product.cost == max(6 * 4 * 16, 6 * 4 * (4 + 16))
    assert transpose.cost == 6 * 2 * 64
    assert (product.reads, product.makes, sorted(network.demanded)) == (("joined",), ("wide",), ["moved"])


def test_figures_count_before_and_after() -> None:
    subject = stable()
    slow = choose(network_of(subject, Rates(1e3, 1e12)))
    assert slow.carried == {"wide"}
    text = figures(subject, slow, 10_000)
    assert text == (
        "values carried for 1 caches: 1, 0.000512 -> 0.000128 M multiply-adds of theirs, states 0.0101 -> 0.0104 MB"
    )
