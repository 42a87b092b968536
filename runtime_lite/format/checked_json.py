"""Reads untrusted JSON with checks; every refusal states the location, what was expected and what came.

The caller limits the size of the text before it is parsed. Duplicate keys, NaN, infinities, numbers beyond 64 bits,
unknown keys, wrong types and control characters are refused.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from runtime_lite.errors import BundleRefused, show
from runtime_lite.format.manifest import Scalar

MAX_ITEMS = 4096  # entries of one list or object
MAX_TEXT = 4096
MAX_PATH = 240
MAX_NAME = 64
REBUILD = "rebuild the bundle"
UPDATE = "update runtime_lite if the bundle is newer, else rebuild the bundle"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_COMPONENT = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class JsonValue:
    """An untrusted JSON value and its location; it is read only by methods that check it.

    Attributes:
        value: the value that the parser returned.
        where: dotted location, for messages.
    """

    value: Any
    where: str

    @staticmethod
    def parse(text: bytes, where: str) -> "JsonValue":
        """Parse UTF-8 JSON without duplicate keys, NaN, infinities or numbers beyond 64 bits."""

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            table: dict[str, Any] = {}
            for key, value in pairs:
                if key in table:
                    refuse(where, "every key once", f"key {show(key)} twice")
                table[key] = value
            return table

        def number(digits: str) -> int:
            if len(digits) > 19:
                refuse(where, "integers of at most 19 digits", show(digits))
            return int(digits)

        def finite(digits: str) -> float:
            value = float(digits)
            if not math.isfinite(value):
                refuse(where, "finite numbers", show(digits))
            return value

        try:
            value = json.loads(
                text.decode("utf-8"),
                object_pairs_hook=unique,
                parse_int=number,
                parse_float=finite,
                parse_constant=finite,
            )
        except RecursionError:
            refuse(where, "JSON nested a few levels deep", "brackets nested without end")
        except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are both
            refuse(where, "UTF-8 JSON", show(str(error)), "copy the bundle again, it may be truncated")
        return JsonValue(value, where)

    def refuse(self, expected: str, got: str | None = None) -> NoReturn:
        """Raise `BundleRefused` for this location."""
        refuse(self.where, expected, show(self.value) if got is None else got)

    def _table(self) -> dict[str, Any]:
        if type(self.value) is not dict:
            self.refuse("an object")
        if len(self.value) > MAX_ITEMS:
            self.refuse(f"at most {MAX_ITEMS} entries", str(len(self.value)))
        return self.value

    def keys_are(self, names: Iterable[str]) -> "JsonValue":
        """Check that the value is an object with exactly these keys, and return self."""
        expected, found = set(names), set(self._table())
        if unknown := sorted(found - expected):
            keys = f"only the keys {', '.join(sorted(expected))}"
            refuse(self.where, keys, f"unknown key {show(unknown[0])}", UPDATE)
        if missing := sorted(expected - found):
            self.refuse(f"the key {missing[0]!r}", "an object without it")
        return self

    def key(self, name: str) -> "JsonValue":
        """Return one entry of an object."""
        table = self._table()
        if name not in table:
            self.refuse(f"the key {name!r}", "an object without it")
        return JsonValue(table[name], f"{self.where}.{name}")

    def items(self) -> list["JsonValue"]:
        """Return the items of a list."""
        if type(self.value) is not list:
            self.refuse("a list")
        if len(self.value) > MAX_ITEMS:
            self.refuse(f"at most {MAX_ITEMS} items", str(len(self.value)))
        return [JsonValue(item, f"{self.where}[{index}]") for index, item in enumerate(self.value)]

    def table(
        self, read: "Callable[[JsonValue], _T]", keys: "Callable[[JsonValue], str] | None" = None
    ) -> dict[str, _T]:
        """Return an object as a dict, with `read` applied to its values and `keys` to its keys."""
        read_key = keys or JsonValue.text
        names = [JsonValue(name, f"{self.where}.{show(name)[1:-1]}") for name in self._table()]
        return {read_key(name): read(JsonValue(self.value[name.value], name.where)) for name in names}

    def integer(self, low: int, high: int) -> int:
        """Check that the value is an integer within bounds, and return it."""
        if type(self.value) is not int or not low <= self.value <= high:
            self.refuse(f"an integer from {low} to {high}")
        return self.value

    def number(self, low: float, high: float) -> float:
        """Check that the value is a finite number within bounds, and return it as a float."""
        if type(self.value) not in (int, float) or not low <= self.value <= high:
            self.refuse(f"a number from {low} to {high}")
        return float(self.value)

    def boolean(self) -> bool:
        """Check that the value is a boolean, and return it."""
        if type(self.value) is not bool:
            self.refuse("true or false")
        return self.value

    def scalar(self) -> Scalar:
        """Check that the value is a boolean, a number or a text, and return it."""
        if type(self.value) in (bool, int, float):
            number: bool | int | float = self.value
            return number
        if type(self.value) is not str:
            self.refuse("a boolean, a number or a text")
        return self.text()

    def text(self) -> str:
        """Check that the value is a printable, non-empty string of bounded length, and return it."""
        if type(self.value) is not str or not self.value or len(self.value) > MAX_TEXT or not self.value.isprintable():
            self.refuse(f"a printable text of 1 to {MAX_TEXT} characters")
        return str(self.value)

    def optional_text(self) -> str | None:
        """Check that the value is a text or null, and return it."""
        return None if self.value is None else self.text()

    def identifier(self) -> str:
        """Check that the value is a name of printable ASCII without spaces, as in ONNX, and return it."""
        text = self.text()
        if not text.isascii() or " " in text or len(text) > MAX_PATH:
            self.refuse(f"a name of at most {MAX_PATH} ASCII characters without spaces")
        return text

    def name(self) -> str:
        """Check that the value is a valid name of a bundle or graph, which may become a folder, and return it."""
        text = self.text()
        if fault := name_fault(text):
            self.refuse(
                "a name of letters, digits and '_', and of '.' and '-' behind the first", f"{show(text)}, {fault}"
            )
        return text

    def one_of(self, names: tuple[str, ...]) -> str:
        """Check that the value is one of the allowed words, and return it."""
        if type(self.value) is not str or self.value not in names:
            self.refuse(f"one of {', '.join(names)}")
        return self.value

    def sha256(self) -> str:
        """Check that the value is a SHA-256 in lower-case hex, and return it."""
        if type(self.value) is not str or not _SHA256.fullmatch(self.value):
            self.refuse("a SHA-256 of 64 lower-case hex digits")
        return self.value

    def path(self) -> str:
        """Check that the value is a relative path that stays inside the bundle on every file system, and return it."""
        if type(self.value) is not str:
            self.refuse("a file name")
        if fault := path_fault(self.value):
            self.refuse("a relative file name inside the bundle", f"{show(self.value)}, {fault}")
        return self.value


def name_fault(name: str) -> str | None:
    """Return why a name cannot be that of a folder on every file system, or None if it can."""
    if len(name) > MAX_NAME:
        return f"which has {len(name)} characters, more than {MAX_NAME}"
    return None if _NAME.fullmatch(name) else "which is none"


def path_fault(path: str) -> str | None:
    """Return why a path could leave the bundle or be ambiguous, or None if it is safe on every file system."""
    if not path or len(path) > MAX_PATH:
        return f"a path of {len(path)} characters"
    if not path.isascii() or not path.isprintable():
        return "which has characters that are not printable ASCII"
    if "\\" in path:
        return "which has a backslash"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "which is absolute"
    if ".." in path.split("/"):
        return "which leaves its folder"
    if not all(_COMPONENT.fullmatch(part) for part in path.split("/")):
        return "which has a part that is not letters, digits, '_', '-' and inner '.'"
    return None


def refuse(where: str, expected: str, got: str, cure: str = REBUILD) -> NoReturn:
    """Raise `BundleRefused` with a message of the standard form."""
    raise BundleRefused(f"{where}: expected {expected}, got {got}; {cure}")
