"""Recurrences traced one after the other in one process."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compiler.build.capture.traced_recurrences import RECURRENCES, recurrences_of_any_length


class Recurrent(nn.Module):
    """A recurrence over frames of four features."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.network: Any = kind(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)[0]  # type: ignore[no-any-return]


def traced(module: nn.Module, axes: Sequence[int] = (1,), frames: int = 7) -> list[int]:
    """The axes of the result that have any size, of those of the input that do."""
    shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), (torch.zeros(2, frames, 4),), dynamic_shapes=shapes, strict=False)
    (result,) = next(iter(reversed(program.graph.nodes))).args[0]
    return [axis for axis, size in enumerate(result.meta["val"].shape) if isinstance(size, torch.SymInt)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrences_have_any_length_behind_others_that_were_unrolled(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    with pytest.raises(Exception, match="specialized it to be a constant"):
        traced(Recurrent(kind))
    for _ in range(2):
        with recurrences_of_any_length():
            assert traced(Recurrent(kind)) == [1]
    assert not any(operator._dispatch_cache for operator in RECURRENCES), "what is looked up next is what is registered"


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrences_have_axes_of_any_size_behind_others_that_were_fixed(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    for axes, frames in (([], 4), ([0, 1], 7)):
        with recurrences_of_any_length():
            assert traced(Recurrent(kind), axes, frames) == axes


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrences_begin_with_one_learnt_state_in_all_rows(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    class Learnt(Recurrent):
        def __init__(self) -> None:
            super().__init__(kind)
            self.first = nn.Parameter(torch.ones(1, 1, 4))

        def forward(self, x: Tensor) -> Tensor:
            first = self.first.expand(-1, x.shape[0], -1)
            return self.network(x, first if kind is nn.GRU else (first, first))[0]  # type: ignore[no-any-return]

    with recurrences_of_any_length():
        assert traced(Learnt(), [0, 1]) == [0, 1]
