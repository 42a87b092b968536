"""Writes the message of a failed recipe check: `<file>:<line>: <key>: expected <E>, got <G>; <cure>`."""

import dataclasses
import re
from collections.abc import Sequence

import yaml
from pydantic_core import ErrorDetails

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.tree.keys import SET, Key, child_of, where
from compiler.recipe.tree.located_yaml import Node

_KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""What a value should have been, by the type of check that failed."""

_BOUNDS = {
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "finite_number": "a finite number",
    "string_too_short": "text",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} entry",
    "string_pattern_mismatch": "{shape}",
    "literal_error": "one of the known names",
}

_SHAPES = (
    (":", "a reference package.module:name"),
    ("_.-", "a name of letters, digits, underscores, dots and hyphens"),
    ("", "a name of letters, digits and underscores that starts with a letter"),
)
"""What a pattern asks for, by a mark that it holds."""

_EXPONENT = re.compile(r"^([-+]?\d[\d_]*)(\.\d*)?[eE]([-+]?)(\d+)$")

_DTYPE_WORDS = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "double": "float64",
    "int": "int64",
    "long": "int64",
}


@dataclasses.dataclass(frozen=True)
class _Problem:
    """One failed check: where it is in the tree, and whether it is about one branch of a choice of types."""

    keys: tuple[Key, ...]
    node: Node | None
    branch: bool
    error: ErrorDetails

    @property
    def is_type(self) -> bool:
        return self.error["type"] in _KINDS


def first_problem(tree: Node, errors: Sequence[ErrorDetails]) -> RecipeError:
    """Return the error to report: a misspelt key, which may explain a missing one, else the first."""
    problems = [_placed(tree, error) for error in errors]
    unknown = [problem for problem in problems if problem.error["type"] == "unknown_key"]
    chosen = unknown[0] if unknown else _most_telling(problems)
    same = [problem for problem in problems if problem.keys == chosen.keys and problem.branch == chosen.branch]
    return _message(tree, chosen, same)


def _placed(tree: Node, error: ErrorDetails) -> _Problem:
    node, keys, branch = tree, list[Key](), False
    for key in error["loc"]:
        child = child_of(node, key)
        if child is None and not (error["type"] == "missing" and key == error["loc"][-1]):
            branch = branch or key != "[key]"
            continue
        keys.append(key)
        node = child or node
    missing = error["type"] == "missing"
    return _Problem(tuple(keys), None if missing else node, branch, error)


def _most_telling(problems: list[_Problem]) -> _Problem:
    """Return the first problem; of a choice, that of the branch whose type fits."""
    first = problems[0]
    if not first.branch:
        return first
    branches = [problem for problem in problems if problem.branch and problem.keys[: len(first.keys)] == first.keys]
    return next((problem for problem in branches if not problem.is_type), first)


def _message(tree: Node, problem: _Problem, same: list[_Problem]) -> RecipeError:
    start, error, node = where(tree, problem.keys), problem.error, problem.node
    context = error.get("ctx", {})
    if error["type"] == "disagree":
        start = where(tree, (*problem.keys, *context["keys"]))
        return RecipeError(f"{start}: {context['message']}", cure=context["cure"])
    if error["type"] == "missing":
        cure = f"{_meant(tree, problem.keys)}add {problem.keys[-1]}"
        return RecipeError(f"{start}: expected this key, got none", cure=cure)
    if error["type"] == "unknown_key":
        key, known = str(context["key"]), context["known"]
        start = where(tree, (*problem.keys, key))
        return RecipeError(f"{start}: expected a known key, got {key!r}", cure=did_you_mean(key, known))
    if error["loc"][-1:] == ("[key]",):
        return RecipeError(f"{start}: expected {_expected(error)}, got the key {error['input']!r}", cure="rename it")
    got = node.describe() if node else "nothing"
    if problem.is_type:
        expected = " or ".join(dict.fromkeys(_KINDS[other.error["type"]] for other in same if other.is_type))
        return RecipeError(f"{start}: expected {expected}, got {got}", cure=_type_cure(expected, node))
    return RecipeError(f"{start}: expected {_expected(error)}, got {got}", cure=_value_cure(error, node))


def _meant(node: Node, keys: Sequence[Key]) -> str:
    """Return a hint where `--set` has misspelt a key above a missing one; else an empty string."""
    for key in keys:
        child = child_of(node, key)
        if child is not None and child.origin == SET and isinstance(node.value, dict):
            found = did_you_mean(str(key), [name for name, other in node.value.items() if other.origin != SET])
            return f"{found}; else " if found.startswith("did you mean") else ""
        node = child or node
    return ""


def _expected(error: ErrorDetails) -> str:
    context = dict(error.get("ctx", {}))
    pattern = str(context.get("pattern", ""))
    shape = next(words for mark, words in _SHAPES if mark in pattern)
    template = _BOUNDS.get(error["type"])
    return template.format(**context, shape=shape) if template else error["msg"].lower()


def _value_cure(error: ErrorDetails, node: Node | None) -> str:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        known = re.findall(r"'([^']+)'", str(context["expected"]))
        got = str(node.value) if node else ""
        return did_you_mean(_DTYPE_WORDS.get(got.lower(), got), known)
    if error["type"] == "string_pattern_mismatch" and ":" in str(context["pattern"]):
        return "for example package.module:build"
    if error["type"] == "string_pattern_mismatch" and {"shape", "original"} & set(error["loc"]) and node is not None:
        return _size_cure(str(node.value))
    return "change the value"


def _size_cure(text: str) -> str:
    """Return the cure for an invalid size; rows merged with another axis are described with `original`."""
    cure = "write a number, or the name of an axis"
    if not re.search(r"[-+*/]", text):
        return cure
    return f"{cure}; where rows are merged with something else, describe the model for one row, with `original`"


def _type_cure(expected: str, node: Node | None) -> str:
    """Return the spelling that YAML reads as the expected type, where it can be computed."""
    if node is None:
        return "add a value"
    if node.value is None and not node.text:
        return "give it a value, or delete the key"
    if "text" in expected and not isinstance(node.value, dict | tuple):
        return f'YAML reads {node.text} as {_read_as(node.value)}; write "{node.text}" in quotes'
    if isinstance(node.value, str) and expected not in ("a list", "a mapping"):
        return _number_cure(expected, node)
    if "list" in expected and not isinstance(node.value, dict):
        return f"write [{node.text}]"
    if expected == "an integer" and isinstance(node.value, float) and node.value.is_integer():
        return f"write {int(node.value)}"
    if expected == "a mapping":
        return "write `key: value` lines below it, indented"
    if expected == "a list" and isinstance(node.value, dict):
        return "write - in front of each entry"
    return f"write {expected}"


def _read_as(value: object) -> str:
    return {bool: "a boolean", int: "an integer", float: "a number"}.get(type(value), "null")


def _number_cure(expected: str, node: Node) -> str:
    exponent = _EXPONENT.match(node.text)
    if "number" in expected and exponent:
        whole, fraction, sign, power = exponent.groups()
        fixed = f"{whole}{fraction if fraction and fraction != '.' else '.0'}e{sign or '+'}{power}"
        return f"YAML reads {node.text} as text; write {fixed}"
    if node.quoted and not isinstance(yaml.safe_load(node.text or "''"), str):
        return f"drop the quotes: {node.text}"
    return f"write {expected}"
