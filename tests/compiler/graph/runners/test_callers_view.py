"""callers_view: a graph for one row takes and gives rows in front."""

import dataclasses

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import OneRowSession, caller_dims, for_callers
from compiler.graph.runners.padded_rows import RowsRunner
from compiler.graph.runners.session import open_session
from compiler.graph.stages import PaddedAxis
from tests.kit.one_row import one_row

TEXT = """(float[t,4] x, float[4,1] state) => (float[t,4] y, float[4,1] next)
<int64[2] row = {1, 4}> { flat = Reshape(state, row)  y = Add(x, flat)  next = Neg(state) }"""
LOWERED = one_row(TEXT, {"x": None, "state": 1, "y": None, "next": 1})
X, STATE = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((1, 3, 4), (1, 4)))


def test_shapes_have_the_batch_in_front() -> None:
    frames = graphs.symbol("t")
    assert caller_dims(LOWERED) == {"x": (1, frames, 4), "state": (1, 4), "y": (1, frames, 4), "next": (1, 4)}


def test_feeds_and_answers_have_the_batch_in_front() -> None:
    session = for_callers(open_session(graphs.serialized(LOWERED.model)), LOWERED)
    y, following = session.run(None, {"x": X, "state": STATE})
    assert np.array_equal(y, X + STATE)
    assert np.array_equal(following, -STATE)
    (following,) = session.run(["next"], {"x": X, "state": STATE})
    assert following.shape == (1, 4)


def test_other_graphs_keep_their_session() -> None:
    session = open_session(graphs.serialized(LOWERED.model))
    assert for_callers(session, dataclasses.replace(LOWERED, row_axes=())) is session
    assert isinstance(for_callers(session, LOWERED), OneRowSession)


def test_an_utterance_of_one_row_is_run_at_its_length() -> None:
    lowered = dataclasses.replace(LOWERED, padded_axes=(PaddedAxis("t", "t_length"),))
    runner = RowsRunner(lowered, open_session(graphs.serialized(LOWERED.model)))
    assert runner.lengths_of({"x": X}) == {"t": 3}
    assert np.array_equal(runner.step({"x": X, "state": STATE})["y"], X + STATE)
