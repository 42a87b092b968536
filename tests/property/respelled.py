"""One graph in two spellings: what is proved of it, and what it computes, hangs on neither.

`python -m tests.property.respelled 0 600` spells random graphs anew, and each of the small ones once in every hundred
seeds, as if read from a file, too.
"""

import collections
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.build.capture.onnx_source.onnx_file import read_onnx
from compiler.build.capture.onnx_source.opset_conversion import raised
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.pad_axes import PadAxes
from compiler.passes.simplify import Simplify
from tests.kit.offline import Differs
from tests.property.double_precision import InDouble
from tests.property.fuzz import MIXTURES, as_padded, grow
from tests.property.graph_builder import Mixture
from tests.property.respelling import Respelling
from tests.property.spelled_graphs import PAIRS, graph, spelled_graphs

MIXTURE = dataclasses.replace(MIXTURES[-1], name="respelled", opsets=(20,))
OUTCOMES = {"accepted", "refused", "as before"}


def compare_random(seed: int, nodes: int = 7, mixture: Mixture = MIXTURE) -> str:
    """Compare the spellings of a random graph; as `compare`."""
    return compare(as_padded(grow(seed, nodes, mixture)), seed)


def compare(origin: Lowered, seed: int) -> str:
    """Prove a graph, and the same in another spelling.

    Returns:
        `accepted`, `refused`, or `as before` where there is no other spelling.

    Raises:
        Differs: the proofs say different things of the two, or these compute something else.
    """
    origin = dataclasses.replace(origin, model=raised(origin.model))
    graphs.infer_shapes(origin.model)
    other = dataclasses.replace(origin, model=graphs.clone(origin.model))
    if not Respelling(other.model, np.random.default_rng(seed)).apply():
        return "as before"
    graphs.recount_names(other.model.graph)
    graphs.infer_shapes(other.model)
    _require_same_results(origin, other)
    return _require_same_proof(_proved(origin), _proved(other))


def compare_as_files(origin: Lowered, seed: int) -> str:
    """The same of what is read from files and simplified, the other one written with everything that a file may hold.

    Raises:
        Differs: as `compare`.
    """
    other = dataclasses.replace(origin, model=graphs.clone(origin.model))
    rng = np.random.default_rng(seed)
    Respelling(other.model, rng).apply()
    graphs.recount_names(other.model.graph)
    _write_otherwise(other.model, rng)
    _require_same_results(origin, other, tolerance=1e-2)  # of half precision, where the runtime fuses nodes or not
    return _require_same_proof(*(_verdict(_proved(_read(each))) for each in (origin, other)))


def compare_pair(first: Lowered, second: Lowered) -> str:
    """The same of two graphs that compute the same, of which only the verdict and the lengths are compared.

    Raises:
        Differs: as `compare`.
    """
    _require_same_results(first, second, tolerance=1e-5)
    return _require_same_proof(*(_verdict(_proved(_read(each))) for each in (first, second)))


def _write_otherwise(model: ir.Model, rng: np.random.Generator) -> None:
    """Nodes without names, constants by nodes and as inputs, values without shapes, and identities between nodes."""
    for node in list(model.graph):
        node.name = None
        for at, value in enumerate(node.inputs):
            if value is None or rng.integers(0, 4):
                continue
            array = graphs.array_of(value)
            made = ir.node("Identity", [value]) if array is None else _constant_node(array, rng)
            model.graph.insert_before(node, made)
            made.outputs[0].name = graphs.fresh_name(model.graph, "given")
            node.replace_input_with(at, made.outputs[0])
    for value in model.graph.initializers.values():
        if not rng.integers(0, 3):
            model.graph.inputs.append(value)
    graphs.forget_shapes(model)


def _constant_node(array: np.ndarray, rng: np.random.Generator) -> ir.Node:
    spelled: list[ir.Attr] = [ir.AttrTensor("value", ir.tensor(array))]
    if array.dtype == np.int64 and array.ndim < 2:
        listed = ir.AttrInt64s("value_ints", [int(n) for n in array.reshape(-1)])
        spelled.append(listed if array.ndim else ir.AttrInt64("value_int", int(array)))
    if array.dtype == np.float32 and array.ndim < 2:
        floats = ir.AttrFloat32s("value_floats", [float(n) for n in array.reshape(-1)])
        spelled.append(floats if array.ndim else ir.AttrFloat32("value_float", float(array)))
    return ir.Node("", "Constant", [], [spelled[int(rng.integers(len(spelled)))]])


