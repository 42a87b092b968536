"""distance: how far answers are apart."""

import pytest
import torch

from compiler.graph.torch_graphs.distance import divergence, noise_share


def test_the_divergence_is_that_of_the_probabilities() -> None:
    got, wanted = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    p, q = torch.softmax(wanted, -1), torch.softmax(got, -1)
    assert divergence(got, wanted).shape == (1,)
    assert float(divergence(got, wanted)) == pytest.approx(float((p * (p / q).log()).sum()))
    assert float(divergence(got + 7.0, got)) == pytest.approx(0.0, abs=1e-6), "scores have no place of their own"


def test_the_share_of_power_counts_what_is_to_count() -> None:
    got, wanted = torch.tensor([[1.0, 5.0], [2.0, 2.0]]), torch.tensor([[2.0, 1.0], [2.0, 1.0]])
    assert float(noise_share(got, wanted)) == pytest.approx((1 + 16 + 0 + 1) / (4 + 1 + 4 + 1))
    assert float(noise_share(got, wanted, torch.tensor([[1.0, 0.0]]))) == pytest.approx(1 / 8)
    assert float(noise_share(torch.zeros(2), torch.zeros(2))) == 0.0
