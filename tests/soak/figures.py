"""The figures that long forms have measured, kept beside the machine they come from, and the page made of them."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.soak.growth import GROWTH_BARS
from tests.soak.row import Bar, Figures
from tests.soak.rows import ROWS

FIGURES = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).parents[2] / "docs" / "serving_tests.md"

Kept = Mapping[str, Mapping[str, Any]]
"""By row: figures, size, seconds, machine."""


def kept() -> Kept:
    """What was kept; nothing where nothing was."""
    loaded: Kept = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}
    return loaded


def keep(name: str, figures: Figures, size: float, seconds: float) -> None:
    """Keep the figures of a row in place of those before."""
    told = {"figures": dict(figures), "machine": machine(), "seconds": round(seconds), "size": size}
    ordered = sorted({**kept(), name: told}.items(), key=lambda item: (item[0].zfill(4), item[0]))
    FIGURES.write_text(json.dumps(dict(ordered), indent=1) + "\n", encoding="utf-8")


def machine() -> str:
    """Processor, cores and memory of this machine."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [line.split(":")[1].strip() for line in cpu.splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB"


HEAD = """# Tests of serving

What goes wrong in runtimes, each done to ours on purpose. The short form of a row is in `make test`: it
runs on a virtual clock, with threads that are moved by hand, or waits for events, and judges what is the same on every
machine. The long form is a command, and measures time as well. Its figures are below; bars in **bold** are not kept.

```sh
.venv/bin/python -m tests.soak --row 11            # one row
.venv/bin/python -m tests.soak                     # all that need no quiet machine
.venv/bin/python -m tests.soak --quiet             # those that do
.venv/bin/python -m tests.soak --minutes 30        # memory over time
```

`--keep` keeps the figures in [figures.json](../tests/soak/figures.json), with the machine that they come from, and
`--table` writes this page from them. What a row does is in [rows.py](../tests/soak/rows.py).

| row | test | what is done | size | figures, and bars | s |
|---|---|---|---|---|---|
"""

FOOT = """
Besides, random lives of the scheduler alone: tasks, cancels, streams, failures and ends at few distinct times on the
virtual clock, with every promise checked by a bookkeeping of its own. Over 1 000 000 of them (seeds from 2 000 000) no
promise was broken.

```sh
.venv/bin/python -m tests.property.serving --interleavings 1000000 --seed 2000000    # 15 minutes of one core
```

Row 30, the same promises on other hosts: rows 1, 5, 9, 10, 13 and 14 in this process and inside a Triton server, by
`python -m tests.runtime_lite.hosting.against_triton`; [what is not the same there](triton.md).
"""


def page(found: Kept) -> str:
    """The page of what was kept."""
    lines = [_line(str(row.number), row.name, row.does, row.bars, found) for row in ROWS]
    what = (
        "served by threads for minutes, memory that is allocated and not freed, and objects, by a fitted line; a fifth "
        "of it with a planted leak"
    )
    lines.append(_line("soak", "Memory over time", what, GROWTH_BARS, found))
    machines = sorted({str(each["machine"]) for each in found.values()})
    return HEAD + "".join(lines) + FOOT + "".join(f"\nMachine: {name}.\n" for name in machines)


def _line(name: str, title: str, does: str, bars: tuple[Bar, ...], found: Kept) -> str:
    told = found.get(name)
    if told is None:
        return f"| {name} | {title} | {does} | | not measured yet | |\n"
    by_figure = {bar.figure: bar for bar in bars}
    parts = [
        _figure(figure, value, by_figure.get(figure), told["figures"]) for figure, value in told["figures"].items()
    ]
    return f"| {name} | {title} | {does} | {told['size']:,} | {'; '.join(parts)} | {told['seconds']} |\n"


def _figure(name: str, value: float, bar: Bar | None, figures: Figures) -> str:
    text = f"{name} {value:,.4g}"
    if bar is None:
        return text
    return f"{text} ({bar})" if bar.fault(figures) is None else f"{text} (**{bar}**)"
