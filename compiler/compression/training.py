"""Trains a module whose heads share keys and values to reproduce the outputs of the original, by distillation.

The module computes with its own `forward`; tied entries get the mean of their gradients and are made equal again
behind every update, so that they stay equal to the last bit. Batches depend on the seed and the number of the update
alone, and the state of a run is kept: one that was stopped goes on as if nothing had happened.

Source: distillation by the divergence of the answers (Hinton et al. 2015, arXiv 1503.02531, at temperature 1); AdamW
(Loshchilov and Hutter 2019).
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from compiler.compression.batches import Batch, Batches
from compiler.compression.tied_weights import Tie
from compiler.graph.stages import Array, Feed
from compiler.graph.torch_graphs.distance import divergence, noise_share
from compiler.recipe.user_code.nested import arguments_of, leaves_of

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""

LARGEST_NORM = 1.0
"""Gradients are clipped to this norm."""

WARM_UP = 50
"""Updates in which the learning rate rises."""

KEPT_EVERY_S = 30.0


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train.

    Attributes:
        updates: most updates of the training.
        limit_s: seconds that all legs of the run may take together.
        rate: highest learning rate.
        seed: of the batches.
        classes: whether answers are scores of classes along their last axis; numbers otherwise.
        skipped: frames in front whose answers do not count.
    """

    updates: int
    limit_s: float
    rate: float
    seed: int
    classes: bool
    skipped: int


@dataclasses.dataclass
class RunPosition:
    """How far a run is.

    Attributes:
        update: updates made.
        spent_s: seconds of training behind them, over all legs.
    """

    update: int = 0
    spent_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Answers:
    """The outputs of a module for batches.

    Attributes:
        module: takes the inputs by the recipe's names, in its order.
        along: the axis of time of each answer, None where it has none.
    """

    module: torch.nn.Module
    along: Sequence[int | None]

    def to(self, batch: Batch) -> list[Tensor]:
        """Return the results of the module for a batch."""
        tensors = [torch.from_numpy(np.array(array, order="C")) for array in batch.feed.values()]
        return list(leaves_of(self.module(*arguments_of(self.module.forward, list(batch.feed), tensors))))

    def answered(self, feed: Feed) -> list[Array]:
        """Return the results for one feed, as arrays."""
        with torch.no_grad():
            return [each.numpy() for each in self.to(Batch(feed, np.zeros(1, np.int64)))]


def distance(student: Answers, teacher: Answers, batch: Batch, training: Training) -> Tensor:
    """Return the distance of two modules' results, a scalar.

    Classes: the Kullback-Leibler divergence of the teacher's probabilities from the student's, nats, the mean over all
    counted positions. Numbers: |a - b|^2 / |b|^2. Several results are summed.
    """
    with torch.no_grad():
        right = teacher.to(batch)
    total = torch.zeros(())
    for got, wanted, axis in zip(student.to(batch), right, student.along, strict=True):
        counted = _counted(wanted, axis, batch, training.skipped)
        if training.classes:
            apart = divergence(got, wanted)
            total = total + (apart * counted[..., 0]).sum() / counted[..., 0].expand_as(apart).sum().clamp(min=1)
        else:
            total = total + noise_share(got, wanted, counted)
    return total


def _counted(answer: Tensor, axis: int | None, batch: Batch, skipped: int) -> Tensor:
    """Return 1 for each counted frame, 0 for skipped and padded ones, with the result's rank."""
    if axis is None:
        return torch.ones([1] * answer.ndim)
    places = torch.arange(answer.shape[axis])
    inside = (places >= skipped) & (places < torch.from_numpy(batch.lengths)[:, None])
    shape = [len(batch.lengths) if at == 0 else -1 if at == axis else 1 for at in range(answer.ndim)]
    return inside.float().reshape(shape)


def mean_distance(student: Answers, teacher: Answers, batches: Batches, training: Training) -> float:
    """Return `distance` over all sequences, the mean over batches weighted by their rows."""
    with torch.no_grad():
        found = [(float(distance(student, teacher, each, training)), len(each.lengths)) for each in batches.every()]
    return float(np.average([each for each, _ in found], weights=[rows for _, rows in found]))


