"""Derives the steps of a vocoder as a build does, runs the passes, and holds the streamed sound to the module's.

Three rows go through in pushes of one frame, of two, of three, of prime and of random numbers of frames, and whole;
after every push there are as many samples as frames have come, times the samples of a frame.

What reads frames ahead answers later: the graph of a call is derived with that delay, both certificates are replayed,
and as many frames are fed behind the end. It is run as it is derived, for no recipe asks for it yet.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

import numpy as np
import onnx_ir as ir
import torch

from compiler.build.capture import torch_module
from compiler.build.capture.derived_steps import derived_model, with_caches
from compiler.build.capture.initial_graph import initial_graph
from compiler.build.lowering.certificates import replay_certificates
from compiler.checker.later import check_later
from compiler.checker.steps import check_steps
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import Runner
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes import make_pass
from compiler.passes.simplify import simplify_model
from compiler.proof.derivation.derive import DerivedSteps, derive
from tests.zoo.derived.family import BATCH, TIME
from tests.zoo.vocoders.family import WHOLE, Vocoder

ROWS = 3
TOLERANCE = 1e-4
PRIMES = (2, 3, 5, 7, 11)
RANDOM = (4, 1, 8, 6, 1, 1, 7)


class Differs(AssertionError):
    """Streamed sound is not the module's, or there are more or fewer samples."""


@dataclasses.dataclass(frozen=True)
class Streamed:
    """What came of a vocoder.

    Attributes:
        caches: that were found.
        kept: numbers that are kept from call to call, of one row.
        per_frame: samples of a frame.
        replayed: steps of certificates that the checker made again, the derivation's among them.
        error: the largest difference of samples to the module's, relative to the largest sample.
        delay: by how many frames samples come later.
    """

    caches: int
    kept: int
    per_frame: int
    replayed: int
    error: float
    delay: int = 0


def splits() -> Iterator[list[int]]:
    """Frames of every push, in several ways."""
    yield from (_filled(sizes) for sizes in ((1,), (2,), (3,), PRIMES, RANDOM))
    yield [WHOLE]


def _filled(sizes: tuple[int, ...]) -> list[int]:
    """Sizes again and again, until they are a whole sequence."""
    again = itertools.cycle(sizes)
    filled: list[int] = []
    while sum(filled) < WHOLE:
        filled.append(min(next(again), WHOLE - sum(filled)))
    return filled


