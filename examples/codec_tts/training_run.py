"""A training run within a given time that can be stopped and resumed: its loop, learning rate and state.

Random draws depend only on the step, and the state holds weights, moments of the optimiser, steps and seconds spent, so
that a stopped run continues as if it had not been stopped.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps per parameter."""

LARGEST_NORM = 1.0
"""Gradients are clipped to this norm."""

SHOWN_STEPS = 50
FORGETTING = 0.02
"""Of the running means that are shown."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a training run.

    Attributes:
        budget_s: wall-clock seconds.
        seed: seed of weights and of all random draws.
        batch: examples per update.
        peak_rate: highest learning rate.
        warm_up_steps: updates in which the rate rises.
        save_every_s: seconds between checkpoints.
    """

    budget_s: float
    seed: int = 1
    batch: int = 16
    peak_rate: float = 2e-3
    warm_up_steps: int = 100
    save_every_s: float = 180.0


@dataclasses.dataclass
class RunPosition:
    """Progress of a run.

    Attributes:
        step: number of updates.
        spent_s: seconds of training so far, over all legs.
    """

    step: int = 0
    spent_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class LossParts:
    """The loss of one update.

    Attributes:
        total: the scalar that is minimised.
        parts: its parts by name, for printing.
    """

    total: Tensor
    parts: dict[str, Tensor]


def save(path: Path, module: torch.nn.Module, optimizer: torch.optim.AdamW, progress: RunPosition) -> None:
    """Write the state of a run; on an error no file is left.

    Args:
        path: the file.
        module: the module in training, with its buffers.
        optimizer: its optimiser.
        progress: its progress.
    """
    tensors = {f"module.{name}": value.contiguous() for name, value in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": state[name].contiguous() for name in MOMENTS}
    partial = path.with_suffix(".partial")
    metadata = {name: str(value) for name, value in dataclasses.asdict(progress).items()}
    safetensors.torch.save_file(tensors, partial, metadata)
    partial.rename(path)


def load(path: Path, module: torch.nn.Module, optimizer: torch.optim.AdamW) -> RunPosition:
    """Resume a run from a file of `save`; without the file the run starts anew.

    Args:
        path: the file.
        module: takes the weights.
        optimizer: takes the moments; made from the same parameters in the same order.

    Returns:
        The progress of the run.
    """
    if not path.is_file():
        return RunPosition()
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    module.load_state_dict({name[7:]: value for name, value in tensors.items() if name.startswith("module.")})
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, moment = name.split(".")
            states.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return RunPosition(int(metadata["step"]), float(metadata["spent_s"]))


def rate(options: Options, progress: RunPosition) -> float:
    """Return the learning rate of the next update: a linear rise by steps, then a cosine fall by the clock to 2 %."""
    fall = max(0.5 * (1.0 + math.cos(math.pi * min(progress.spent_s / options.budget_s, 1.0))), 0.02)
    return options.peak_rate * min(fall, (progress.step + 1) / options.warm_up_steps)


def run(
    module: torch.nn.Module,
    losses: Callable[[np.random.Generator], LossParts],
    keep: Callable[[], str],
    options: Options,
    state: Path,
) -> None:
    """Train until the budget is spent.

    Args:
        module: the module to train, in training mode.
        losses: draws a batch with the generator and returns its losses.
        keep: writes the checkpoint and returns a text on its quality; called now and then, and at the end.
        options: how.
        state: file of the run's state, to resume from.
    """
    optimizer = torch.optim.AdamW(module.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    progress = load(state, module, optimizer)
    before_s, started_s = progress.spent_s, time.monotonic()
    saved_s = before_s
    means: dict[str, float] = {}
    while progress.spent_s < options.budget_s:
        optimizer.param_groups[0]["lr"] = rate(options, progress)
        found = losses(np.random.default_rng((options.seed, progress.step)))
        optimizer.zero_grad()
        found.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), LARGEST_NORM)
        optimizer.step()
        progress.step += 1
        progress.spent_s = before_s + time.monotonic() - started_s
        for name, part in found.parts.items():
            before = means.setdefault(name, part.item())
            means[name] = before + FORGETTING * (part.item() - before)
        if progress.step % SHOWN_STEPS == 0:
            shown = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
            print(f"{progress.spent_s / 60:.1f} min, step {progress.step}: {shown}", flush=True)
        if progress.spent_s - saved_s > options.save_every_s or progress.spent_s >= options.budget_s:
            saved_s = progress.spent_s
            save(state, module, optimizer, progress)
            print(f"{progress.spent_s / 60:.1f} min, development: {keep()}", flush=True)
