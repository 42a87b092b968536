"""Stands for the worker of Arm's toolchain: answers as it does, and rounds inputs and outputs alone.

`STAND_IN_ETHOS_U` says what is wrong with it: a `crash`, a `hang`, `nonsense` in the place of an answer, a node that is
left to the `cpu`.
"""

import io
import json
import os
import pathlib
import signal
import sys
import time
import zipfile
from typing import Any

FAULT = os.environ.get("STAND_IN_ETHOS_U", "")

VERSIONS = {"ethos-u-vela": "5.2.0", "executorch": "1.5.1"}

STEP = {"scale": 2.0**-10, "zero_point": 0, "dtype": "int16"}
"""All tensors have steps of a thousandth, up to 32."""


def compile_program(program: dict[str, Any], out: pathlib.Path) -> dict[str, Any]:
    """Write the parts of a program."""
    border = {side: [{"name": name, **STEP} for name in program[side]] for side in ("inputs", "outputs")}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as tosa:
        for name, content in (
            ("border.json", json.dumps(border).encode()),
            ("module.pt2", pathlib.Path(program["module"]).read_bytes()),
        ):
            tosa.writestr(zipfile.ZipInfo(name), content)
    (out / "engines").mkdir(exist_ok=True)
    (out / program["engine"]).write_bytes(file.getvalue())
    (out / program["border"]).write_text(json.dumps(border))
    (out / program["commands"]).write_bytes(b"commands")
    return {
        "seconds": {},
        "agreement": "every bit of 7 numbers",
        "losses": dict.fromkeys(program["outputs"], "60.0 dB at least, 0.00 % of numbers to the bit"),
        "estimates": {"cycles": 1000.0, "SRAM in KiB": 2.5},
        "call_bytes": 77,
    }


def main() -> None:
    """Do one task."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "hang":
        time.sleep(600)
    if FAULT == "nonsense":
        (out / "built.json").write_text("\x00 is no JSON")
        return
    refused = [
        {"graph": program["graph"], "nodes": [["y_relu", "aten.relu"]], "reason": "1 outside"}
        for program in request["programs"]
        if FAULT == "cpu"
    ]
    figures = {program["graph"]: compile_program(program, out) for program in request["programs"]}
    (out / "built.json").write_text(json.dumps({"versions": VERSIONS, "refused": refused, "figures": figures}))


if __name__ == "__main__":
    main()
