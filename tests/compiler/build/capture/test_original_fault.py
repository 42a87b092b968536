"""original_fault: who is to blame for a graph that differs from its original."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from compiler.build.capture import original_fault as asked
from compiler.build.capture import torch_module
from compiler.build.capture.torch_module import TorchReference
from compiler.errors import RecipeError, Refused, SlipwayError
from compiler.recipe.gates import Tolerance
from tests.compiler.build.capture.test_exported_graph import Net
from tests.compiler.build.capture.test_torch_module import ONE
from tests.kit.graphs import streaming

PLACES: Any = SimpleNamespace(where=lambda *keys: "m.yaml:4: " + ".".join(keys))
FEEDS = [{"x": np.full((1, 4), number, np.float32)} for number in (1.0, 2.0)]


def fault(net: Net) -> SlipwayError | None:
    reference = TorchReference(net, None, ONE, ())
    return asked.original_fault(PLACES, "net", ONE, reference, FEEDS, Tolerance(max_abs=1e-5), streaming().model)


def test_a_factory_without_a_seed_is_asked_about_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "load_module", lambda *_: Net())
    found = fault(Net())
    assert isinstance(found, RecipeError) and "expected m:f to make the same model" in str(found)


def test_the_exporter_is_asked_about_the_call_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    net, told = Net().eval(), list[Any]()

    def exporter_fault(exported: Any, graph: str, given: Mapping[str, Any], wanted: Sequence[Any]) -> Refused:
        told.extend((exported, given, wanted))
        return Refused("a fault")

    monkeypatch.setattr(torch_module, "load_module", lambda *_: net)
    monkeypatch.setattr(torch_module, "exported_module", lambda module, graph, spec, names: (module, names))
    monkeypatch.setattr(asked, "exporter_fault", exporter_fault)
    assert "a fault" in str(fault(net))
    exported, given, wanted = told
    assert exported == (net, ["x"]) and given["x"].tolist() == FEEDS[1]["x"].tolist()
    with torch.no_grad():
        assert np.array_equal(wanted[0], net(torch.from_numpy(FEEDS[1]["x"])).numpy())
