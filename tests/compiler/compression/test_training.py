"""training: tied entries stay equal, answers come nearer, and a run that was stopped goes on."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from compiler.compression import training
from compiler.compression.batches import Batches
from compiler.compression.tied_weights import Tie

TIES = (Tie("key.weight", 0, np.arange(4).reshape(1, 2, 2)), Tie("key.bias", 0, np.arange(4).reshape(1, 2, 2)))

TRAINING = training.Training(updates=30, limit_s=1e6, rate=1e-2, seed=3, classes=True, skipped=1)

AHEAD = [{"x": np.random.default_rng(seed).standard_normal((1, 3 + seed % 3, 4)).astype("f")} for seed in range(12)]

BATCHES = Batches(AHEAD, {"x": 1}, rows=4)


class Net(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.key, self.rest = torch.nn.Linear(4, 4), torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rest(torch.tanh(self.key(x)))
        return found


def answers(seed: int, *, tied: bool = False) -> training.Answers:
    net = Net(seed).eval()
    if tied:
        with torch.no_grad():
            net.key.weight[2:], net.key.bias[2:] = net.key.weight[:2].clone(), net.key.bias[:2].clone()
    return training.Answers(net, (1,))


def run(student: training.Answers, state: Path, **changes: object) -> training.RunPosition:
    how = dataclasses.replace(TRAINING, **changes)  # type: ignore[arg-type]
    return training.distill(student, answers(0), TIES, BATCHES, how, state, lambda done, total: None)


@pytest.mark.parametrize("classes", [True, False])
def test_answers_come_nearer_while_tied_entries_stay_equal(tmp_path: Path, classes: bool) -> None:
    student, how = answers(1, tied=True), dataclasses.replace(TRAINING, classes=classes)
    before = training.mean_distance(student, answers(0), BATCHES, how)
    assert run(student, tmp_path / "state", classes=classes).update == 30
    assert training.mean_distance(student, answers(0), BATCHES, how) < 0.8 * before
    key = student.module.get_submodule("key")
    for name in ("weight", "bias"):
        first, second = key.get_parameter(name)[:2], key.get_parameter(name)[2:]
        assert torch.equal(first, second)
    assert not torch.equal(key.get_parameter("weight"), answers(1, tied=True).module.get_parameter("key.weight"))


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "KEPT_EVERY_S", 0.0)
    whole, parts = answers(1, tied=True), answers(1, tied=True)
    run(whole, tmp_path / "whole")
    counted = []

    def stop(done: int, total: int) -> None:
        counted.append(done)
        if len(counted) == 12:
            raise KeyboardInterrupt

    for _ in range(2):  # the second leg begins with the module as it was at first
        again = answers(1, tied=True)
        try:
            training.distill(again, answers(0), TIES, BATCHES, TRAINING, tmp_path / "state", stop)
        except KeyboardInterrupt:
            continue
        parts = again
    assert counted == [*range(1, 13), *range(12, 31)]
    for name, value in whole.module.named_parameters():
        np.testing.assert_allclose(value.detach(), parts.module.get_parameter(name).detach(), rtol=1e-3, atol=1e-4)


def test_a_run_ends_with_its_time_and_a_damaged_state_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"no state")
    assert run(answers(1, tied=True), tmp_path / "state", limit_s=1e-9).update == 1


def test_what_fills_up_and_what_is_skipped_does_not_count() -> None:
    both, teacher = BATCHES.of([0, 2]), answers(0)
    assert both.lengths.tolist() == [3, 5]
    student = answers(1)
    nats = float(training.distance(student, teacher, both, TRAINING).detach())
    by_hand = []
    for feed in (AHEAD[0], AHEAD[2]):
        logs = [torch.log_softmax(torch.from_numpy(each.answered(feed)[0]), -1)[0, 1:] for each in (teacher, student)]
        by_hand += (logs[0].exp() * (logs[0] - logs[1])).sum(-1).tolist()
    assert nats == pytest.approx(np.mean(by_hand), rel=1e-4)


def test_answers_without_time_count_whole() -> None:
    batch = Batches(AHEAD[:1], {}, rows=1).of([0])
    same = dataclasses.replace(answers(0), along=(None,))
    other = dataclasses.replace(answers(1), along=(None,))
    how = dataclasses.replace(TRAINING, classes=False)
    assert float(training.distance(same, same, batch, how).detach()) == 0.0
    right, got = same.answered(AHEAD[0])[0], other.answered(AHEAD[0])[0]
    expected = np.square(got - right).sum() / np.square(right).sum()
    assert float(training.distance(other, same, batch, how).detach()) == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_has_every_tensor() -> None:
    student = answers(1)
    found = safetensors.torch.load(training.checkpoint_of(student.module))
    assert found.keys() == student.module.state_dict().keys()
    given = training.parameters_of(student.module)
    training.write_parameters(student.module, {"key.bias": given["key.bias"] + 1})
    assert torch.equal(student.module.get_parameter("key.bias"), found["key.bias"] + 1)
