"""null: the whole compiler runs, and nothing is written."""

from pathlib import Path

import pytest

from compiler.errors import InternalError
from compiler.targets.null import Null
from tests.kit.contract import content_of
from tests.kit.graphs import streaming


def test_emits_nothing_and_leaves_the_graph_alone() -> None:
    lowered = streaming()
    before = content_of(lowered)
    built = Null().emit(lowered, {"batch": (1, 4)})
    assert (built.artifacts, dict(built.files), dict(built.versions)) == ((), {}, {})
    assert content_of(lowered) == before
    assert not Null.ships


def test_there_is_nothing_to_open_and_nothing_to_build() -> None:
    with pytest.raises(InternalError, match="of a target that writes none"):
        Null().open(Path("graphs/x.onnx"))
    assert Null().absent() is None
