"""culprit_records: numbers as people read them."""

import numpy as np

from compiler.build.culprits.records import LocalError, TensorStatistics


def test_statistics_leave_out_what_is_not_finite() -> None:
    found = TensorStatistics.of("x", np.array([-3.0, 2.0, np.inf, np.nan], np.float32))
    assert (found.low, found.high, found.max_abs, found.non_finite, found.elements) == (-3.0, 2.0, 3.0, 2, 4)
    assert str(found) == "-3..2, 2 of 4 not finite"
    assert str(TensorStatistics.of("x", np.zeros(0))) == "0..0"


def test_an_error_without_a_signal_or_an_explanation() -> None:
    assert LocalError("x", 0.5, 0.0, 0.0, 0).relative == 0.5
    assert LocalError("x", 0.5, 0.0, 0.0, 0).beyond == float("inf")
    assert LocalError("x", 0.0, 0.0, 0.0, 0).beyond == 0.0
