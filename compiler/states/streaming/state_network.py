"""Estimates the time per call of keeping or recomputing each stable value, for one stream with full caches."""

from compiler.graph.operator_costs import Rates, bytes_moved, bytes_of, multiply_adds
from compiler.states.streaming.carrying_cut import Carrying, Choice, Network, Operator
from compiler.states.streaming.stable import Stable

MEGA = 1e6


def network_of(stable: Stable, rates: Rates) -> Network:
    """Return the values and operators to choose from, with costs in picoseconds.

    A carried value is joined, which reads and writes all its frames, and sliced to the slots, which reads and writes
    the newest. An operator that runs again costs its work on the cached frames; it runs on the new ones in any case.

    Args:
        stable: values that can be carried, and their readers.
        rates: speeds of the target.
    """
    sizes, slots = stable.frames.sizes, stable.frames.slots
    joined = slots + stable.frames.step
    sources = {cache.joined for cache in stable.caches}
    values, operators = {}, []
    for value in stable.axes:
        frame = -(-bytes_of([value], sizes) // joined)
        cost = rates.picoseconds(0, frame * (2 * joined + 2 * slots))
        can = value in sources or stable.can_be_state(value)
        values[str(value.name)] = Carrying(cost if can else None, frame * slots)
    for node in stable.operators:
        time = rates.picoseconds(multiply_adds(node, sizes), bytes_moved(node, sizes))
        reads = dict.fromkeys(str(value.name) for value in node.inputs if value is not None and value in stable.axes)
        makes = tuple(str(value.name) for value in node.outputs)
        operators.append(Operator(tuple(reads), makes, time * slots // joined))
    return Network(values, tuple(operators), frozenset(str(value.name) for value in stable.demanded))


def work_of(stable: Stable, choice: Choice) -> tuple[int, int]:
    """Return the multiply-adds of one step of one stream before and after a choice, for stable values."""
    sizes, step = stable.frames.sizes, stable.frames.step
    joined = stable.frames.slots + step
    every = [multiply_adds(node, sizes) for node in stable.operators]
    after = [count if i in choice.again else count * step // joined for i, count in enumerate(every)]
    return sum(every), sum(after)


def figures(stable: Stable, choice: Choice, fixed: int) -> str:
    """Return the cost of one step of one stream before and after a choice, as text.

    Args:
        stable: the values to choose from.
        choice: the values that are carried.
        fixed: bytes of the states that are no part of the choice.
    """
    sizes, slots = stable.frames.sizes, stable.frames.slots
    joined = slots + stable.frames.step
    every, after = work_of(stable, choice)
    caches = sum(bytes_of([cache.joined], sizes) * slots // joined for cache in stable.caches)
    return (
        f"values carried for {len(stable.caches)} caches: {len(choice.carried)}, "
        f"{every / MEGA:.4g} -> {after / MEGA:.4g} M multiply-adds of theirs, "
        f"states {(fixed + caches) / MEGA:.3g} -> {(fixed + choice.held) / MEGA:.3g} MB"
    )
