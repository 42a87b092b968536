"""What pages and messages tell users to install is what the project pins: nobody's package of a name that we use."""

import re
import shlex
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import FENCE, ROOT, blocks, pages
from tests.docs.test_messages import messages

INSTALL = re.compile(r"pip install ([^;`\n]+)")

EXTRA = {"onnxsim": "a contender of one benchmark", "no-such-distribution": "of a test"}
"""What is named and not pinned."""


def pinned() -> dict[str, str]:
    """Version by name of everything that the toolchain's metadata ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(text) for each in lists for text in each]
    return {canonicalize_name(each.name): str(each.specifier) for each in found if not each.name.startswith("slipway")}


def told() -> Iterator[tuple[str, str]]:
    """Every `pip install` with the page or module that has it."""
    for page in pages():
        texts = [command for block in blocks(page) if block.language == "sh" for command, _ in block.commands]
        texts += re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text(encoding="utf-8")))
        yield from ((page.name, found) for text in texts for found in INSTALL.findall(text.replace("\n", " ")))
    yield from (("a message", found) for text in messages() for found in INSTALL.findall(text) if "\x00" not in found)


def fault(arguments: str) -> str | None:
    """Why something that is told is not to be installed; None where it is."""
    for word in shlex.split(arguments):
        if word.startswith(("-", "distributions/", ".[")) or word.endswith(".whl"):
            continue
        try:
            asked = Requirement(word)
        except InvalidRequirement:
            return f"{word} is no requirement"
        known = pinned().get(canonicalize_name(asked.name))
        if known is None and asked.name not in EXTRA:
            return f"{word} is not what the project asks for"
        if known is not None and asked.specifier and str(asked.specifier) != known:
            return f"{word} is pinned as {known}"
    return None


def test_what_is_told_to_be_installed_is_pinned() -> None:
    everything = sorted(set(told()))
    assert len(everything) >= 8
    assert [f"{place}: {wrong}" for place, text in everything if (wrong := fault(text)) is not None] == []


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("'slipway[serving]'", "is not what the project asks for"),
        ("slipway-runtime", "is not what the project asks for"),
        ("openvino==2025.1.0", "is pinned as =="),
        ("-e .[zoo] left-pad", "left-pad is not what"),
    ],
)
def test_a_strangers_package_is_seen(planted: str, message: str) -> None:
    assert message in str(fault(planted))


def test_files_and_pinned_packages_are_fine() -> None:
    assert fault("slipway_runtime-*.whl onnxruntime prometheus-client") is None
    assert fault("-e distributions/runtime -e '.[example,dev]'") is None
