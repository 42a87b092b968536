"""Makes torch export LSTMs and GRUs for any number of frames, whatever this process has traced before.

The framework unrolls them over the frames of the example unless other kernels are registered while it traces. Its
exporter registers these, but an operator keeps the kernel that it ran last, and does not look again. The loops of these
kernels are compiled while they are traced, and the compiler keeps them too: looking for one that fits, it compares its
numbers with the sizes of the next export, which fixes these.

A loop hands on what lies in memory entry by entry: a learnt state that is spread over all rows is copied.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import _patches

RECURRENCES = (torch.ops.aten.lstm.input, torch.ops.aten.gru.input)


@contextlib.contextmanager
def recurrences_of_any_length(*, has_some: bool = True) -> Iterator[None]:
    """Register kernels that trace recurrences without unrolling them, and reset the compiler before and after.

    Args:
        has_some: whether the model has recurrences; without them nothing is reset: a compiler that starts anew reads
            files of its own, and the files that a capture reads decide whether its result is kept.
    """
    with (
        _on_copies("lstm_while_loop_impl"),
        _on_copies("gru_while_loop_impl"),
        _patches.register_lstm_while_loop_decomposition(),
        _patches.register_gru_while_loop_decomposition(),
    ):
        _forget(has_some=has_some)
        try:
            yield
        finally:
            _forget(has_some=has_some)


@contextlib.contextmanager
def _on_copies(name: str) -> Iterator[None]:
    """Patch a kernel so that it gets contiguous initial states."""
    kernel: Callable[..., Any] = getattr(_patches, name)

    def run(frames: torch.Tensor, begun: Any, *rest: Any) -> Any:
        copies = begun.contiguous() if isinstance(begun, torch.Tensor) else [state.contiguous() for state in begun]
        return kernel(frames, copies, *rest)

    setattr(_patches, name, run)
    try:
        yield
    finally:
        setattr(_patches, name, kernel)


def _forget(*, has_some: bool) -> None:
    if not has_some:
        return
    for operator in RECURRENCES:
        operator._dispatch_cache.clear()
    torch.compiler.reset()
