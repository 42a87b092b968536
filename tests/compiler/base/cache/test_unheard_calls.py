"""unheard_calls: each call is heard while it is listened to, and is afterwards what it was."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest
import safetensors
import torch

from compiler.base.cache import unheard_calls
from compiler.base.cache.unheard_calls import PACKAGES, Listeners, Unheard, argument


class Native:
    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def from_file(name: str) -> str:
        return name

    def load(self, name: str) -> str:
        return self.name + name


class Child(Native):
    pass


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    module = ModuleType("native")
    vars(module).update(Native=Native, Child=Child)
    names = ("Native.__init__", "Native.from_file", "Native.load", "Child.from_file", "Child.absent")
    monkeypatch.setattr(unheard_calls, "PACKAGES", {"native": tuple(Unheard("native", name) for name in names)})
    monkeypatch.setattr(unheard_calls, "MODULES", {"native"})
    monkeypatch.setitem(sys.modules, "native", module)
    return []


def test_calls_are_heard_and_do_what_they_did(heard: list[tuple[str, Any]]) -> None:
    before = [dict(vars(Native)), dict(vars(Child)), os.stat]
    listeners = Listeners(lambda call, given: heard.append((call, given)))
    listeners.begin()
    assert Native("a").load(name="b") == "ab" and Native.from_file("c") == "c" and Child.from_file("d") == "d"
    os.stat(".")
    listeners.end()
    assert [(call, argument(given, at)) for (call, given), at in zip(heard, (1, 1, 0, 0, 0, 0), strict=False)] == [
        ("first native.Native.__init__", "a"),
        ("first native.Native.load", "b"),
        ("first native.Native.from_file", "c"),
        ("first native.Child.from_file", "d"),
        ("first native.Native.from_file", "d"),
        ("stat os.stat", "."),
    ]
    assert [dict(vars(Native)), dict(vars(Child)), os.stat] == before
    assert listeners.deaf == {"native"}


def test_every_package_that_is_installed_has_its_calls() -> None:
    import onnx
    import onnxruntime
    import sentencepiece
    import soundfile

    assert all((onnx, onnxruntime, sentencepiece, soundfile, safetensors, torch))
    listeners = Listeners(lambda call, given: None)
    listeners.begin()
    listeners.end()
    assert listeners.deaf == set() and PACKAGES["torch"]
    assert "__init__" not in vars(safetensors.safe_open)
