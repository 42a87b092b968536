"""A wrong name is answered with the nearest right one, where one is near."""

import pytest

from compiler.base.did_you_mean import did_you_mean


@pytest.mark.parametrize(
    ("got", "known", "cure"),
    [
        ("dtpye", ["shape", "dtype"], "did you mean 'dtype'? known: dtype, shape"),
        ("nothing_like_it", ["shape", "dtype"], "known: dtype, shape"),
        ("x", [], "none is known here"),
        ("", ["a"], "known: a"),
        ("onnx", ["null", "onnx_b", "onnx_a"], "did you mean 'onnx_a' or 'onnx_b'? known: null, onnx_a, onnx_b"),
        ("pad", ["pad_a", "pad_b", "pad_c", "pad_d"], "did you mean 'pad_d'? known: pad_a, pad_b, pad_c, pad_d"),
    ],
)
def test_wrong_name_is_answered_with_the_right_ones(got: str, known: list[str], cure: str) -> None:
    assert did_you_mean(got, known) == cure
