"""compress: channels taken out until a call takes a share of its time."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from compiler.base.records.compression import Cut
from compiler.build.lowering.certificates import replay_certificates
from compiler.calib.noise import decibels
from compiler.calib.watched_streams import noise_between
from compiler.errors import RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.structure import is_same
from compiler.graph.stages import Lowered, Outcome, PaddedAxis
from compiler.passes import compress
from compiler.passes.compress import Compress
from compiler.rewriting.pruning import channel_times
from compiler.rewriting.pruning.inner_axes import inner_axes
from compiler.rewriting.pruning.kept_entries import KeptEntries
from tests.kit.calibration import with_streams
from tests.kit.contract import verify_pass
from tests.kit.graphs import copy_of, feeds_of
from tests.kit.pruning import HEADS, SIZE, attending, weigh_graphs
from tests.kit.quantization import HIDDEN, speech, streams


@pytest.fixture(autouse=True)
def _by_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh_graphs(monkeypatch)


def hidden(time: float, tile: int) -> Compress:
    """The pass on the hidden channels of the feed-forward layer alone."""
    return Compress(time=time, tile=tile, keep=("projected_matmul",))


def cuts_of(outcome: Outcome) -> tuple[Cut, ...]:
    assert outcome.compression is not None
    return outcome.compression.cuts


def test_contract() -> None:
    graph = speech()
    outcome = verify_pass(hidden(0.9, 4), graph, tolerance=0.5)
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    assert replay_certificates(graph, outcome) == len(outcome.records[0]["records"]) > 30
    ((_, axis), _) = inner_axes(outcome.lowered.model)
    (cut,) = cuts_of(outcome)
    assert axis.count == cut.after < cut.before == HIDDEN and cut.after % 4 == 0
    assert cut.node == "reduced_matmul" and cut.source.startswith("tiny.py:") and cut.saved_ms > 0


def test_the_report_says_what_was_predicted_and_what_came() -> None:
    graph = speech()
    outcome = hidden(0.9, 4).apply(copy_of(graph))
    (cut,) = cuts_of(outcome)
    measured = decibels(noise_between(graph, outcome.lowered, streams(graph))["y"])
    assert f"results {measured:.1f} dB" in outcome.detail and "0.9 wanted" in outcome.detail
    assert cut.alone_db is not None and cut.fitted_db is not None and cut.noise_db is not None
    assert cut.fitted_db == pytest.approx(cut.alone_db, abs=10.0)
    assert cut.noise_db == pytest.approx(measured, abs=10.0)
    record = outcome.compression
    assert record is not None and record.measured.noise_db == pytest.approx(measured)
    times = [point.time for point in record.predicted]
    assert times[0] == 1.0 and times == sorted(times, reverse=True) and times[-1] <= 0.9
    assert record.predicted[-1].noise_db == pytest.approx(cut.noise_db)


def test_channels_that_nothing_depends_on_go_without_loss() -> None:
    idle = np.arange(HIDDEN) % 3 == 1
    weights = {name: np.array(graphs.array_of(value)) for name, value in speech().model.graph.initializers.items()}
    reduce, expand = weights["reduce"], weights["expand"]
    reduce[idle] = 0.0
    twice = np.flatnonzero(~idle)[:4]
    expand[:, twice[2:]] = expand[:, twice[:2]]
    bias = weights["expand_b"]
    bias[twice[2:]] = bias[twice[:2]]
    graph = speech({"reduce": reduce, "expand": expand, "expand_b": bias})
    outcome = hidden(0.95, 2).apply(copy_of(graph))
    ((_, axis), _) = inner_axes(outcome.lowered.model)
    assert axis.count < HIDDEN
    assert decibels(noise_between(graph, outcome.lowered, streams(graph))["y"]) > 60


def test_the_fit_is_better_than_the_cut_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = speech()

    def noise() -> float:
        outcome = hidden(0.85, 4).apply(copy_of(graph))
        return noise_between(graph, outcome.lowered, streams(graph))["y"]

    fitted = noise()
    monkeypatch.setattr(compress, "fitted", lambda moments, weights, channels, kept: weights[[*kept, channels]])
    monkeypatch.setattr(compress, "refitted", lambda fitted, kept, weights: weights)
    assert 1.5 * fitted < noise()


def test_a_measured_time_that_is_too_long_takes_more_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part alone promises more than the graph shows."""
    plain = hidden(0.9, 2).apply(copy_of(speech()))
    real = channel_times.seconds_of
    monkeypatch.setattr(
        compress,
        "seconds_of",
        lambda calls: [seconds + 6e-5 * (len(calls) > 1 and not at) for at, seconds in enumerate(real(calls))],
    )
    more = hidden(0.9, 2).apply(copy_of(speech()))
    assert cuts_of(more)[0].after < cuts_of(plain)[0].after


