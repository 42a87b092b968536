"""timings: a ratio in words, with its spread and with how sure it is."""

from compiler.base.records.timings import Ratio


def test_a_ratio_tells_its_spread_and_how_sure_it_is() -> None:
    ratio = Ratio("batch=1", 0.514, 0.43, 0.6, 0.5, 0.53, 45)
    assert str(ratio) == "batch=1 0.51 (0.43..0.60)"
    assert str(Ratio("", 0.514, 0.43, 0.6, 0.5, 0.53, 45)) == "0.51 (0.43..0.60)"
    assert ratio.certainty == "median of 45 rounds within 0.500..0.530"
