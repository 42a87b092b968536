"""Equal content is equal bytes."""

import pytest

from runtime_lite.format.canonical_json import canonical_json


def test_json_has_one_spelling() -> None:
    assert canonical_json({"b": [1], "a": 0.5}) == b'{\n "a": 0.5,\n "b": [\n  1\n ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})