def distill(
    student: Answers,
    teacher: Answers,
    ties: Sequence[Tie],
    batches: Batches,
    training: Training,
    state: Path,
    advance: Callable[[int, int], None],
) -> RunPosition:
    """Train the student until the updates are made or the time is spent.

    Args:
        student: the module to train, whose tied entries stay equal.
        teacher: the module whose results are learned.
        ties: groups of equal entries.
        batches: batches to draw from.
        training: options of the training.
        state: file from which the run continues, and in which it is saved.
        advance: called with the number of updates made, and their total.

    Returns:
        The position at which the run ended.
    """
    parameters = dict(student.module.named_parameters())
    tying = [_Tying(parameters[tie.parameter], tie) for tie in ties]
    optimizer = torch.optim.AdamW(parameters.values(), betas=(0.9, 0.98), weight_decay=0.0)
    position = _load(state, student.module, optimizer)
    before_s, started_s = position.spent_s, time.monotonic()
    kept_s = before_s
    while position.update < training.updates and position.spent_s < training.limit_s:
        optimizer.param_groups[0]["lr"] = _rate(training, position)
        loss = distance(
            student, teacher, batches.draw(np.random.default_rng((training.seed, position.update))), training
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for tied in tying:
            tied.share_gradients()
        torch.nn.utils.clip_grad_norm_(parameters.values(), LARGEST_NORM)
        optimizer.step()
        for tied in tying:
            tied.make_equal()
        position.update += 1
        position.spent_s = before_s + time.monotonic() - started_s
        advance(position.update, training.updates)
        if position.spent_s - kept_s > KEPT_EVERY_S:
            kept_s = position.spent_s
            _save(state, student.module, optimizer, position)
    return position


def _rate(training: Training, position: RunPosition) -> float:
    """Return the learning rate: a linear warm-up, and a cosine decay to 2 % by updates or time."""
    done = max(position.update / training.updates, position.spent_s / training.limit_s)
    return training.rate * min(max(0.5 * (1 + math.cos(math.pi * done)), 0.02), (position.update + 1) / WARM_UP)


class _Tying:
    """One tie of one parameter."""

    def __init__(self, parameter: torch.nn.Parameter, tie: Tie) -> None:
        self.parameter, self.axis, self.shape = parameter, tie.axis, tie.index.shape
        self.index = torch.from_numpy(tie.index.reshape(-1).astype(np.int64))

    def share_gradients(self) -> None:
        gradient = self.parameter.grad
        if gradient is not None:
            self._write(gradient, self._members(gradient).mean(dim=1, keepdim=True))

    def make_equal(self) -> None:
        with torch.no_grad():
            self._write(self.parameter, self._members(self.parameter)[:, :1])

    def _members(self, tensor: Tensor) -> Tensor:
        """Return the tied entries of a tensor, [groups, members, channels, ..]."""
        found = tensor.movedim(self.axis, 0)[self.index]
        return found.reshape(*self.shape, *found.shape[1:])

    def _write(self, tensor: Tensor, of_groups: Tensor) -> None:
        """Write each group's entries, [groups, 1, channels, ..], to all of its members."""
        spread = of_groups.expand(-1, self.shape[1], *of_groups.shape[2:]).flatten(0, 2)
        tensor.movedim(self.axis, 0)[self.index] = spread


def _save(path: Path, module: torch.nn.Module, optimizer: torch.optim.AdamW, position: RunPosition) -> None:
    """Save the state of the run, as a whole or not at all."""
    tensors = {f"module.{name}": value.contiguous() for name, value in module.named_parameters()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": moments[name].contiguous() for name in MOMENTS}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    metadata = {name: str(value) for name, value in dataclasses.asdict(position).items()}
    safetensors.torch.save_file(tensors, partial, metadata)
    partial.rename(path)


def _load(path: Path, module: torch.nn.Module, optimizer: torch.optim.AdamW) -> RunPosition:
    """Load the state that `_save` wrote; without a valid file the run starts from the beginning."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except (OSError, safetensors.SafetensorError):
        return RunPosition()
    write_parameters(module, {name[7:]: value for name, value in tensors.items() if name.startswith("module.")})
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, moment = name.split(".")
            states.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return RunPosition(int(metadata["update"]), float(metadata["spent_s"]))


def parameters_of(module: torch.nn.Module) -> dict[str, Array]:
    """Return floating-point parameters by name, as copies."""
    return {
        name: np.array(value.detach().cpu().numpy())
        for name, value in module.named_parameters()
        if value.dtype == torch.float32
    }


def write_parameters(module: torch.nn.Module, changed: Mapping[str, Array | Tensor]) -> None:
    """Set the values of some parameters."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, array in changed.items():
            parameters[name].copy_(torch.as_tensor(array))


def checkpoint_of(module: torch.nn.Module) -> bytes:
    """Return all tensors of a module as one safetensors file, with shared storage copied."""
    tensors = {name: value.detach().clone().contiguous() for name, value in module.state_dict().items()}
    return safetensors.torch.save(tensors)