def test_a_second_application_does_nothing() -> None:
    once = hidden(0.9, 4).apply(copy_of(speech())).lowered
    again = hidden(0.5, 4).apply(copy_of(once))
    assert not again.rewritten and is_same(again.lowered.model, once.model)


def test_a_time_that_cannot_be_had_is_refused_with_the_nearest_and_its_price() -> None:
    with pytest.raises(Refused, match=r"until a call takes 0\.3 of its time, got 0\.\d\d at .* dB, both predicted"):
        hidden(0.3, 4).apply(copy_of(speech()))


def test_a_graph_without_channels_to_take_is_refused_with_the_reasons() -> None:
    with pytest.raises(Refused, match=r"got none: .*; LayerNormalization normed_layernormalization computes over all"):
        Compress(tile=2 * HIDDEN).apply(copy_of(speech()))
    with pytest.raises(Refused, match=f"it reads {HIDDEN} channels, no more than a tile of {2 * HIDDEN}"):
        Compress(tile=2 * HIDDEN).apply(copy_of(speech()))


def test_products_that_the_recipe_keeps_stay() -> None:
    with pytest.raises(Refused, match=r"the recipe keeps reduced_\*"):
        Compress(tile=4, keep=("reduced_*", "proj*")).apply(copy_of(speech()))
    with pytest.raises(RecipeError, match="keep: expected a pattern that fits a node"):
        Compress(tile=4, keep=("nothing",)).apply(copy_of(speech()))


def test_without_calibration_data_it_is_refused() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        Compress(tile=4).apply(dataclasses.replace(speech(), calibration=None))


WRONG = (
    {"time": 0.0}, {"time": 1.0}, {"time": -2.0}, {"tile": 0}, {"rate": 0.0}, {"updates": 0}, {"train_minutes": -1.0},
    {"answers": "words"},
)  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"(time|tile|rate|updates|train_minutes|answers): expected .*, got "):
        Compress(**options)


def test_the_original_graph_stays_as_it_was() -> None:
    graph: Lowered = speech()
    before = graphs.serialized(graph.model)
    hidden(0.9, 4).apply(copy_of(graph))
    assert graphs.serialized(graph.model) == before


def test_contract_of_heads_and_their_caches() -> None:
    graph = attending()
    outcome = verify_pass(Compress(time=0.85, tile=1), graph, tolerance=2.0)
    ((axis,), _) = inner_axes(outcome.lowered.model, outcome.lowered.states)
    assert axis.count == HEADS - 1 and cuts_of(outcome)[0].after == 3 * SIZE
    shapes = {str(value.name): graphs.dims_of(value) for value in outcome.lowered.model.graph.inputs}
    assert shapes["keys"][2] == 3 * SIZE and shapes["values"][1] == 3  # type: ignore[index]
    (states,) = (each for each in outcome.lowered.state_maps if isinstance(each, KeptEntries))
    assert set(states.states) == {"keys", "values"}


def test_a_head_that_says_what_another_one_says_goes_without_loss() -> None:
    weights = {name: np.array(graphs.array_of(value)) for name, value in attending().model.graph.initializers.items()}
    for name in ("wq", "wk", "wv"):
        weights[name][:, 2 * SIZE : 3 * SIZE] = weights[name][:, :SIZE]
    weights["bias"][2] = weights["bias"][0]
    graph = attending({name: array for name, array in weights.items() if array.dtype == np.float32})
    outcome = Compress(time=0.85, tile=1).apply(copy_of(graph))
    assert outcome.compression is not None and outcome.compression.measured.noise_db > 60


def test_training_behind_the_cut_brings_the_answers_nearer() -> None:
    graph = with_streams(attending(), *([dict(feed) for feed in feeds_of(attending(), 8, seed=at)] for at in range(6)))
    plain, trained = (
        Compress(time=0.7, tile=1, train_minutes=minutes, updates=60, rate=3e-3).apply(copy_of(graph))
        for minutes in (0.0, 10.0)
    )
    assert plain.compression is not None and trained.compression is not None
    assert plain.compression.training is None
    training = trained.compression.training
    assert training is not None and training.unit == "of the power" and training.curve[-1][0] == 60
    assert min(distance for _, distance in training.curve) < training.curve[0][1]
    assert trained.compression.measured.noise_db > plain.compression.measured.noise_db
    assert "; trained 60 updates: " in trained.detail
    assert cuts_of(trained) == cuts_of(plain)


def test_nothing_is_trained_where_calls_have_lengths_of_their_own() -> None:
    varied = dataclasses.replace(speech(), padded_axes=(PaddedAxis("time", "time_length"),))
    with pytest.raises(Refused, match="calls of one size to train on"):
        Compress(time=0.9, tile=4, train_minutes=1.0).apply(copy_of(varied))
