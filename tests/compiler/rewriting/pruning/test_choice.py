"""choice: which channels go, by what they save and what they cost."""

import pytest

from compiler.rewriting.pruning.choice import Option, choose

CHEAP = [Option(48, 1.0, 0.1), Option(32, 2.0, 0.3), Option(16, 3.0, 2.0)]
DEAR = [Option(48, 1.0, 0.2), Option(32, 2.0, 0.9), Option(16, 3.0, 3.0)]


def test_the_least_loss_beside_the_time_goes_first() -> None:
    choice = choose({"cheap": CHEAP, "dear": DEAR}, 10.0, 0.65)
    assert {name: option.entries for name, option in choice.options.items()} == {"cheap": 32, "dear": 32}
    points = [(round(point.time, 3), round(point.loss, 3)) for point in choice.points]
    assert points == [(1.0, 0.0), (0.9, 0.1), (0.8, 0.3), (0.7, 0.5), (0.6, 1.2)]


def test_a_step_may_skip_widths_that_alone_are_no_bargain() -> None:
    """The first width loses as much as the second and saves next to nothing."""
    choice = choose({"axis": [Option(48, 0.1, 0.5), Option(32, 2.0, 0.6)]}, 10.0, 0.9)
    assert choice.options["axis"].entries == 32 and len(choice.points) == 2


def test_nothing_is_taken_where_nothing_is_wanted() -> None:
    assert not choose({"cheap": CHEAP}, 10.0, 1.0).options


def test_what_does_not_suffice_ends_with_the_smallest() -> None:
    choice = choose({"cheap": CHEAP, "dear": DEAR, "none": []}, 10.0, 0.1)
    assert {option.entries for option in choice.options.values()} == {16}
    assert choice.points[-1].time == pytest.approx(0.4) and choice.points[-1].loss == pytest.approx(5.0)


def test_losses_of_nothing_go_first_whatever_they_save() -> None:
    choice = choose({"idle": [Option(32, 0.5, 0.0)], "cheap": CHEAP}, 10.0, 0.9)
    assert list(choice.options) == ["idle", "cheap"]
