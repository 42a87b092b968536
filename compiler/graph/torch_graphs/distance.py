"""How far the answers of one model are from those of another, in torch."""

import torch
from torch import Tensor
from torch.nn import functional


def divergence(got: Tensor, wanted: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of scores from the wanted ones, nats, without the last axis.

    Args:
        got: scores of classes along the last axis.
        wanted: the same of the model that is learned from.
    """
    logs = functional.log_softmax(wanted, dim=-1)
    return (logs.exp() * (logs - functional.log_softmax(got, dim=-1))).sum(dim=-1)


def noise_share(got: Tensor, wanted: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return |got - wanted|^2 / |wanted|^2, a scalar.

    Args:
        got: numbers.
        wanted: the same of the model that is learned from.
        counted: 1 for what counts, 0 for what does not, of a shape that broadcasts; None where everything counts.
    """
    weights = torch.ones(()) if counted is None else counted
    power = (wanted.square() * weights).sum().clamp(min=torch.finfo(wanted.dtype).tiny)
    return ((got - wanted).square() * weights).sum() / power
