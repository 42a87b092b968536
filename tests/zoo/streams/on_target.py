"""Builds steps of the zoo for a target, from the recipe that the zoo has for each and the target's line alone.

    python -m tests.zoo.streams.on_target qnn conformer_layer_inputs lstm_tuple

What comes of them are rows of the target's page. Artefacts are executed in the vendor's simulator, in a closed loop.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from compiler.targets import TARGETS
from runtime_lite.executors.toolchain_folder import FOLDER_VARIABLE, toolchains_folder
from tests.kit.models.project import Project
from tests.zoo.streams.__main__ import rows_of
from tests.zoo.streams.families import FAMILIES
from tests.zoo.streams.family import BATCH, StepFamily

CALLS = 40
"""Calls that a step is compared with after its passes; the closed loop takes as many of them as overflow its caches."""

PAGES = Path(__file__).parents[3] / "docs" / "generated"

MODULE = """\
import numpy as np
import torch

from tests.zoo.streams.families import FAMILIES

FAMILY = next(each for each in FAMILIES if each.name == "{name}")


def build():
    torch.manual_seed(0)
    return FAMILY.build().eval()


def verification():
    for seed in range(2):
        yield list(FAMILY.feeds(np.random.default_rng(seed), {calls}))
"""

HEAD = """# The streaming zoo on `{target}`

Steps of [the streaming zoo](streaming_zoo.md), built with `--strict` from the recipe that the zoo has for each and the
line `targets: [{{kind: {target}}}]` alone, and executed chunk by chunk in the vendor's simulator beside the module,
states going back into it. *SQNR* is the least that an output or state has at the first or the last of these *chunks*;
*seconds* are those of the whole build, on a machine with two busy cores. **Refused** gives the reason.

`python -m tests.zoo.streams.on_target {target} STEP ...` builds them and writes their rows of this page.

| step | result | chunks | SQNR | seconds |
|---|---|---|---|---|
"""


def recipe_of(family: StepFamily, target: str) -> Mapping[str, Any]:
    """The recipe of a step for one row, for a target that rounds."""
    spec = family.spec
    axes: dict[str, Any] = {
        axis: {"window": slots, "length_input": f"{axis}_length"} for axis, slots in family.windows.items()
    }
    axes |= {axis: {"buckets": list(sizes), "length_input": f"{axis}_length"} for axis, sizes in family.padded.items()}
    return {
        "name": family.name,
        "graphs": {
            "step": {
                "source": {"factory": "zoo_step:build"},
                "inputs": {name: _plain(given.written) for name, given in family.inputs.items()},
                "outputs": list(spec.outputs),
                "axes": {BATCH: {"buckets": [1]}, **axes},
            }
        },
        "data": {"verification": {"feeds": "zoo_step:verification", "count": 2}},
        "targets": [{"kind": target}],
        "gates": {
            "parity": {"step": {"max_abs": 1e-4, "chained_steps": CALLS, "lossy": {"max_abs": 0.1, "sqnr_db": 30.0}}}
        },
    }


def _plain(written: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in written.items()}


def row_of(family: StepFamily, target: str) -> str:
    """Build a step and return its row."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "step", Path(scratch) / "cache")
        project.folder.mkdir()
        project.write("zoo_step.py", MODULE.format(name=family.name, calls=CALLS))
        project.write("zoo.yaml", yaml.safe_dump(dict(recipe_of(family, target)), sort_keys=False))
        ended = project.build("--strict", recipe="zoo.yaml", cached=False)
    seconds = time.monotonic() - started
    if ended.code:
        said = ended.message.removeprefix("error: ").replace("\n", " ").replace("|", "/")
        return f"| {family.name} | refused: {said.partition('; ')[0]} | | | {seconds:.0f} |"
    return f"| {family.name} | {ended.report['verdict']} | {_figures(ended.report)} | {seconds:.0f} |"


def _figures(report: Mapping[str, Any]) -> str:
    """The chunks of the closed loop, and the least SQNR of a tensor at its first or its last chunk."""
    loop = {
        kind: [each for each in report["gates"] if each["gate"] == f"simulator.{kind}"]
        for kind in ("max_abs", "sqnr_db")
    }
    chunks = loop["max_abs"][0]["detail"].partition(" chunks")[0] if loop["max_abs"] else ""
    measured = [each["measured"] for each in loop["sqnr_db"] if each["measured"] is not None]
    return f"{chunks} | {min(measured):.1f} dB" if measured else f"{chunks} | no difference"


def main(arguments: list[str]) -> int:
    """Build the chosen steps and write their rows; the others stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.streams.on_target", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("steps", nargs="+", choices=[family.name for family in FAMILIES], metavar="STEP")
    options = parser.parse_args(arguments)
    os.environ[FOLDER_VARIABLE] = str(toolchains_folder())  # builds run in folders of their own
    page = PAGES / f"streaming_zoo_{options.target}.md"
    for family in FAMILIES:
        if family.name in options.steps:
            row = row_of(family, options.target)
            print(row, flush=True)
            rows = {**(rows_of(page.read_text(encoding="utf-8")) if page.is_file() else {}), family.name: row}
            text = HEAD.format(target=options.target) + "".join(f"{rows[name]}\n" for name in sorted(rows))
            page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
