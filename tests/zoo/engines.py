"""`python -m tests.zoo.engines [family ...]` builds engines of the zoo's graphs with TensorRT-RTX, one line for each.

Each graph is made as the target makes it, in float32 and in half precision, for two kinds of device, and is built
whatever the linter says of it. The line says `taken`, or `refused by RULE`; `RULE refuses what is built`, which is
right where the rule says why it stays; and `NO RULE` where the builder refuses, or ends, what the linter takes.
`--streams` does so with the steps of the streaming zoo, `--bundle DIR` with the graphs of a bundle, in the types that
they have. All kinds of a family follow each other, so that a sweep may be made in portions.
"""

import argparse
import collections
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from compiler.errors import Refused, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.numerics.precision.write import write_types
from compiler.passes import make_pass, with_preferred
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.targets.base import Emitted
from compiler.targets.static_graphs import prepare_static
from compiler.targets.tensorrt.lint import lint
from compiler.targets.tensorrt.rule import DeviceLimits
from compiler.targets.tensorrt.target import Tensorrt
from tests.zoo.families import FAMILIES
from tests.zoo.family import DEFAULT_SIZES, Family
from tests.zoo.prove import lower
from tests.zoo.streams.families import FAMILIES as STEPS
from tests.zoo.streams.family import BATCH, StepFamily
from tests.zoo.streams.prove import captured

CALLS = 20
"""Calls of a stream that a step is captured for."""

KINDS = ((ir.DataType.FLOAT, "8.6"), (ir.DataType.FLOAT16, "8.6"), (ir.DataType.FLOAT16, "7.5"))
"""What graphs compute in, for which device: TensorRT-RTX has no products in float32 for a Turing."""

FILE = "graphs/graph.onnx"


def frozen(family: Family, kind: ir.DataType, target: Tensorrt) -> Lowered:
    """A family's graph as the target writes it.

    Raises:
        SlipwayError: it is not proved, or a pass refuses it.
    """
    sizes = DEFAULT_SIZES | dict(family.sizes)
    return written(graph_of(family.name), kind, target, {axis: sizes[axis] for axis in family.axes})


@functools.lru_cache(maxsize=1)
def graph_of(name: str) -> Lowered:
    """The graph of a family of the zoo behind the standard passes, which are the same for every kind of graph."""
    lowered = lower(next(each for each in FAMILIES if each.name == name))
    for each in STANDARD_PASSES[1:]:  # graphs are stored simplified
        lowered = make_pass(each, with_preferred(each, {}, Tensorrt.pass_options)).apply(lowered).lowered
    return lowered


def frozen_step(family: StepFamily, kind: ir.DataType, target: Tensorrt) -> Lowered:
    """A step of the streaming zoo as the target writes it, in its largest bucket.

    Raises:
        SlipwayError: it is refused.
    """
    return written(
        step_of(family.name), kind, target, {BATCH: 4, **{axis: sizes[-1] for axis, sizes in family.padded.items()}}
    )


@functools.lru_cache(maxsize=1)
def step_of(name: str) -> Lowered:
    """A step of the streaming zoo behind its passes, which are the same for every kind of graph."""
    family = next(each for each in STEPS if each.name == name)
    _, lowered = captured(family, CALLS)
    for each in family.spec.passes:
        lowered = make_pass(each.name, with_preferred(each.name, {}, Tensorrt.pass_options)).apply(lowered).lowered
    graphs.infer_shapes(lowered.model)
    return lowered


def written(lowered: Lowered, kind: ir.DataType, target: Tensorrt, sizes: Mapping[str, int]) -> Lowered:
    """A graph behind its passes, in one type and at one combination of sizes."""
    if kind != ir.DataType.FLOAT:
        lowered = write_types(lowered, (), kind)
    ((_, _, graph),) = prepare_static(target, lowered, {axis: (size,) for axis, size in sizes.items()}).graphs
    return graph


def outcome(graph: Lowered, target: Tensorrt) -> str:
    """What linter and builder say of a graph."""
    major, minor = target.compute_capability.split(".")
    limits = DeviceLimits((int(major), int(minor)), target.opset)
    rules = ", ".join(sorted({violation.rule for violation in lint(graph.model, limits)}))
    with tempfile.TemporaryDirectory() as folder:
        build = target.trial_builder(Path(folder))
        assert build is not None, "expected TensorRT-RTX, got none; install the extra rtx"
        (Path(folder) / FILE).parent.mkdir()
        (Path(folder) / FILE).write_bytes(graphs.serialized(graph.model))
        try:
            build(Path(folder), [Emitted({}, FILE, (), graph)])
        except Refused as refused:
            return f"refused by {rules}" if rules else f"NO RULE: {refused.message}"
    return f"{rules} refuses what is built" if rules else "taken"


Make = Callable[[ir.DataType, Tensorrt], Lowered]
"""Makes a graph in a type, for a device."""


def of_bundle(folder: Path) -> Iterator[tuple[str, Make]]:
    """The graphs of a bundle, each with the name of its file, in the types that they have."""

    def read(path: Path, kind: ir.DataType, target: Tensorrt) -> Lowered:
        return Lowered(path.stem, ir.external_data.load_to_model(ir.load(path)))

    for path in sorted((folder / "graphs").glob("*.onnx")):
        yield path.stem, functools.partial(read, path)


def of_zoo(names: Sequence[str], *, streams: bool) -> Iterator[tuple[str, Make]]:
    """The graphs of the zoo, or of the streaming zoo, each with its family."""
    makers: dict[str, Make] = (
        {each.name: functools.partial(frozen_step, each) for each in STEPS}
        if streams
        else {each.name: functools.partial(frozen, each) for each in FAMILIES if not each.stuck}
    )
    return ((name, make) for name, make in makers.items() if not names or name in names)


def said_of(make: Make, kind: ir.DataType, target: Tensorrt) -> str:
    """What linter and builder say of a graph, or why there is none."""
    try:
        graph = make(kind, target)
    except (SlipwayError, ModuleNotFoundError) as error:  # some families need the packages of the extra `zoo`
        return f"not made: {error}"
    return outcome(graph, target)


def main(arguments: list[str]) -> int:
    """Build; how many graphs the builder refuses without a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.engines", description=__doc__)
    parser.add_argument("families", nargs="*", help="all by default")
    parser.add_argument("--streams", action="store_true", help="the steps of the streaming zoo")
    parser.add_argument("--bundle", type=Path, help="build its graphs in place of the zoo's")
    options = parser.parse_args(arguments)
    found = collections.Counter[str]()
    graphs = of_bundle(options.bundle) if options.bundle else of_zoo(options.families, streams=options.streams)
    for name, make in graphs:
        for kind, capability in KINDS[1:] if options.bundle else KINDS:
            started = time.perf_counter()
            said = said_of(make, kind, Tensorrt(compute_capability=capability))
            found[said.split(":")[0]] += 1
            types = "as it is" if options.bundle else kind.name
            print(f"{name}, {types}, {capability}: {said} ({time.perf_counter() - started:.1f} s)", flush=True)
    print("\n".join(f"{count} {said}" for said, count in found.most_common()))
    return found["NO RULE"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
