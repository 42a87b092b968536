"""The page docs/bundle.md: every key of a manifest, from the records that the runtime reads it into.

python -m tests.docs.bundle_page
"""

import dataclasses
import inspect
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from runtime_lite.format import later_keys
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.costs import Cost
from runtime_lite.format.initial_value import Initial
from runtime_lite.format.manifest import (
    Artifact,
    Axis,
    Engine,
    FileEntry,
    FrameLimit,
    Graph,
    Latency,
    Manifest,
    Sources,
    State,
    Tensor,
    Voice,
    Wire,
)
from runtime_lite.format.sampling import Sampling
from tests.docs.recipe_page import attributes_told

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bundle.md"

MARK = "<!-- Written by `python -m tests.docs.bundle_page` from the docstrings of runtime_lite/format. -->"
"""What stands above it in the page is written by hand."""

SECTIONS: Mapping[str, type] = {
    "`manifest.json`": Manifest,
    "`graphs.<graph>`": Graph,
    "`graphs.<graph>.inputs[]`, `outputs[]`": Tensor,
    "`graphs.<graph>.axes.<axis>`": Axis,
    "`graphs.<graph>.states[]`": State,
    "`graphs.<graph>.caches[]`": CacheAxis,
    "`graphs.<graph>.artifacts[]`": Artifact,
    "`graphs.<graph>.engine`": Engine,
    "`graphs.<graph>.latency`": Latency,
    "`wiring[]`": Wire,
    "`voice`": Voice,
    "`voice.frames`": FrameLimit,
    "`voice.sampling`": Sampling,
    "`sha256`": Sources,
    "`files.<file>`": FileEntry,
    "`costs.json`: `<graph>.<bucket>`": Cost,
}
"""The records of a bundle by where they stand."""

LATER: Mapping[type, Mapping[str, Any]] = {
    Manifest: later_keys.OF_MANIFEST,
    Graph: later_keys.OF_GRAPH,
    Tensor: later_keys.OF_TENSOR,
    Axis: later_keys.OF_AXIS,
    CacheAxis: later_keys.OF_CACHE,
    Cost: {"p99_ms": None},
}
"""Keys that may be absent, and what that means."""

WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    types.NoneType: "`null`",
    Initial: "number, or lists of numbers",
}


def type_of(kind: Any) -> str:
    """A field's type as JSON has it."""
    if dataclasses.is_dataclass(kind):
        return "object"
    origin, parts = get_origin(kind), get_args(kind)
    if kind in WORDS:
        return WORDS[kind]
    if origin in (Union, types.UnionType):
        return ", or ".join(dict.fromkeys(type_of(each) for each in parts))
    if origin is frozenset:
        return f"list: {type_of(parts[0])}"
    if origin is tuple:
        is_open = parts[-1] is ...
        return f"list: {type_of(parts[0])}" if is_open else f"list of {len(parts)}: {type_of(parts[0])}"
    return f"{type_of(parts[0])}: {type_of(parts[1])}"


def _where_absent(record: type, key: str) -> str:
    if key not in LATER.get(record, {}):
        return ""
    value = LATER[record][key]
    return "`{}`" if value == {} else f"`{str(value).lower().replace('none', 'null')}`"


def page() -> str:
    """The text of docs/bundle.md: what is written by hand, and the tables."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    lines = [before + MARK]
    for title, record in SECTIONS.items():
        summary, _, _ = (inspect.getdoc(record) or "").partition("\n")
        lines += [
            "",
            f"## {title}",
            "",
            summary,
            "",
            "| key | type | where it is absent | meaning |",
            "|---|---|---|---|",
        ]
        told = {name: re.sub(r"\bNone\b", "`null`", text) for name, text in attributes_told(record).items()}
        lines += [
            f"| `{field.name}` | {type_of(field.type)} | {_where_absent(record, field.name)} | {told[field.name]} |"
            for field in dataclasses.fields(record)
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
