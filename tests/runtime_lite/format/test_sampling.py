"""sampling: settings out of range are refused by name."""

import pytest

from runtime_lite import BadInput, Sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 0), ("max_tokens", 2.0), ("min_tokens", 6), ("stop", {-1}), ("stop", 3), ("temperature", 0),
     ("temperature", float("nan")), ("temperature", float("inf")), ("top_k", 0), ("top_p", 0.0), ("top_p", 1.5),
     ("repetition_penalty", 0.5), ("penalty_window", 0), ("seed", -1), ("seed", "a"), ("seed", True)],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=name):
        Sampling(**{"max_tokens": 5, name: value})  # type: ignore[arg-type]
