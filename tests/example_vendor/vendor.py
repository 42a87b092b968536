"""The toolchain of a vendor that there is not: compiler and simulator, in plain Python for an interpreter of its own.

    python vendor.py FOLDER < {"task": "version"}                                    -> version.txt
    python vendor.py FOLDER < {"task": "compile", "plans": [FILE, ...]}              -> engines/*.abacus, built.json
    python vendor.py FOLDER < {"task": "simulate", "engine": FILE, "feeds": {...}}   -> outputs.json

A tensor is `{"shape": [...], "values": [...]}`, its values in a row.
"""

import json
import pathlib
import struct
import sys
import zlib
from typing import Any

VERSION = "2.1"
MAGIC = "ABACUS"
MOST_BEADS = 4096

Tensor = dict[str, Any]


class VendorRefuses(Exception):
    """The graph does not fit the device."""


def compile_plans(plans: list[str], out: pathlib.Path) -> None:
    """Every program of some plans, as engines; which engine is whose."""
    built = {}
    for file in plans:
        plan, files = json.loads(pathlib.Path(file).read_text()), {}
        for program in plan["programs"]:
            beads = sum(len(tensor["values"]) for tensor in program["weights"].values())
            if beads > MOST_BEADS:
                raise VendorRefuses(f"{program['graph']}: expected at most {MOST_BEADS} beads, got {beads}")
            body = json.dumps(program, sort_keys=True).encode()
            engine = out / program["engine"]
            engine.parent.mkdir(exist_ok=True)
            engine.write_bytes(f"{MAGIC} {zlib.crc32(body):08x}\n".encode() + body)
            files[program["graph"]] = program["engine"]
        built[plan["name"]] = {"files": files, "built_with": {"abacus": VERSION, "frame": plan["frame"]}}
    (out / "built.json").write_text(json.dumps(built))


def simulate(engine: str, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of one call."""
    head, _, body = pathlib.Path(engine).read_bytes().partition(b"\n")
    if head.decode() != f"{MAGIC} {zlib.crc32(body):08x}":
        raise VendorRefuses(f"{engine}: expected an engine of this version, got another file")
    program = json.loads(body)
    values = {**program["weights"], **feeds}
    for op, inputs, output in program["nodes"]:
        values[output] = KERNELS[op](*(values[name] for name in inputs))
    return {name: values[name] for name in program["outputs"]}


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Two matrices."""
    (rows, inner), columns = a["shape"], b["shape"][1]
    cells = [
        sum(a["values"][row * inner + at] * b["values"][at * columns + column] for at in range(inner))
        for row in range(rows)
        for column in range(columns)
    ]
    return {"shape": [rows, columns], "values": rounded(cells)}


def add(a: Tensor, b: Tensor) -> Tensor:
    """Two tensors of one shape, or a row to every row."""
    count = len(b["values"])
    cells = [value + b["values"][at % count] for at, value in enumerate(a["values"])]
    return {"shape": a["shape"], "values": rounded(cells)}


def relu(a: Tensor) -> Tensor:
    """No bead below the beam."""
    return {"shape": a["shape"], "values": [0.0 if value < 0 else value for value in a["values"]]}


def rounded(values: list[float]) -> list[float]:
    """As the device holds them: 32 bits."""
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


KERNELS: dict[str, Any] = {"MatMul": matmul, "Add": add, "Relu": relu}


def main() -> int:
    """Do one task."""
    request, out = json.load(sys.stdin), pathlib.Path(sys.argv[1])
    try:
        if request["task"] == "version":
            (out / "version.txt").write_text(VERSION)
        elif request["task"] == "compile":
            compile_plans(request["plans"], out)
        else:
            (out / "outputs.json").write_text(json.dumps(simulate(request["engine"], request["feeds"])))
    except VendorRefuses as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
