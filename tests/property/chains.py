"""Random chains of movements, as models shift relative position scores: most of them are off by a little.

Each is a `Node` with the movements behind it, and is judged as one by rule RS1. A wrong chain has to be refused; one
that is accepted has to move every entry of a padded row as that of the row alone.
"""

from collections.abc import Callable
from unittest import mock

import numpy as np

from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.interval import constant as exactly
from compiler.proof.facts.layout import Axis, Segment, Side, joined
from compiler.proof.rules import relative_shift
from tests.kit.attacked import HERE, Node, Operand, constant, number, size_at
from tests.property.corpus import Rule

Draw = np.random.Generator

ENDS = 2**63 - 1


def together(case: Case) -> Verdict:
    """The rule: all movements as one.

    Raises:
        Refused: what comes out of them is not laid out plainly.
    """
    chain = relative_shift.match(case)
    if chain is None or not chain.nodes[-1].outputs[0].is_graph_output():
        raise refuse("movements that cannot be followed", "leave them out")
    return chain.verdict


def proved(case: Case) -> Verdict:
    """The rule without its trials: whatever has the right sizes is left to the proof.

    Raises:
        Refused: the proof does not hold.
    """
    with mock.patch.object(relative_shift, "_holds", return_value=True):
        return together(case)


RULES: tuple[Rule, ...] = (together, proved)


def chain(seed: int) -> Node:
    """A random chain."""
    rng = np.random.default_rng(seed)
    kinds: tuple[Callable[[Draw], Node], ...] = (_shift, _shift, _shift, _back, _back, _interleaved, _free)
    return kinds[int(rng.integers(len(kinds)))](rng)


def _pick(rng: Draw, right: int, *others: int) -> int:
    """Mostly what is right."""
    return right if rng.random() < 0.85 or not others else int(rng.choice(others))


def _integers(*numbers: int) -> Operand:
    return constant(np.array(numbers, np.int64), np.int64)


def _sizes(*sizes: int | str) -> Operand:
    if all(isinstance(size, int) for size in sizes):
        return _integers(*(int(size) for size in sizes))
    return number(";".join(map(str, sizes)), shape=(len(sizes),))


def _scores(rng: Draw, width: str, axis: Axis | None, padding: Interval = ANYTHING) -> Operand:
    valid = (None, Interval(-3.0, 3.0), Interval(1.0, 3.0))[int(rng.integers(3))]
    shape = ("batch", 2, "time", width)
    return Operand(shape, valid=valid, padding=padding, axes=None if axis is None else {3: axis})


def _cut(at: int, start: int | str, end: int | str) -> Node:
    return Node("Slice", [HERE, _sizes(start), _sizes(end), _integers(at), _integers(1)])


def _shaped(*sizes: int | str) -> Node:
    return Node("Reshape", [HERE, _sizes(*sizes)])


def _shift(rng: Draw) -> Node:
    """Scores [T, 2T-1], a column, other rows, a row less, the rows again, and a part of them."""
    time = size_at("time")
    middle = joined([Segment(time, Side.RIGHT), Segment(time - 1)])
    behind = joined([Segment(2 * time - 1)])
    other = joined([Segment(time, Side.RIGHT), Segment(time)])
    width, axis = [("2*time - 1", middle), ("2*time", other), ("2*time - 1", behind)][_pick(rng, 0, 1, 2)]
    columns, added = _pick(rng, 1, 2, 3), float(rng.choice([0.0, 0.0, 1.0]))
    wide, scores = f"{width} + {columns}", _scores(rng, width, axis)
    pads = [0, 0, 0, columns, 0, 0, 0, 0] if rng.random() < 0.9 else [0, 0, 0, 0, 0, 0, 0, columns]
    first = Node("Pad", [scores, _integers(*pads)] + ([constant(added)] if rng.random() < 0.5 else []))
    rows = _pick(rng, 1, 0, 2)
    if rng.random() < 0.6:
        turned = [_shaped("batch", 2, wide, "time"), _cut(2, rows, ENDS)]
    else:
        turned = [_shaped("batch", 2, -1), _cut(2, ("0", "time", "2*time", "time - 1")[_pick(rng, 1, 0, 2, 3)], ENDS)]
    steps = [*turned, _shaped("batch", 2, "time", f"{wide} - {rows}" if rng.random() < 0.9 else -1)]
    starts: tuple[int | str, ...] = (0, 1, 0, "time - 1", 0)
    ends: tuple[int | str, ...] = ("time", "time + 1", "time - 1", ENDS, ENDS)
    part = _pick(rng, 0, 1, 2, 3, 4)
    steps.append(_cut(3, starts[part], ends[part]))
    if rng.random() < 0.3:
        steps.append(Node("Transpose", [HERE], {"perm": [[0, 1, 3, 2], [0, 2, 1, 3]][int(rng.integers(2))]}))
    return Node(first.op, first.operands, first.attributes, then=steps)


