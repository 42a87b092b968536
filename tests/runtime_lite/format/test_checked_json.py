"""Each check lets the right value through as it is and names the place of a wrong one."""

from collections.abc import Callable
from typing import Any

import pytest

from runtime_lite import BundleRefused
from runtime_lite.format.checked_json import JsonValue, path_fault

RIGHT: list[tuple[Callable[[JsonValue], Any], Any]] = [
    (lambda v: v.integer(0, 5), 5),
    (lambda v: v.number(0, 5), 5.0),
    (lambda v: v.number(0, 5), 0),
    (JsonValue.scalar, True),
    (JsonValue.scalar, -1.5),
    (JsonValue.scalar, "povey \u00e9"),
    (JsonValue.text, "x" * 4096),
    (JsonValue.identifier, "/layers.0/Concat_output:0"),
    (JsonValue.sha256, "0123456789abcdef" * 4),
    (JsonValue.path, "graphs/encoder.batch1.onnx"),
    (lambda v: v.one_of(("a", "b")), "b"),
]


@pytest.mark.parametrize(("read", "value"), RIGHT)
def test_a_right_value_comes_through_unchanged(read: Callable[[JsonValue], Any], value: Any) -> None:
    assert read(JsonValue(value, "here")) == value
    assert type(read(JsonValue(value, "here"))) in (type(value), float)


WRONG: list[tuple[Callable[[JsonValue], Any], list[Any]]] = [
    (lambda v: v.integer(0, 5), [-1, 6, 1.0, True, "1", None, []]),
    (lambda v: v.number(0, 5), [-0.1, 5.1, True, "1", None, {}]),
    (JsonValue.scalar, [None, [], {}, "\n"]),
    (JsonValue.text, ["", "x" * 4097, "\x1b[0m", "a\u2028b", "\ud800", 1, None]),
    (JsonValue.identifier, ["a b", "\u00e9", "x" * 241, ""]),
    (JsonValue.sha256, ["0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", 0]),
    (JsonValue.path, ["/x", "..", "a/../b", "a\\b", "", None]),
    (lambda v: v.one_of(("a", "b")), ["c", "", None, []]),
    (lambda v: v.keys_are(["a"]), [{}, {"a": 1, "b": 2}, {"b": 1}, [], None]),
    (JsonValue.items, [{}, "ab", None, [0] * 4097]),
]


@pytest.mark.parametrize(("read", "value"), [(read, value) for read, values in WRONG for value in values])
def test_a_wrong_value_is_refused_with_its_place(read: Callable[[JsonValue], Any], value: Any) -> None:
    with pytest.raises(BundleRefused) as refusal:
        read(JsonValue(value, "manifest.json.here"))
    assert str(refusal.value).startswith("manifest.json.here: expected ")
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


def test_places_grow_with_the_path() -> None:
    with pytest.raises(
        BundleRefused, match=r"^m\.a\[1\]\.b: expected an integer from 0 to 9, got 'x'; rebuild the bundle"
    ):
        JsonValue.parse(b'{"a": [0, {"b": "x"}]}', "m").key("a").items()[1].key("b").integer(0, 9)


@pytest.mark.parametrize("path", ["a", "a/b/c", "A-b_c.d", "0", "a" * 240])
def test_safe_paths_have_no_fault(path: str) -> None:
    assert path_fault(path) is None
