"""Inputs and outputs of a module, from its forward and a few runs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from compiler.errors import RecipeError
from compiler.front.commands.init.factory_signature import Wanted, signature_of_factory
from compiler.front.commands.onnx_signature import Signature
from compiler.graph.sizes.expressions import expression, symbol
from compiler.recipe.graph_parts import Source
from compiler.recipe.load import RecipeLocation
from compiler.recipe.tree.located_yaml import Node


class Shapes(nn.Module):
    """Joins, halves, sums up."""

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        joined = torch.cat([past, x], dim=1)
        return joined, x[:, ::2], x.sum()


class Variadic(nn.Module):
    """Any number of caches."""

    def forward(self, x: Tensor, *caches: Tensor, scale: float = 1.0) -> tuple[Tensor, ...]:
        return (x * scale, *caches)


class Optional(nn.Module):
    """A mask that may be left out; the same name in and out."""

    def forward(self, x: Tensor, mask: Tensor | None = None, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = x if h is None else h + x
        return x if mask is None else x * mask, h


class Writing(nn.Module):
    """Caches in a list, one assigned to and one written in place, neither returned."""

    def forward(self, x: Tensor, caches: list[Tensor]) -> Tensor:
        caches[0] = torch.cat([caches[0], x], dim=1)
        caches[1].copy_(x[:, -1])
        return x + caches[0].sum(dim=1, keepdim=True)


def writing() -> nn.Module:
    return Writing()


def shapes() -> nn.Module:
    return Shapes()


def variadic() -> nn.Module:
    return Variadic()


def optional() -> nn.Module:
    return Optional()


def signature(factory: str, **inputs: Wanted) -> Signature:
    location = RecipeLocation(Path("new.yaml"), Node({}, "init"))
    return signature_of_factory(Source(factory=f"{__name__}:{factory}"), location, inputs)


def test_sizes_of_outputs_follow_the_axes() -> None:
    found = signature("shapes", past=Wanted(("batch", "past", 4)), x=Wanted(("batch", "time", 4)))
    assert [each.name for each in found.inputs] == ["x", "past"]
    joined, halved, total = found.outputs
    assert (joined.name, joined.dims) == ("joined", (symbol("batch"), expression("past + time"), 4))
    assert halved.dims[0] == symbol("batch") and getattr(halved.dims[1], "is_Dummy", False)
    assert (total.name, total.dims) == ("output_2", ())


def test_any_number_of_caches_follows_the_others() -> None:
    found = signature("variadic", x=Wanted((1, 4)), b=Wanted((1, 2)), a=Wanted((1, 3), "float64"))
    assert [each.name for each in found.inputs] == ["x", "b", "a"]
    assert [(each.name, each.dtype) for each in found.outputs] == [
        ("output_0", "float32"), ("output_1", "float32"), ("output_2", "float64"),
    ]  # fmt: skip


def test_inputs_with_a_default_may_be_left_out_from_the_end() -> None:
    assert [each.name for each in signature("optional", x=Wanted((1, 4))).inputs] == ["x"]
    found = signature("optional", x=Wanted((1, 4)), mask=Wanted((1, 4)), h=Wanted((1, 4)))
    assert [each.name for each in found.outputs] == ["output_0", "next_h"]
    with pytest.raises(RecipeError, match="expected inputs without a gap"):
        signature("optional", x=Wanted((1, 4)), h=Wanted((1, 4)))


def test_without_sizes_only_names_are_known() -> None:
    found = signature("shapes")
    assert [each.name for each in found.inputs] == ["x", "past"]
    assert found.outputs == ()


def test_a_module_that_does_not_run_is_told_with_its_line() -> None:
    with pytest.raises(RecipeError, match="to answer x") as caught:
        signature("shapes", x=Wanted((1, 4, 4)), past=Wanted((1, 4, 5)))
    assert "test_factory_signature.py" in str(caught.value) and "joined = torch.cat" in str(caught.value)


def test_parts_of_a_list_that_forward_writes_into_are_inputs_and_outputs() -> None:
    found = signature(
        "writing",
        **{"caches.0": Wanted(("batch", "past", 4)), "caches.1": Wanted(("batch", 4)), "x": Wanted(("batch", 2, 4))},
    )
    assert [each.name for each in found.inputs] == ["x", "caches.0", "caches.1"]
    assert [(each.name, each.dims) for each in found.outputs] == [
        ("output_0", (symbol("batch"), 2, 4)),
        ("next_caches.0", (symbol("batch"), expression("past + 2"), 4)),
        ("next_caches.1", (symbol("batch"), 4)),
    ]
    with pytest.raises(RecipeError, match=r"--input: expected x, caches, as forward takes them, got no caches"):
        signature("writing", x=Wanted(("batch", 2, 4)))
