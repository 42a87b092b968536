"""form: where the batch lies in the tensor of a value."""

import numpy as np

from compiler.proof.batching.form import INSERTED, RowLayout, in_place, moved


def test_names_of_forms() -> None:
    assert RowLayout(0, None) == INSERTED
    assert in_place(2) == RowLayout(2, 2)


def test_the_permutation_takes_one_axis_and_keeps_the_order_of_the_others() -> None:
    assert moved(4, 0, 2) == [1, 2, 0, 3]
    assert moved(4, 3, 0) == [3, 0, 1, 2]
    array = np.zeros((2, 3, 4, 5))
    assert array.transpose(moved(4, 1, 3)).shape == np.moveaxis(array, 1, 3).shape == (2, 4, 5, 3)
