"""How each vendor's toolchain is asked for its answers to single graphs; a new vendor is one function and one line."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler.errors import Refused
from compiler.graph.stages import Array
from compiler.targets.environment import Environment
from compiler.targets.qnn import environment as qnn_environment
from compiler.targets.qnn.socs import soc_of
from compiler.targets.toolchain import Toolchain

LIMIT_S, LIMIT_BYTES = 900.0, 8 << 30

TOGETHER = 16
"""Graphs of one process; where that crashes, each of them runs in a process of its own."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a toolchain makes of one graph on one feed.

    Attributes:
        outputs: by name; empty where it refuses.
        refused: why it does.
    """

    outputs: Mapping[str, Array]
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Vendor:
    """One vendor's toolchain.

    Attributes:
        environment: where it lives.
        precisions: by name, the bits of codes that values are rounded to; None for graphs in floating point.
        table: the file in the vendor's folder.
        ask: answers graph files, each with the file of its feed, that lie in a folder.
    """

    environment: Environment
    precisions: Mapping[str, int | None]
    table: Path
    ask: Callable[[Path, Sequence[tuple[str, str]]], list[Answer]]


def _ask_qnn(folder: Path, programs: Sequence[tuple[str, str]]) -> list[Answer]:
    environment, out = qnn_environment.ENVIRONMENT, folder / f"answers-{programs[0][0]}"
    request = {
        "task": "answer",
        "bundle": str(folder),
        "soc": soc_of("SM8550").number,
        "programs": [{"graph": graph, "feed": feed} for graph, feed in programs],
    }
    try:
        Toolchain(environment.interpreter, environment.worker, LIMIT_S, LIMIT_BYTES).run(request, out)
    except Refused as refused:
        if len(programs) == 1:
            return [Answer({}, refused.message.partition(" (it wrote")[0])]
        return [answer for program in programs for answer in _ask_qnn(folder, [program])]
    told = {each["graph"]: each for each in json.loads((out / "answered.json").read_text())["refused"]}
    return [_answer(out, graph, told.get(graph)) for graph, _ in programs]


def _answer(out: Path, graph: str, told: Mapping[str, object] | None) -> Answer:
    if told is not None:
        is_left = bool(told["nodes"]) or "assigned to the default CPU EP" in str(told["reason"])
        return Answer({}, "left to the CPU" if is_left else str(told["reason"]))
    with np.load(out / f"{Path(graph).stem}.npz") as found:
        return Answer(dict(found))


VENDORS: Mapping[str, Vendor] = {
    "qnn": Vendor(
        qnn_environment.ENVIRONMENT,
        {"float16": None, "a16w8": 16, "a8w8": 8},
        Path(qnn_environment.__file__).with_name("operators.json"),
        _ask_qnn,
    )
}
