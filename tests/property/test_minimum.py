"""At the smallest length that a certificate allows, the original itself means something: it runs, and stays finite."""

import json

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.capture.onnx_source.opset_conversion import raised
from compiler.checker.check import check
from compiler.checker.graph import Rejected
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from tests.kit.agreement import PROVED, REFUSED, judged
from tests.kit.graphs import BATCH
from tests.kit.offline import free_size
from tests.property.small_graphs import Small, corpus

GRAPHS = list(corpus())
QUICK = GRAPHS[::6]
PARTS = 4


def minimum_of(origin: Lowered) -> dict[str, int] | None:
    """The smallest certified length per axis; None where padding is refused."""
    model = raised(graphs.clone(origin.model))
    graphs.infer_shapes(model)
    try:
        outcome = PadAxes().apply(Lowered(**{**vars(origin), "model": model}))
    except Refused:
        return None
    return dict(outcome.records[0]["minimum"])


def answers(origin: Lowered, lengths: dict[str, int]) -> list[np.ndarray]:
    """What the original answers to one row of ordinary numbers of given lengths."""
    rng = np.random.default_rng(0)
    known, free = {BATCH: 1, "rows": 1, **lengths}, free_size(origin)
    feeds = {}
    for value in origin.model.graph.inputs:
        assert value.dtype is not None
        shape = [int(str(dim)) if str(dim).isdigit() else known.get(str(dim), free) for dim in value.shape or ()]
        feeds[str(value.name)] = rng.standard_normal(shape).astype(value.dtype.numpy())
    return [np.asarray(each) for each in open_session(graphs.serialized(origin.model)).run(None, feeds)]


def _judge(graphs: list[Small]) -> None:
    wrong = []
    for small in graphs:
        origin = small.make()
        least = minimum_of(origin)
        if least is None:
            continue
        try:
            found = answers(origin, least)
        except Exception as error:  # noqa: BLE001 - whatever stops the original refutes the minimum
            wrong.append(f"{small.name}: does not run at {least}: {error}")
            continue
        if not all(np.isfinite(each).all() for each in found):
            wrong.append(f"{small.name}: not finite at {least}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(PARTS))
def test_some_graphs_answer_at_their_minimum(part: int) -> None:
    _judge(QUICK[part::PARTS])


@pytest.mark.slow
def test_all_graphs_answer_at_their_minimum() -> None:
    _judge(GRAPHS)


LEAST = {
    "mean by the length less one": 2,
    "whole quotient by the length less one": 2,
    "remainder by the length less one": 2,
    "whole quotient by a remainder": None,
    "quotient by a remainder of the length": 1,
    "reciprocal of the length less one": 2,
    "log of the length less one": 2,
    "quotient by the log of the length": 2,
    "root of the length less two": 2,
    "inverse root of the length less one": 2,
    "positions from 0 to 1": 2,
    "remainder of positions by the length": 2,
    "corners aligned, of the length": 2,
    "third last frame by its number": 3,
    "frames from three before on": 3,
    "three rows of a table up to the length": 3,
    "row of a table far before the length": 4,
    "frames behind the second, folded": 3,
    "whole groups of four, apart": 4,
    "mean by the count of a mask of ones less one": 2,
    "root of the count of a mask less four": 4,
    "inverse hyperbolic cosine of the count less one": 2,
    "whole quotient by the whole count of a mask less one": 2,
    "whole quotient by a count that is rounded": None,
    "whole quotient by the count of a mask less one, kept above 0": 1,
    "whole quotients by one length for every frame": 2,
    "shares of a row that all share, by its count less one": 2,
    "root of shares of a row that all share, less four": None,
    "reciprocal where the log of the count begins": 3,
    "zeros filled in, three less than frames": 3,
}
"""The shortest length at which numbers of lengths mean something; None where the graph is refused."""

OF_DATA = {
    "maximum behind the second": 3,
    "valid convolution": 3,
    "top two frames": 2,
    "whole pairs, upsampled": 2,
    "behind the first, pooled with ends": 2,
    "padded by reflection": 2,
}
"""The same for graphs whose operators of data require a least number of entries."""


@pytest.mark.parametrize(("name", "least"), (LEAST | OF_DATA).items())
def test_the_shortest_length_of(name: str, least: int | None) -> None:
    (small,) = [each for each in GRAPHS if each.name == name]
    assert minimum_of(small.make()) == (None if least is None else {"time": least})
    _judge([small])


@pytest.mark.parametrize("name", [name for name in LEAST if "count" in name or "share" in name])
def test_the_shortest_length_of_the_only_row(name: str) -> None:
    (small,) = [each for each in GRAPHS if each.name == f"{name}, literal batch"]
    verdict, outcome = judged(small.make())
    least = LEAST[name]
    assert verdict == (REFUSED if least is None else PROVED)
    assert isinstance(outcome, Refused) or outcome.records[0]["minimum"] == {"time": least}


@pytest.mark.parametrize("name", [name for name, least in LEAST.items() if least not in (None, 1)])
def test_the_checker_rejects_a_shorter_length_of(name: str) -> None:
    (small,) = [each for each in GRAPHS if each.name == name]
    origin = small.make()
    graphs.infer_shapes(origin.model)
    before = ir.serde.serialize_model(graphs.clone(origin.model))
    outcome = PadAxes().apply(origin)
    after = ir.serde.serialize_model(outcome.lowered.model)
    certificate = json.loads(json.dumps(outcome.records[0]))
    check(before, after, certificate)
    certificate["minimum"]["time"] -= 1
    with pytest.raises(Rejected):
        check(before, after, certificate)
