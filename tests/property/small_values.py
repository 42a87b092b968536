"""What is known of the numbers in small values, whatever their axes, is what ONNX Runtime computes.

`python -m tests.property.small_values 0 1000` draws graphs of sizes: columns and rows, tables of them, cuts and sums in
every spelling of their axes.
"""

import re
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.runners.session import run_model
from tests.kit.graphs import parse

LENGTHS, ROWS, CHANNELS = (5, 7), 3, 4
NODES = 7

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1},
    int64[1] minus2 = {-2}, int64[1] end = {9223372036854775807}, int64[0] nowhere = {}, int64[2] pair = {1, 0},
    int64[2] both = {0, 1}, int64[2] twos = {2, 2}, int64 first = {0}, int64 second = {1}, int64 last = {-1}>"""

FORMS = (
    "Unsqueeze(A, AXIS)", "Squeeze(A, AXIS)", "Squeeze(A)", "Concat<axis = AT>(A, B)", "Transpose(A)",
    "Reshape(A, minus)", "Reshape(A, twos)", "Flatten<axis = AT>(A)", "Slice(A, AXIS, end, AXIS)",
    "Slice(A, minus, minus2, AXIS, minus)", "Slice(A, zero, AXIS, AXIS, two)", "Gather<axis = AT>(A, PICK)",
    "GatherElements<axis = AT>(A, pair)", "Add(A, B)", "Sub(A, B)", "Mul(A, B)", "Max(A, B)", "Min(A, B)",
    "Div(A, B)", "Mod(A, B)", "Neg(A)", "SUM<keepdims = BIT, noop_with_empty_axes = BIT>(A)",
    "SUM<keepdims = BIT, noop_with_empty_axes = BIT>(A, OVER)", "Expand(A, twos)", "Tile(A, pair)", "CumSum(A, last)",
    "Pad(A, pair)", "Pad(A, both, , AXIS)",
)  # fmt: skip

HOLES = {
    "AXIS": ("zero", "one", "minus", "minus2"),
    "AT": ("-2", "-1", "0", "1"),
    "PICK": ("zero", "pair", "first", "second", "last"),
    "SUM": ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"),
    "OVER": ("nowhere", "zero", "one", "minus", "both"),
    "BIT": ("0", "1"),
}


def drawn(seed: int) -> list[str]:
    """The lines of a graph that runs, each of which makes one value of those in front of it."""
    rng = np.random.default_rng(seed)
    lines, names = ["a0 = Shape(x)"], ["a0", "two", "pair"]
    for at in range(1, NODES + 1):
        text = _filled(str(rng.choice(FORMS)), {"A": names, "B": names, **HOLES}, rng)
        if _runs([*lines, f"a{at} = {text}"]):
            lines, names = [*lines, f"a{at} = {text}"], [*names, f"a{at}"]
    return lines


def _filled(form: str, holes: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    """A form with something drawn in the place of every word that is a hole."""
    words = (str(rng.choice(holes[word])) if word in holes else word for word in re.split(r"(\w+)", form))
    return "".join(words)


def _runs(lines: Sequence[str]) -> bool:
    try:
        _computed(graph(lines), LENGTHS[0])
    except Exception:  # noqa: BLE001 - whatever the parser or the runtime has against it
        return False
    return True


def graph(lines: Sequence[str]) -> ir.Model:
    """A graph that gives out every value."""
    names = [line.split(" = ")[0] for line in lines]
    outputs = ", ".join(f"int64[{name}_size] {name}" for name in names)
    return parse(f"(float[batch,time,{CHANNELS}] x) => ({outputs}) {CONSTANTS} {{ {'  '.join(lines)} }}")


def _computed(model: ir.Model, length: int) -> dict[str, np.ndarray]:
    return run_model(model, {"x": np.zeros((ROWS, length, CHANNELS), np.float32)})


def misread(lines: Sequence[str]) -> list[str]:
    """The values of which something else is known than is computed, at any of the lengths."""
    model, found = graph(lines), []
    computed = {length: _computed(model, length) for length in LENGTHS}
    for value in model.graph.outputs:
        for read in (graphs.integers_of, symbolic_values_of):
            known = read(value)
            for length in LENGTHS if known is not None else ():
                lengths = {graphs.symbol("time"): length, graphs.symbol("batch"): ROWS}
                numbers = [each if isinstance(each, int) else each.subs(lengths) for each in known or ()]
                is_number = all(isinstance(each, int) or each.is_number for each in numbers)
                if is_number and [int(each) for each in numbers] != computed[length][str(value.name)].ravel().tolist():
                    found.append(f"{value.name}: {read.__name__} says {known} at length {length}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Draw graphs of some seeds; the exit status is 1 where one is misread."""
    wrong = 0
    for seed in range(int(arguments[0]), int(arguments[1])):
        lines = drawn(seed)
        for message in misread(lines)[:1]:
            wrong += 1
            print(f"{seed}: {message} in {'  '.join(lines)}", flush=True)
    print(f"{wrong} graphs misread")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