def _back(rng: Draw) -> Node:
    """Weights [T, T] about the middle of [T, 2T-1]."""
    padding = exactly(0.0) if rng.random() < 0.8 else Interval(0.0, 1.0)
    added = _pick(rng, 0, 1)
    more = ("time - 1", "time", "time - 2")[_pick(rng, 0, 1, 2)]
    front = ("time", "time - 1", "1")[_pick(rng, 0, 1, 2)]
    pads = [_sizes(0, 0, 0, 0, 0, 0, 0, more), _sizes(0, 0, 0, more, 0, 0, 0, 0)][_pick(rng, 0, 1)]
    wide = f"time + {more}"
    before = [_sizes(0, 0, front, 0, 0, 0), _sizes(0, 0, 0, 0, 0, front)][_pick(rng, 0, 1)]
    start = _pick(rng, 1, 0, 2)
    steps = [
        _shaped("batch", 2, f"time*({wide})"),
        Node("Pad", [HERE, before] + ([constant(float(added))] if added else [])),
        _shaped("batch", 2, "time", f"{wide} + 1" if front == "time" else -1),
        _cut(3, start, ENDS),
    ]
    return Node("Pad", [_scores(rng, "time", None, padding), pads], then=steps)


def _interleaved(rng: Draw) -> Node:
    """Frames and channels taken for each other, some cut away, and back; or split and merged as they were."""
    channels = int(rng.choice([2, 4]))
    scores = Operand(("batch", 2, "time", channels), valid=Interval(-2.0, 2.0))
    if rng.random() < 0.5:
        steps = [_cut(2, int(rng.integers(0, 2)), ENDS), _shaped("batch", 2, "time", -1)]
        return Node("Reshape", [scores, _sizes("batch", 2, channels, "time")], then=steps)
    factor = 2 if channels == 4 else 1
    amount = int(rng.integers(0, 3))
    steps = [
        Node("Pad", [HERE, _integers(0, 0, amount, 0, 0, 0, 0, 0)]),
        _cut(2, _pick(rng, amount, 0, 1, 2), ENDS),
        _shaped("batch", 2, -1, channels),
    ]
    return Node("Reshape", [scores, _sizes("batch", 2, f"{factor}*time", channels // factor)], then=steps)


def _free(rng: Draw) -> Node:
    """Columns added and others cut away, axes turned, put in and taken out."""
    first, then = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    axis = int(rng.choice([2, 3]))
    pads = [0] * 8
    pads[axis], pads[axis + 4] = first, then
    scores = _scores(rng, "time", None)
    steps = [_cut(axis, _pick(rng, first, 0, 1, 2), ENDS if not then else _pick(rng, -then, -1, ENDS))]
    if rng.random() < 0.5:
        turn = Node("Transpose", [HERE], {"perm": [0, 1, 3, 2]} if rng.random() < 0.7 else {})
        steps.insert(int(rng.integers(0, 2)), turn)
    if rng.random() < 0.5:
        at = int(rng.integers(1, 4))
        steps += [Node("Unsqueeze", [HERE, _integers(at)]), Node("Squeeze", [HERE, _integers(at)])]
    return Node("Pad", [scores, _integers(*pads)], then=steps)
