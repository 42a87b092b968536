"""Layers from top to bottom, nothing on top of anything else."""

import itertools
import random

from compiler.build.report.layered_layout import FAR, place


def test_edges_lead_down_and_nothing_overlaps() -> None:
    draw = random.Random(0)
    count = 120
    edges = sorted({(draw.randrange(end), end) for end in range(1, count) for _ in range(2)})
    layout = place(count, edges)
    assert all(layout.places[start][1] < layout.places[end][1] for start, end in edges)
    for (x, y), (u, v) in itertools.combinations(layout.places, 2):
        assert y != v or abs(x - u) >= 1 - 1e-9
    assert min(x for x, _ in layout.places) >= 0
    assert set(layout.lines) | set(layout.far) == set(edges)


def test_a_chain_stands_straight() -> None:
    layout = place(5, [(at, at + 1) for at in range(4)])
    assert [x for x, _ in layout.places] == [0] * 5
    assert [y for _, y in layout.places] == [0, 1, 2, 3, 4]


def test_lines_turn_in_every_layer_between() -> None:
    layout = place(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [y for _, y in layout.lines[0, 3]] == [0, 1, 2, 3]
    assert layout.lines[0, 3][0] == layout.places[0]


def test_far_edges_are_only_named() -> None:
    last = FAR + 1
    edges = [*((at, at + 1) for at in range(last)), (0, last)]
    layout = place(last + 1, edges)
    assert list(layout.far) == [(0, last)]
    assert (0, last) not in layout.lines


def test_sources_lie_just_above_their_reader() -> None:
    layout = place(5, [(0, 1), (1, 2), (2, 4), (3, 4)])
    assert layout.places[3][1] == layout.places[2][1]


def test_nothing_is_a_layout() -> None:
    assert place(0, []).places == []