def stream(family: Vocoder) -> Streamed:
    """Derive the steps of a vocoder and compare its sound.

    Raises:
        Differs: it is not the module's.
        SlipwayError: it is refused, or the checker rejects a proof.
    """
    torch.manual_seed(0)
    module, spec = family.build().eval(), family.spec
    model = torch_module.capture_module(module, family.name, spec, list(spec.inputs))
    made = derived_model(model, family.name, spec)
    sizes = {BATCH: ROWS, TIME: WHOLE}
    lowered = initial_graph(
        mock.Mock(), family.name, with_caches(spec, made.model, made.certificate), (made.model, None), WHOLE, sizes
    )
    replayed = made.steps
    for each in spec.passes:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        outcome = make_pass(each.name, {}).apply(lowered)
        check_between_passes(outcome.lowered)
        replayed += replay_certificates(before, outcome)
        lowered = outcome.lowered
    random = np.random.default_rng(0)
    feed = {name: np.concatenate([given.drawn(random, WHOLE) for _ in range(ROWS)])
            for name, given in family.inputs.items()}  # fmt: skip
    with torch.no_grad():
        whole: Array = module(*map(torch.from_numpy, feed.values())).numpy()
    session = session_of(lowered.model)
    error = max(_difference(family, Runner(lowered, session, ROWS), feed, whole, lengths) for lengths in splits())
    return Streamed(len(made.certificate["caches"]), _kept(lowered), whole.shape[1] // WHOLE, replayed, error)


def stream_later(family: Vocoder) -> Streamed:
    """Derive the steps of a vocoder that reads frames ahead, and compare its sound, which comes later.

    Raises:
        Differs: it is not the module's, or not as late as it should be.
        SlipwayError: it is refused.
        Rejected: the checker rejects a proof.
    """
    torch.manual_seed(0)
    module, spec = family.build().eval(), family.spec
    model = torch_module.capture_module(module, family.name, spec, list(spec.inputs))
    simplify_model(model)
    made = derive(model, TIME, "past", 2 * WHOLE, later=True)
    assert made.early is not None
    delay = int(made.certificate["delay"])
    early, late, steps = (ir.serde.serialize_model(each) for each in (made.early, model, made.model))
    replayed = check_later(early, late, made.certificate) + check_steps(late, steps, made.certificate)
    random, marks = np.random.default_rng(0), made.certificate["marks"]
    rows = [{name: given.drawn(random, WHOLE) for name, given in family.inputs.items()} for _ in range(ROWS)]
    feed = {name: np.concatenate([row[name] for row in rows]) for name in family.inputs}
    with torch.no_grad():
        whole: Array = module(*map(torch.from_numpy, feed.values())).numpy()
    per_frame, largest = whole.shape[1] // WHOLE, float(np.abs(whole).max())
    axes = {**{name: given.shape.index(TIME) for name, given in family.inputs.items()}, marks: 1}
    fed = {name: np.concatenate([array, array.take(range(delay), axes[name])], axes[name])
           for name, array in feed.items()}  # fmt: skip
    fed[marks] = np.repeat(np.array([[1, 0]], np.float32), [WHOLE, delay], axis=1).repeat(ROWS, axis=0)
    session, error = session_of(made.model), 0.0
    for lengths in splits():
        packets = _run(session, made, fed, axes, [*lengths, delay])
        if [packet.shape[1] for packet in packets] != [length * per_frame for length in (*lengths, delay)]:
            raise Differs(f"pushes of {lengths} frames and {delay} at the end have other numbers of samples")
        sound = np.concatenate(packets, axis=1)
        expected = np.concatenate([np.zeros((ROWS, delay * per_frame), np.float32), whole], axis=1)
        error = max(error, float(np.abs(sound - expected).max()) / largest)
        if not error <= TOLERANCE:
            raise Differs(f"pushes of {lengths} frames sound otherwise by {error:.2g} of the largest sample")
    kept = sum(int(state[0].size) for state in _begun(made).values())
    return Streamed(len(made.cached), kept, per_frame, replayed, error, delay)


def _begun(made: DerivedSteps) -> dict[str, Array]:
    """What is kept in front of the first frame, by input."""
    inputs = graphs.inputs_named(made.model)
    states = {}
    for cached in made.cached:
        value = inputs[cached.input]
        shape = [
            dim if isinstance(dim, int) else ROWS if str(dim) == BATCH else 0 for dim in graphs.dims_of(value) or ()
        ]
        assert value.dtype is not None
        states[cached.input] = np.zeros(shape, value.dtype.numpy())
    return states


def _run(
    session: Session, made: DerivedSteps, feed: Feed, axes: Mapping[str, int], lengths: Sequence[int]
) -> list[Array]:
    """The samples of every push."""
    states, outputs, done, packets = _begun(made), {each.input: each.output for each in made.cached}, 0, []
    for length in lengths:
        chunk = {name: array.take(range(done, done + length), axes[name]) for name, array in feed.items()}
        packet, *left = session.run(["waveform", *outputs.values()], {**chunk, **states})
        states = dict(zip(outputs, left, strict=True))
        packets.append(packet)
        done += length
    return packets


def _difference(family: Vocoder, runner: Runner, feed: Feed, whole: Array, lengths: list[int]) -> float:
    """The largest difference of sound in pushes of these lengths, relative to the largest sample."""
    per_frame, packets, done = whole.shape[1] // WHOLE, [], 0
    for length in lengths:
        chunk = {name: array.take(range(done, done + length), family.inputs[name].shape.index(TIME))
                 for name, array in feed.items()}  # fmt: skip
        packet = runner.step({**chunk, f"{TIME}_length": np.full(ROWS, length, np.int64)})["waveform"]
        if packet.shape[1] != length * per_frame:
            raise Differs(f"{packet.shape[1]} samples of {length} frames instead of {length * per_frame}")
        packets.append(packet)
        done += length
    error = float(np.abs(np.concatenate(packets, axis=1) - whole).max() / np.abs(whole).max())
    if not error <= TOLERANCE:
        raise Differs(f"pushes of {lengths} frames sound otherwise by {error:.2g} of the largest sample")
    return error


def _kept(lowered: Lowered) -> int:
    """Numbers that are kept from call to call, of one row."""
    inputs = graphs.inputs_named(lowered.model)
    shapes = [graphs.dims_of(inputs[state.input]) or () for state in lowered.states]
    return sum(int(np.prod([dim if isinstance(dim, int) else 1 for dim in shape])) for shape in shapes)
