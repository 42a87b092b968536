"""exported_graph: a graph that the exporter has written wrongly is its fault, and the node is named."""

import re

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture import torch_module
from compiler.build.capture.exported_graph import Exported, exporter_fault, require_opened
from compiler.errors import Refused
from compiler.graph import model as graphs
from tests.compiler.build.capture.test_torch_module import ONE
from tests.kit.graphs import streaming


class Net(nn.Module):
    """Three steps, on three lines."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        x = torch.sigmoid(x)
        return x * 3


X = {"x": np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)}


@pytest.fixture(scope="module")
def written() -> tuple[Exported, list[np.ndarray]]:
    module = Net().eval()
    with torch.no_grad():
        answer = module(torch.from_numpy(X["x"])).numpy()
    return torch_module.exported_module(module, "net", ONE, ["x"]), [answer]


Written = tuple[Exported, list[np.ndarray]]


def test_nothing_is_said_of_a_graph_that_answers_as_the_model(written: Written) -> None:
    assert exporter_fault(written[0], "net", X, written[1]) is None


def test_the_first_node_that_differs_is_named_with_its_line(written: Written) -> None:
    model = graphs.clone(written[0].model)
    (node,) = [node for node in model.graph if node.op_type == "Sigmoid"]
    tanh = graphs.Inserter(model, "test", before=node).op("Tanh", [node.inputs[0]], name="other")
    name, source = node.outputs[0].name, graphs.source_of(node)
    graphs.take_over(model, node.outputs[0], tanh)
    node.outputs[0].name, tanh.name = "was", name
    tanh.producer().metadata_props[graphs.SOURCE_KEY] = source  # type: ignore[union-attr]
    fault = exporter_fault(Exported(model, written[0].recorded), "net", X, written[1])
    assert fault is not None and fault.exit_code == 3
    assert "torch's exporter has written a graph that answers otherwise than the model: sigmoid is the first" in str(
        fault
    )
    assert fault.place.op == "Tanh" and "x = torch.sigmoid(x)" in fault.place.source


def test_a_graph_that_does_not_run_is_named_with_its_node(written: Written) -> None:
    model = graphs.clone(written[0].model)
    (node,) = [node for node in model.graph if node.op_type == "Sigmoid"]
    insert = graphs.Inserter(model, "test", before=node)
    spread = insert.op("Expand", [node.inputs[0], insert.constant(np.array([7, 4]), "example")], name="spread")
    node.replace_input_with(0, spread)
    fault = exporter_fault(Exported(model, written[0].recorded), "net", X, written[1])
    assert fault is not None and "that ONNX Runtime does not run" in str(fault) and fault.place.op == "Expand"


def test_a_model_that_is_not_what_was_recorded_is_said_to_branch(written: Written) -> None:
    fault = exporter_fault(written[0], "net", X, [written[1][0] + 1])
    assert fault is not None and "torch.export has recorded something else than the model computes" in str(fault)


def test_a_graph_that_does_not_open_is_refused_with_node_and_line() -> None:
    model = streaming().model
    (node,) = [node for node in model.graph if node.op_type == "Softmax"]
    node.metadata_props[graphs.SOURCE_KEY] = "net.py:7 in forward"
    node.replace_input_with(0, graphs.Inserter(model, "test", before=node).constant(np.array([1, 2]), "whole"))
    with pytest.raises(Refused) as caught:
        require_opened(model, "net")
    assert "torch's exporter has written a graph that ONNX Runtime does not open" in str(caught.value)
    assert (caught.value.place.op, caught.value.place.source) == ("Softmax", "net.py:7 in forward")


def test_an_operator_without_a_kernel_is_not_the_exporters_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(model: ir.Model) -> None:
        raise type("NotImplemented", (Exception,), {})(
            "Could not find an implementation for Softmax(13) node with name 'weights_softmax'"
        )

    monkeypatch.setattr("compiler.build.capture.exported_graph.session_of", opened)
    with pytest.raises(Refused) as caught:
        require_opened(streaming().model, "net")
    assert "has no kernel for" in str(caught.value) and "fault" not in str(caught.value)
    assert caught.value.place.node == "weights_softmax"


class Projected(nn.Module):
    """An LSTM whose states are projected: the exporter writes it with one width for the output and for the cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, proj_size=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.lstm(x[:, None])[0]
        return answer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_projected_recurrences_are_the_exporters_fault_and_named_with_their_line() -> None:
    module = Projected().eval()
    exported = torch_module.exported_module(module, "net", ONE, ["x"])
    with torch.no_grad():
        answer = module(torch.from_numpy(X["x"])).numpy()
    fault = exporter_fault(exported, "net", X, [answer])
    assert fault is not None and "that ONNX Runtime does not run" in str(fault) and fault.exit_code == 3
    assert fault.place.op == "LSTM" and re.search(r"test_exported_graph.py:\d+ in forward of lstm", fault.place.source)
