"""Doubles that allow what the genuine class of one version allows, and nothing else.

Every attribute is looked up on the genuine class, and every call is checked against the signatures in its genuine
documentation, which pybind11 writes from the code. What a call does comes from tests/kit/vendor.py.
"""

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.kit import vendor

NUMBER_WORDS = ("int", "typing.SupportsInt", "typing.SupportsIndex")
BUFFER_WORDS = ("buffer", "typing_extensions.Buffer", "collections.abc.Buffer")
PLAIN = {"str": str, "bool": bool, "float": float, "tuple": tuple, "list": list, "object": object, "Any": object}
CPP_NAMES = {
    "nvonnxparser::OnnxParserFlag": "OnnxParserFlag",
    "nvonnxparser::IParserError": "ParserError",
    "nvinfer1::IRuntimeCache": "IRuntimeCache",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature."""

    name: str
    kind: str
    is_optional: bool


@dataclass(frozen=True)
class Signature:
    """One overload: its parameters without self, and what it returns."""

    parameters: tuple[Parameter, ...]
    returns: str


def signatures(name: str, documentation: str) -> list[Signature]:
    """The overloads that a docstring of pybind11 lists."""
    pattern = rf"^(?:\d+\. )?{re.escape(name)}\((.*)\) -> (.+)$"
    found = re.findall(pattern, documentation or "", re.MULTILINE)
    return [Signature(tuple(_parameters(inside)), returns.strip()) for inside, returns in found]


def _parameters(text: str) -> Iterator[Parameter]:
    depth, start, parts = 0, 0, []
    for at, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    for part in [*parts, text[start:]]:
        declared, default, _ = part.partition(" = ")
        name, _, kind = declared.partition(":")
        if part.strip() and name.strip() != "self":
            yield Parameter(name.strip(), kind.strip(), bool(default))


class Checked:
    """A library of one version whose objects are doubles.

    Args:
        genuine: the vendor's bindings.
    """

    def __init__(self, genuine: Any) -> None:
        self.genuine = genuine
        self.calls: list[str] = []
        self.library = types.ModuleType("tensorrt")
        vars(self.library).update({name: each for name, each in vars(genuine).items() if name != "__name__"})
        for behaviour in vendor.DOUBLES:
            setattr(self.library, behaviour.genuine, DoubleClass(self, behaviour))

    def class_named(self, word: str) -> Any:
        """The genuine class that an annotation names, or None."""
        return getattr(self.genuine, CPP_NAMES.get(word, word.rpartition(".")[2]), None)

    def fits(self, value: Any, kind: str) -> bool:
        """Whether a value may be given where a signature asks for a kind."""
        if kind in NUMBER_WORDS:
            return isinstance(value, int | np.integer) and not isinstance(value, bool)
        if kind in BUFFER_WORDS:
            return isinstance(value, bytes | bytearray | memoryview | np.ndarray)
        if kind.rpartition(".")[2] == "Dims":  # the bindings convert sequences of numbers
            return isinstance(value, tuple) and all(self.fits(size, "int") for size in value)
        if kind in PLAIN:
            return isinstance(value, PLAIN[kind])
        wanted = self.class_named(kind)
        assert isinstance(wanted, type), f"no such kind of argument is known: {kind!r}"
        return wanted is value.genuine if isinstance(value, Double) else isinstance(value, wanted)

    def check(self, where: str, name: str, documentation: str, given: tuple[Any, ...]) -> Signature:
        """The overload that a call fits.

        Raises:
            TypeError: it fits none, as the genuine call would say.
        """
        overloads = signatures(name, documentation)
        assert overloads, f"{where}: no signature in {documentation!r}"
        for overload in overloads:
            least = sum(not each.is_optional for each in overload.parameters)
            if least <= len(given) <= len(overload.parameters) and all(
                self.fits(value, each.kind) for value, each in zip(given, overload.parameters, strict=False)
            ):
                self.calls.append(where)
                return overload
        raise TypeError(f"{where}: incompatible arguments {[type(value).__name__ for value in given]} for {overloads}")

    def wrapped(self, value: Any, returns: str) -> Any:
        """What a call gives: a double where the genuine one gives an object, a genuine member where it gives one."""
        if hasattr(value, "genuine"):
            expected = self.class_named(returns)
            assert expected is getattr(self.genuine, value.genuine), f"{returns} is not {value.genuine}"
            return Double(self, value)
        members = getattr(self.class_named(returns), "__members__", {})
        return members[value] if isinstance(value, str) and members else value


class DoubleClass:
    """Stands for a class that our code makes objects of."""

    def __init__(self, checked: Checked, behaviour: type[Any]) -> None:
        self._checked, self._behaviour = checked, behaviour
        self._genuine = getattr(checked.genuine, behaviour.genuine)
        self.__name__ = behaviour.genuine

    def __call__(self, *given: Any) -> "Double":
        where = f"{self.__name__}.__init__"
        self._checked.check(where, "__init__", self._genuine.__init__.__doc__, given)
        return Double(self._checked, self._behaviour(*map(plain, given)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._genuine, name)


class Double:
    """Stands for an object of the vendor."""

    def __init__(self, checked: Checked, behaviour: Any) -> None:
        object.__setattr__(self, "_checked", checked)
        object.__setattr__(self, "_behaviour", behaviour)
        object.__setattr__(self, "genuine", getattr(checked.genuine, behaviour.genuine))

    def __getattr__(self, name: str) -> Any:
        kind = self._behaviour.genuine
        attribute = getattr(self.genuine, name)  # AttributeError as from the genuine object
        where = f"{kind}.{name}"
        if isinstance(attribute, property):
            self._checked.calls.append(where)
            return self._checked.wrapped(getattr(self._behaviour, name), _property_kind(attribute))

        def call(*given: Any) -> Any:
            signature = self._checked.check(where, name, attribute.__doc__, given)
            return self._checked.wrapped(getattr(self._behaviour, name)(*map(plain, given)), signature.returns)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        attribute = getattr(self.genuine, name)
        if not isinstance(attribute, property) or attribute.fset is None:
            raise AttributeError(f"{self.genuine.__name__}.{name} cannot be set")
        kind = _property_kind(attribute)
        if not self._checked.fits(value, kind):
            raise TypeError(f"{self.genuine.__name__}.{name}: expected {kind}, got {type(value).__name__}")
        self._checked.calls.append(f"{self.genuine.__name__}.{name} =")
        setattr(self._behaviour, name, value)


def _property_kind(attribute: property) -> str:
    documentation = attribute.fget.__doc__ or "" if attribute.fget is not None else ""
    return documentation.strip().splitlines()[0].rpartition("-> ")[2].strip()


def plain(value: Any) -> Any:
    """What a behaviour is given for a double."""
    return value._behaviour if isinstance(value, Double) else value
