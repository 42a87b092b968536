"""States are cut to the newest frames inside the graph; what reads them there reads them whole."""

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.states.kept_frames import keep_newest
from tests.kit.graphs import parse

TEXT = """
(float[1,chunk,2] x, float[1,cache,2] c) => (float[1,all,2] d, float[1,all,2] y)
{ d = Concat<axis = 1>(c, x)  y = Relu(d) }
"""


def test_as_many_frames_as_there_are_up_to_the_slots() -> None:
    model = parse(TEXT, {})
    keep_newest(model, 3, {"d": 1})
    x = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    for cached, kept in ((0, 2), (1, 3), (5, 3)):
        c = -1 - np.arange(2 * cached, dtype=np.float32).reshape(1, cached, 2)
        found = run_model(model, {"x": x, "c": c})
        whole = np.concatenate([c, x], axis=1)
        np.testing.assert_array_equal(found["d"], whole[:, cached + 2 - kept :])
        np.testing.assert_array_equal(found["y"], np.maximum(whole, 0))
    assert str((graphs.dims_of(graphs.outputs_named(model)["d"]) or ())[1]) == "Min(3, cache + chunk)"
