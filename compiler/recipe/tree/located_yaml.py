"""Parses YAML into a tree with the line of every value, and refuses misleading spellings such as `010` for 8.

Only data is accepted: no tags, anchors, aliases, merges or second documents, no duplicate keys, string keys only. Plain
scalars follow YAML 1.1 as PyYAML does, except for spellings that say one thing and mean another (`010` is 8, `12:30` is
750, `2026-01-01` is a date): those are refused with the spelling to use instead.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import yaml

from compiler.errors import RecipeError

MAX_BYTES = 1 << 20
"""A recipe is a form that somebody reads; anything larger is a mistake or an attack."""

MAX_DEPTH = 24
"""Nesting of a complete recipe is 7; PyYAML composes recursively."""

MAX_NUMBER_CHARS = 64

_TAG = "tag:yaml.org,2002:"
_TRUE_WORDS = frozenset({"yes", "true", "on"})
_NAME_RANGE = re.compile(r"\{\d+\.\.\d+\}")

Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Node:
    """One value and where it was written.

    Attributes:
        value: a scalar, a dict of nodes, or a tuple of nodes.
        origin: `recipes/cpu.yaml:12`, or `--set` for a value from the command line.
        text: a scalar as it was written, without quotes.
        quoted: whether a scalar was written in quotes.
    """

    value: "Scalar | dict[str, Node] | tuple[Node, ...]"
    origin: str
    text: str = ""
    quoted: bool = False

    def plain(self) -> Any:
        """Return the value without origins: dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def describe(self) -> str:
        """Return the value for a message: a string in quotes, another scalar as written, a container by its content."""
        if isinstance(self.value, dict):
            return f"a mapping with keys {', '.join(self.value)}" if self.value else "an empty mapping"
        if isinstance(self.value, tuple):
            return f"a list of {len(self.value)}"
        if self.value is None:
            return "null" if self.text else "nothing"
        return repr(self.value) if isinstance(self.value, str) else self.text


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses everything that is not plain data before it is built."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        unwanted = (
            isinstance(event, yaml.AliasEvent) or event.anchor is not None or getattr(event, "tag", None) is not None
        )
        if unwanted:
            raise yaml.MarkedYAMLError(problem="a tag, an anchor or an alias", problem_mark=event.start_mark)
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nesting deeper than {MAX_DEPTH}", problem_mark=event.start_mark)
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(data: bytes, name: str) -> Node:
    """Parse one YAML document.

    Args:
        data: the file's content.
        name: what messages call the file.

    Raises:
        RecipeError: the document is not plain YAML data in UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise RecipeError(
            f"{name}: expected at most {MAX_BYTES} bytes, got {len(data)}", cure="a recipe holds options, not data"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{name}: expected UTF-8 text, got byte {data[error.start]:#04x} at offset {error.start}",
            cure="save it as UTF-8",
        ) from None
    return _parse(text, name, numbered=True)


def node_of(value: Any, origin: str, place: str = "") -> Node:
    """Return values of a program as a tree, as if read from a file.

    Args:
        value: mappings with text as keys, lists, tuples, scalars; arrays and their numbers become lists and numbers.
        origin: text in messages in place of file and line.
        place: keys above the value.

    Raises:
        RecipeError: a value is of another type.
    """
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return Node({key: node_of(child, origin, f"{place}{key}.") for key, child in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node(tuple(node_of(child, origin, f"{place}{i}.") for i, child in enumerate(value)), origin)
    if value is None or isinstance(value, bool):
        return Node(value, origin, text={None: "null", True: "true", False: "false"}[value])
    if isinstance(value, str | int | float):
        return Node(value, origin, text=str(value), quoted=isinstance(value, str))
    if callable(getattr(value, "tolist", None)):
        return node_of(value.tolist(), origin, place)
    where = f"{origin}: {place.removesuffix('.')}" if place else origin
    raise RecipeError(
        f"{where}: expected text, numbers, truths, lists or mappings with text as keys, got {type(value).__name__}",
        cure="give the value as a recipe has it",
    )


def read_value(text: str, origin: str) -> Node:
    """Parse one value from the command line by the rules of the file, e.g. `[1, 4]` or `1.0e-5`."""
    return _parse(text, origin, numbered=False)


def _parse(text: str, name: str, *, numbered: bool) -> Node:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        raise RecipeError(
            f"{_origin(name, line, numbered)}: expected plain YAML data, got {_problem(error)}",
            cure=_cure(text, line, error),
        ) from None
    except yaml.YAMLError as error:
        raise RecipeError(
            f"{name}: expected plain YAML data, got {_one_line(str(error))}", cure="save it as UTF-8 text"
        ) from None
    if root is None:
        return Node(None, _origin(name, 0, numbered))
    return _convert(root, name, numbered=numbered)


def _origin(name: str, line: int, numbered: bool) -> str:
    return f"{name}:{line + 1}" if numbered else name


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _problem(error: yaml.MarkedYAMLError) -> str:
    return _one_line(error.problem or error.context or "text that cannot be parsed")


def _cure(text: str, line: int, error: yaml.MarkedYAMLError) -> str:
    lines = text.splitlines()
    nearby = " ".join(lines[max(0, line - 1) : line + 1])
    if "tag" in _problem(error) and "anchor" in _problem(error):
        return "write the value out; a recipe is data only"
    if _NAME_RANGE.search(nearby):
        return 'inside [ ] and { } put a name with a range in quotes, e.g. "cache_{00..11}"'
    if "\\t" in repr(nearby):
        return "indent with spaces, not tabs"
    return "check indentation, colons, quotes and brackets on this line and the one before"


def _convert(node: yaml.Node, name: str, *, numbered: bool) -> Node:
    origin = _origin(name, node.start_mark.line, numbered)
    if isinstance(node, yaml.ScalarNode):
        return Node(_scalar(node, origin), origin, text=node.value, quoted=node.style is not None)
    if isinstance(node, yaml.SequenceNode):
        return Node(tuple(_convert(item, name, numbered=numbered) for item in node.value), origin)
    entries: dict[str, Node] = {}
    for key_node, value_node in node.value:
        key_origin = _origin(name, key_node.start_mark.line, numbered)
        key = _key(key_node, key_origin)
        if key in entries:
            raise RecipeError(
                f"{key_origin}: expected each key once, got {key!r} again (first in {entries[key].origin})",
                cure="delete one of the two",
            )
        entries[key] = dataclasses.replace(_convert(value_node, name, numbered=numbered), origin=key_origin)
    return Node(entries, origin)


def _key(node: yaml.Node, origin: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise RecipeError(
            f"{origin}: expected a name as key, got a list or mapping", cure="check the indentation of this line"
        )
    value = "<<" if node.tag == _TAG + "merge" else _scalar(node, origin)
    if value == "<<" and node.style is None:
        raise RecipeError(
            f"{origin}: expected a name as key, got the merge key '<<'",
            cure="write the keys out; a recipe is data only",
        )
    if not isinstance(value, str):
        raise RecipeError(
            f"{origin}: expected a name as key, got {node.value or 'nothing'}, which YAML reads as {_kind(value)}",
            cure=f'write "{node.value}" in quotes',
        )
    return value


def _kind(value: Scalar) -> str:
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "text"}
    return kinds.get(type(value), "null")


def _scalar(node: yaml.ScalarNode, origin: str) -> Scalar:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE_WORDS
    if kind in ("int", "float"):
        return _number(text, kind, origin)
    raise RecipeError(
        f"{origin}: expected text or a number, got {text}, which YAML reads as a {kind}",
        cure=f'write "{text}" in quotes',
    )


def _number(text: str, kind: str, origin: str) -> int | float:
    if len(text) > MAX_NUMBER_CHARS:
        raise RecipeError(
            f"{origin}: expected a number of at most {MAX_NUMBER_CHARS} characters, got {len(text)}", cure="shorten it"
        )
    if ":" in text:
        raise RecipeError(
            f"{origin}: expected text or a number, got {text}, which YAML reads in base 60",
            cure=f'write "{text}" in quotes, or the plain number',
        )
    if kind == "float":
        return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.lower().replace("_", "")))
    digits = text.replace("_", "")
    if re.match(r"^[-+]?0[0-7]", digits):
        raise RecipeError(
            f"{origin}: expected a number, got {text}, which YAML reads in base 8",
            cure=f'write {text.lstrip("+-0") or "0"}, or "{text}" in quotes',
        )
    try:
        return int(digits, 0)
    except ValueError:
        raise RecipeError(
            f"{origin}: expected a number, got {text}", cure=f'write "{text}" in quotes if it is a name'
        ) from None
