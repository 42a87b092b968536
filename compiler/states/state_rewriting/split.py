"""Makes operators compute new frames alone instead of all frames, and keeps their results on old frames as states."""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.structure import Structure
from compiler.graph.stages import State
from compiler.states.state_rewriting.projected import copied, map_of
from compiler.states.streaming.carrying_cut import Choice
from compiler.states.streaming.stable import Cache, Stable


class Split:
    """The graph while operators move from all frames to the new ones.

    Args:
        model: the graph.
        stable: its stable values.
        choice: what to carry, joined caches among it, which stay states as they are; and what runs again on all frames.
        stamp: name of the pass.

    Attributes:
        states: those that have come, when it is written.
        map: graph from the old states to them; None where none have come.
    """

    def __init__(self, model: ir.Model, stable: Stable, choice: Choice, stamp: str) -> None:
        self.model, self.stable, self.stamp = model, stable, stamp
        self.again = {stable.operators[index] for index in choice.again}
        carried = choice.carried
        self.caches = {cache.joined: cache for cache in stable.caches}
        self.kept = [cache for cache in stable.caches if cache.joined.name in carried]
        self.carried = [value for value in stable.axes if value.name in carried and value not in self.caches]
        self.states: list[State] = []
        self.map: Structure | None = None
        self.new: dict[ir.Value, ir.Value] = {cache.joined: cache.new for cache in stable.caches}

    def write(self) -> int:
        """Rewrite the graph; return the number of caches that are removed or have new states computed from them."""
        owners = {value: self._owner(value) for value in self.carried}
        inputs = {value: self._carry(value, owners[value]) for value in self.carried}
        for node in self.stable.newest:
            self._read_new_half(node)
        reference = [(cache.old, cache.axis) for cache in self.kept] + [
            (inputs[value], self.stable.axes[value]) for value in self.carried
        ]
        gone = [cache for cache in self.stable.caches if cache not in self.kept]
        shapes = [node for cache in gone for node in graphs.consumers_of(cache.old) if graphs.is_op(node, "Shape")]
        for node in shapes + [node for node in self.stable.lengths if not self._is_whole(node.inputs[0])]:
            self._read_length(node, *reference[0])
        if self.carried:
            names = [str(inputs[value].name) for value in self.carried]
            self.map = map_of(self.model, self.stable, self.carried, names)
        for cache in gone:
            self.model.graph.outputs.remove(cache.fed)
        graphs.prune(self.model)
        for cache in gone:
            self.model.graph.inputs.remove(cache.old)
        graphs.forget_shapes(self.model)
        graphs.infer_shapes(self.model)
        return len({cache.state.input for cache in (*gone, *owners.values())})

    def _is_whole(self, value: ir.Value | None) -> bool:
        """Whether all frames of a value are still computed under its name."""
        assert value is not None
        return value.producer() in self.again or any(value is cache.joined for cache in self.kept)

    def _owner(self, value: ir.Value) -> Cache:
        """Return the first cache that a value is computed from."""
        front, seen = [value], set()
        while front:
            each = front.pop()
            seen.add(each)
            node = each.producer()
            if each not in self.caches and node is not None:
                front += [operand for operand in node.inputs if operand in self.stable.axes and operand not in seen]
        return next(cache for cache in self.stable.caches if cache.joined in seen)

    def _new(self, value: ir.Value) -> ir.Value:
        """Return the new frames of a stable value: a slice of the whole value if it is computed, else recomputed."""
        if value in self.new:
            return self.new[value]
        node, axis = value.producer(), self.stable.axes[value]
        assert node is not None
        if node in self.again:
            cached, new = self.stable.frames.cached, self.stable.frames.new
            assert isinstance(cached, int) or isinstance(new, int)
            insert = graphs.Inserter(self.model, self.stamp, after=node)
            bounds = [
                insert.int64s(cached if isinstance(cached, int) else -int(new)),
                insert.int64s(graphs.END),
                insert.int64s(axis),
            ]
            self.new[value] = insert.op("Slice", [value, *bounds], name=f"{value.name}_new", dtype=value.dtype)
            return self.new[value]
        inputs = [
            self._new(operand) if operand is not None and operand in self.stable.axes else operand
            for operand in node.inputs
        ]
        names = [graphs.fresh_name(self.model.graph, f"{output.name}_new") for output in node.outputs]
        copy = copied(node, inputs, names)
        graphs.Inserter(self.model, self.stamp, before=node).place(copy)
        self.new |= zip(node.outputs, copy.outputs, strict=True)
        return self.new[value]

    def _carry(self, value: ir.Value, owner: Cache) -> ir.Value:
        """Make a value a state, append its new frames, let its readers read the result; return the state's input."""
        graph, axis, node = self.model.graph, self.stable.axes[value], value.producer()
        assert value.shape is not None and node is not None
        count = sum(state.input.startswith(f"{owner.state.input}_carried_") for state in self.states)
        name = graphs.fresh_name(graph, f"{owner.state.input}_carried_{count}")
        dims = list(value.shape)
        dims[axis] = self.stable.frames.cached_dim
        state = ir.Value(name=name, type=value.type, shape=ir.Shape(dims))
        graph.inputs.append(state)
        new = self._new(value)
        insert = graphs.Inserter(self.model, self.stamp, before=node)
        joined = insert.op(
            "Concat", [state, new], {"axis": axis}, name=f"next_{name}", shape=list(value.shape), dtype=value.dtype
        )
        fed = self._fed(insert, joined, dims, axis)
        along = owner.state.cache
        self.states.append(State(name, str(fed.name), None if along is None else axis, along))
        on_new_frames = {*self.stable.operators, *self.stable.lengths, *self.stable.newest} - self.again
        for use in list(value.uses()):
            if use.node not in on_new_frames:
                use.node.replace_input_with(use.idx, joined)
        if value in graph.outputs:  # a result of the model besides the state
            shape = list(value.shape)
            copy = insert.op("Identity", [joined], name=f"{value.name}_whole", shape=shape, dtype=value.dtype)
            graphs.take_over(self.model, value, copy, except_in=graphs.consumers_of(value))
        outputs = [str(output.name) for output in graph.outputs]
        graph.outputs.insert(outputs.index(owner.state.output) + 1 + count, fed)
        return state

    def _fed(self, insert: graphs.Inserter, joined: ir.Value, dims: list[int | ir.SymbolicDim], axis: int) -> ir.Value:
        """Return the next value of an appended state: all frames of a cache axis, else as many of the newest."""
        cached = self.stable.frames.cached
        if not isinstance(cached, int):
            return joined
        name = str(joined.name)
        joined.name = graphs.fresh_name(self.model.graph, f"{name}_joined")
        bounds = [insert.int64s(-cached), insert.int64s(graphs.END), insert.int64s(axis)]
        fed = insert.op("Slice", [joined, *bounds], name=f"{name}_newest", shape=dims, dtype=joined.dtype)
        fed.name = name
        return fed

    def _read_new_half(self, node: ir.Node) -> None:
        """Let the readers of a slice of the new frames read the new frames directly."""
        value, slice_output = node.inputs[0], node.outputs[0]
        assert value is not None
        if self._is_whole(value):
            return
        new = self._new(value)
        if slice_output in self.model.graph.outputs:
            insert = graphs.Inserter(self.model, self.stamp, before=node)
            new = insert.op("Identity", [new], name=f"{slice_output.name}_new", dtype=slice_output.dtype)
        graphs.take_over(self.model, slice_output, new)

    def _read_length(self, node: ir.Node, state: ir.Value, axis: int) -> None:
        """Replace a Shape node by sizes computed from a state: rows, and cached frames plus new ones."""
        value = node.inputs[0]
        assert value is not None and value.shape is not None
        frames_axis = self.stable.axes.get(value)
        cache = next((cache for cache in self.stable.caches if cache.old is value), None)
        insert = graphs.Inserter(self.model, self.stamp, before=node)

        def size(at: int) -> ir.Value:
            known = value.shape[at]  # type: ignore[index]
            if isinstance(known, int):
                return insert.int64s(known)
            frames = at == frames_axis or (cache is not None and at == cache.axis)
            start = axis if frames else 0
            bounds = {"start": start, "end": start + 1}
            name = f"{node.outputs[0].name}_{at}"
            read = insert.op("Shape", [state], bounds, name=name, dtype=ir.DataType.INT64)
            if not frames or frames_axis is None:
                return read
            return insert.op("Add", [read, insert.int64s(self.stable.frames.step)], name=f"{name}_joined")

        sizes = [size(axis) for axis in graphs.dims_read(node, len(value.shape))]
        whole = sizes[0]
        if len(sizes) != 1:
            whole = insert.op("Concat", sizes, {"axis": 0}, name=f"{node.outputs[0].name}_sizes")
        graphs.take_over(self.model, node.outputs[0], whole)