def _read(lowered: Lowered) -> Lowered:
    """A graph as capture hands it on: from a file, and simplified."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        for value in lowered.model.graph.outputs:
            value.shape = value.shape or ir.Shape(["p", "q", "r"])  # a file has to say one
        path.write_bytes(graphs.serialized(lowered.model))
        model = read_onnx(path, Location("respelled"), "write it")
    graphs.infer_shapes(model)
    return Simplify().apply(dataclasses.replace(lowered, model=model)).lowered


def _verdict(proof: object) -> object:
    """Whether a graph is refused, or for which lengths it is proved."""
    return "refused" if isinstance(proof, str) else (proof[0], [])  # type: ignore[index]


def _require_same_proof(first: object, second: object) -> str:
    if isinstance(first, tuple) and isinstance(second, tuple):
        for one, other in zip(first[1], second[1], strict=False):
            for name in ("out", "out_shapes"):  # of several outputs, the last ones may be there and not be read
                count = min(len(one[name]), len(other[name]))
                one[name], other[name] = one[name][:count], other[name][:count]
    if first != second:
        raise Differs(f"of another spelling another proof: {_difference(first, second)}")
    return "refused" if isinstance(first, str) else "accepted"


def _require_same_results(origin: Lowered, other: Lowered, tolerance: float = 0.0) -> None:
    """Whether ONNX Runtime takes the two for the same: what is drawn is legal, and means the same."""
    sizes = {"batch": 2, "time": 9, "later": 7}
    rng = np.random.default_rng(0)
    feeds = {
        str(value.name): rng.standard_normal(
            [dim if isinstance(dim, int) else sizes.get(str(dim), 3) for dim in value.shape or ()]
        ).astype(np.float32)
        for value in origin.model.graph.inputs
        if not value.is_initializer()
    }
    results: list[Any] = []
    for each in (origin, other):
        try:
            results.append(open_session(graphs.serialized(each.model)).run(None, feeds))
        except Exception as error:  # noqa: BLE001 - a graph that does not run at these sizes runs in neither spelling
            results.append(f"{type(error).__name__}: {str(error)[:300]}")
    if isinstance(results[0], str) or isinstance(results[1], str):
        if not all(isinstance(result, str) for result in results):
            raise Differs(f"only one spelling runs: {results}")
    elif not all(_same(a, b, tolerance) for a, b in zip(*results, strict=True)):
        _require_same_in_double(origin.model, other.model, feeds)


def _require_same_in_double(first: ir.Model, second: ir.Model, feeds: Mapping[str, np.ndarray]) -> None:
    """Whether the reference takes the two for the same, where ONNX Runtime has kernels apart for the two spellings.

    Its MaxPool that gives places, and its GRU with a bias, answer otherwise to infinities and NaN.
    """
    try:
        both = [InDouble(each).run(None, feeds) for each in (first, second)]
    except Exception as error:
        raise Differs("the other spelling computes something else") from error
    if not all(_same(a, b, 1e-9) for a, b in zip(*both, strict=False)):
        raise Differs("the other spelling computes something else")


def _same(first: np.ndarray, second: np.ndarray, tolerance: float) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    close = np.isclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)
    return bool(np.all(close if first.dtype.kind == "f" else first == second))


def _proved(lowered: Lowered) -> object:
    """Why a graph is refused, or what is proved of every node."""
    written = CanonicalizeAttention().apply(dataclasses.replace(lowered, model=graphs.clone(lowered.model))).lowered
    try:
        outcome = PadAxes().apply(written)
    except Refused as refused:
        return f"{refused.place.op}: {refused.message}"
    axes = outcome.lowered.padded_axes
    steps = [
        {name: step[name] for name in ("op", "rule", "needs", "out", "out_shapes", "at_least_one", "assumes")}
        for step in outcome.records[0]["records"]
    ]
    return [(each.minimum, each.maximum) for each in axes], steps


def _difference(first: object, second: object) -> str:
    if isinstance(first, tuple) and isinstance(second, tuple) and first[0] == second[0]:
        steps = zip(first[1], second[1], strict=False)
        apart = [
            f"{one['op']}: {name} {one[name]} / {other[name]}"
            for one, other in steps for name in one if one[name] != other[name]
        ]  # fmt: skip
        return (apart or ["one more step"])[0][:600]
    return f"{str(first)[:200]} / {str(second)[:200]}"


def comparisons(first: int, last: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """The comparisons of some seeds, by what is compared: one random graph each, and a share of the small ones."""
    small = list(spelled_graphs())
    for seed in range(first, last):
        yield f"seed {seed}", lambda seed=seed: compare_random(seed)  # type: ignore[misc]
        for at in range(seed % 100, len(small), 100):
            name, make = small[at]
            yield f"{name}, seed {seed}", lambda make=make, seed=seed: compare(make(), seed)  # type: ignore[misc]
            name = f"{name}, file, seed {seed}"
            yield name, lambda make=make, seed=seed: compare_as_files(make(), seed)  # type: ignore[misc]
        for name, opset, body, other_opset, other in PAIRS if seed == first else ():
            both = (graph(body, opset=opset), graph(other, opset=other_opset))
            yield name, lambda both=both: compare_pair(*both)  # type: ignore[misc]


def main() -> int:
    """Compare many; 1 when a spelling made a difference."""
    counts: collections.Counter[str] = collections.Counter()
    for name, comparison in comparisons(*map(int, sys.argv[1:3])):
        try:
            counts[comparison()] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
            counts[type(error).__name__] += 1
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    print(dict(sorted(counts.items())))
    return 0 if set(counts) <= OUTCOMES else 1


if __name__ == "__main__":
    sys.exit(main())
