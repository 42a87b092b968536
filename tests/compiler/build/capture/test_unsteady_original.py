"""unsteady_original: a model that differs from itself is named with what it draws, keeps or is made of."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture.torch_module import TorchReference
from compiler.build.capture.unsteady_original import name_draws, require_same_module, unsteady
from compiler.errors import RecipeError, Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.recipe.gates import Tolerance
from tests.compiler.build.capture.test_torch_module import ONE
from tests.kit.graphs import feeds_of, streaming

LIMITS = Tolerance(max_abs=1e-5)
FEED = {"x": np.ones((1, 4), np.float32)}


class Model(nn.Module):
    """Answers with what a function makes of a linear layer."""

    def __init__(self, answer: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.answer, self.calls = nn.Linear(4, 4), answer, 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self, self.linear(x))


def noisy(model: Any, x: Tensor) -> Tensor:
    return x + 0.1 * torch.randn_like(x)


def dropped(model: Any, x: Tensor) -> Tensor:
    return nn.functional.dropout(x, 0.5)


def numpys(model: Any, x: Tensor) -> Tensor:
    return torch.mul(x, float(np.random.random()))


def pythons(model: Any, x: Tensor) -> Tensor:
    return x * random.random()


def averaged(model: Any, x: Tensor) -> Tensor:
    model.mean = 0.9 * model.mean + 0.1 * x.mean(0)
    return torch.sub(x, model.mean)


def counted(model: Any, x: Tensor) -> Tensor:
    model.calls += 1
    return torch.mul(x, model.calls)


def of_the_world(model: Any, x: Tensor) -> Tensor:
    return x * next(TICKS)


TICKS = iter(range(10**6))


def plain(model: Any, x: Tensor) -> Tensor:
    return x.sigmoid()


def said_of(answer: Callable[[Any, Tensor], Tensor]) -> SlipwayError | None:
    reference = TorchReference(Model(answer).eval(), None, ONE, ())
    return unsteady(reference, [FEED] * 2, LIMITS, "net", streaming().model)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (noisy, "draws random numbers in every call, with randn_like; draw them outside"),
        (dropped, "draws random numbers in every call, with bernoulli"),
        (numpys, "with NumPy's or Python's generator"),
        (pythons, "with NumPy's or Python's generator"),
        (averaged, "keeps a state of its own from call to call: mean changed"),
        (counted, "keeps a state of its own from call to call: calls changed"),
        (of_the_world, "answers the same feeds otherwise when it is run again"),
    ],
)
def test_a_model_that_differs_from_itself_is_refused_with_why(
    answer: Callable[[Any, Tensor], Tensor], words: str
) -> None:
    found = said_of(answer)
    assert found is not None and found.exit_code == 3 and words in str(found)


def test_the_line_that_draws_is_named() -> None:
    found = said_of(noisy)
    assert found is not None and "test_unsteady_original.py:" in found.place.source and "in noisy" in found.place.source


def test_nothing_is_said_of_a_model_that_answers_alike_twice() -> None:
    assert said_of(plain) is None


def test_a_file_that_draws_is_refused_with_its_node() -> None:
    lowered = streaming()
    feeds = feeds_of(lowered, 1)
    insert = graphs.Inserter(lowered.model, "test")
    node = insert.op("RandomNormalLike", [lowered.model.graph.outputs[0]], name="noise")
    answers = iter(range(10**6))
    reference: Any = SimpleNamespace(modules=(), run=lambda feeds: [({"y": np.array(float(next(answers)))}, {})])
    found = unsteady(reference, feeds, LIMITS, "net", lowered.model)
    assert isinstance(node, ir.Value) and found is not None
    assert found.place.op == "RandomNormalLike" and "with RandomNormalLike" in str(found)


def test_generators_of_others_are_left_as_they_were() -> None:
    np.random.seed(5)
    random.seed(5)
    before = str(np.random.get_state()), random.getstate()
    said_of(of_the_world)
    assert (str(np.random.get_state()), random.getstate()) == before


def test_a_factory_that_makes_other_weights_in_every_call_is_named() -> None:
    with pytest.raises(
        RecipeError, match=r"m.yaml:4: expected net:build to make the same model .* linear.weight, lin"
    ) as e:
        require_same_module(lambda: Model(plain), "m.yaml:4", "net:build")
    assert "seed it" in str(e.value)


def test_a_seeded_factory_is_fine() -> None:
    def made() -> Model:
        torch.manual_seed(0)
        return Model(plain)

    require_same_module(made, "m.yaml:4", "net:build")


@pytest.mark.parametrize(("answer", "is_named"), [(noisy, True), (plain, False)])
def test_an_error_of_a_call_names_what_is_drawn_in_it(answer: Callable[[Any, Tensor], Tensor], is_named: bool) -> None:
    model, error = Model(answer), Refused("expected two rows, got one", cure="give two")

    def again() -> None:
        model(torch.ones(1, 4))
        raise Refused("expected two rows, got one")

    name_draws(error, again)
    told = str(error)
    assert told.startswith("expected two rows, got one") and "give two" in told
    assert ("besides, the model draws random numbers in every call, with randn_like" in told) == is_named
    assert ("test_unsteady_original.py:" in told) == is_named
