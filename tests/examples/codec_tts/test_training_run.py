"""A run that was stopped and goes on is the run that was not stopped."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.codec_tts import training_run


def _begin() -> tuple[torch.nn.Module, torch.optim.AdamW]:
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 2)
    return module, torch.optim.AdamW(module.parameters(), lr=0.1)


def _step(module: torch.nn.Module, optimizer: torch.optim.AdamW, seed: int) -> None:
    given = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    module(given).square().sum().backward()
    optimizer.step()


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    module, optimizer = _begin()
    for seed in range(3):
        _step(module, optimizer, seed)
    training_run.save(tmp_path / "run.state", module, optimizer, training_run.RunPosition(3, 1.5))
    again, its_optimizer = _begin()
    assert training_run.load(tmp_path / "run.state", again, its_optimizer) == training_run.RunPosition(3, 1.5)
    for each in ((module, optimizer), (again, its_optimizer)):
        _step(*each, seed=3)
    for ours, theirs in zip(again.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert [path.name for path in tmp_path.iterdir()] == ["run.state"]


def test_a_run_without_a_state_starts_anew(tmp_path: Path) -> None:
    assert training_run.load(tmp_path / "run.state", *_begin()) == training_run.RunPosition(0, 0.0)


def test_the_rate_rises_by_steps_and_falls_by_the_clock() -> None:
    options = training_run.Options(budget_s=60.0, peak_rate=1e-3, warm_up_steps=100)

    def rate(step: int, spent_s: float) -> float:
        return training_run.rate(options, training_run.RunPosition(step, spent_s))

    rates = [rate(step, 0.0) for step in range(0, 100, 20)]
    assert rates == sorted(rates)
    assert rate(1000, 30.0) == pytest.approx(5e-4)
    assert rate(1000, 60.0) == rate(1000, 90.0) == pytest.approx(2e-5)


def test_a_run_in_two_legs_draws_each_batch_once_and_keeps_at_the_end_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = _begin()
    drawn: list[int] = []

    def losses(chance: np.random.Generator) -> training_run.LossParts:
        drawn.append(int(chance.integers(2**40)))
        total = module(torch.ones(1, 3)).square().sum()
        return training_run.LossParts(total, {"square": total})

    for budget_s in (3.0, 6.0):
        ticks = iter(range(1000))
        monkeypatch.setattr(time, "monotonic", lambda ticks=ticks: float(next(ticks)))
        options = training_run.Options(budget_s=budget_s, seed=4)
        training_run.run(module, losses, lambda: "kept", options, tmp_path / "run.state")
    assert drawn == [int(np.random.default_rng((4, step)).integers(2**40)) for step in range(len(drawn))]
    assert len(drawn) == 6
    assert capsys.readouterr().out.count("development: kept") == 2
