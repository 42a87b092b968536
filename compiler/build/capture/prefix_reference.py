"""Runs a model of whole sequences as the reference of its streaming steps: each call evaluates the whole prefix."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy

from compiler.errors import DataError, Location
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Array, Feed
from compiler.recipe.graph import Graph
from compiler.recipe.user_code.streams import completed

Call = Callable[[Feed], Mapping[str, Array]]
"""Outputs of whole sequences, by name."""


class PrefixReference:
    """The original, called with all that has been heard so far; of its results the frames of the call are kept.

    Args:
        graph: its name.
        spec: its record, caches among its inputs and outputs.
        whole: the captured graph of whole sequences, whose outputs hold what is cached.
        call: the original, given its masks and lengths, too; None where the captured graph itself is it.
        modules: of torch, which the call asks.
    """

    def __init__(
        self, graph: str, spec: Graph, whole: ir.Model, call: Call | None, modules: Sequence[Any] = ()
    ) -> None:
        assert spec.derive_steps is not None
        self.graph, self.spec = graph, spec
        self.axis, self.window = spec.derive_steps.along, spec.derive_steps.window if spec.caches else math.inf
        self.session, self.call, self.modules = session_of(whole, optimize=False), call, modules
        frames = graphs.symbol(self.axis)
        self.along = {
            str(value.name): frames_axis
            for value in (*whole.graph.inputs, *whole.graph.outputs)
            if (frames_axis := _frames_in(graphs.dims_of(value) or (), frames)) is not None
        }
        self.outputs = [str(value.name) for value in whole.graph.outputs]
        self.states = {
            input_spec.state: name for name, input_spec in spec.inputs.items() if input_spec.state is not None
        }

    def run(self, feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Yield, per chunk, all outputs of its frames, and the caches of all frames until then."""
        heard: dict[str, Array] = {}
        for feed in feeds:
            count = next(array.shape[self.along[name][0]] for name, array in feed.items() if name in self.along)
            heard = {name: self._longer(name, heard.get(name), array) for name, array in feed.items()}
            self._require_room(heard)
            whole_outputs = dict(zip(self.outputs, self.session.run(self.outputs, dict(heard)), strict=True))
            if self.call is not None:
                whole_outputs |= self.call(completed(heard, self.spec))
            outputs = {
                name: array if name in self.states else self._newest(name, array, count)
                for name, array in whole_outputs.items()
            }
            yield outputs, {self.states[name]: outputs[name] for name in self.states}

    def _longer(self, name: str, heard: Array | None, array: Array) -> Array:
        if heard is None or name not in self.along:
            return array
        return np.concatenate([heard, array], axis=self.along[name][0])

    def _newest(self, name: str, array: Array, count: int) -> Array:
        if name not in self.along:
            return array
        axis, rate = self.along[name]
        return array.take(range(array.shape[axis] - count * rate, array.shape[axis]), axis)

    def _require_room(self, heard: Mapping[str, Array]) -> None:
        frames = max(array.shape[self.along[name][0]] for name, array in heard.items() if name in self.along)
        if frames > self.window:
            raise DataError(
                f"expected streams of at most {self.window} frames along {self.axis!r}, the window of derive_steps, "
                f"got {frames}",
                cure="make the window larger, or yield shorter streams and ask for fewer chained_steps",
                place=Location(stage="reference", graph=self.graph, axis=self.axis),
            )


def _frames_in(dims: Sequence[Dim], frames: Dim) -> tuple[int, int] | None:
    """Return the axis of a value that holds frames, and the number of entries per frame; None where none does."""
    rates = ((axis, sympy.sympify(dim).coeff(frames)) for axis, dim in enumerate(dims))
    return next(((axis, int(rate)) for axis, rate in rates if rate.is_Integer and rate > 0), None)
