"""Checks that the graphs of a manifest's voice have the named tensors, and that they accept every drawn token."""

import itertools
import math
from collections.abc import Iterable
from typing import NoReturn

from runtime_lite.errors import show
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Graph, Manifest, Tensor, Voice, static_shape


def check_voice(where: str, manifest: Manifest) -> None:
    """Check the voice of a manifest, if it has one, against its graphs.

    Raises:
        BundleRefused: they do not agree.
    """
    voice = manifest.voice
    if voice is None:
        return
    for key, name in (("step", voice.step), ("codec", voice.codec)):
        if name not in manifest.graphs:
            refuse(f"{where}.{key}", f"one of the graphs {', '.join(manifest.graphs)}", show(name))
        if not manifest.graphs[name].states:
            refuse(f"{where}.{key}", "a graph with states", f"{name!r}, which has none")
    if voice.step == voice.codec:
        refuse(f"{where}.codec", "another graph than the step", show(voice.codec))
    step, codec = manifest.graphs[voice.step], manifest.graphs[voice.codec]
    _check_tokens(where, voice, step)
    _check_codec(where, voice, codec)
    _check_vocabulary(where, voice, step, codec)
    if voice.frames is not None:
        _check_frame_limit(f"{where}.frames", voice, voice.frames.input, step)


def frames_axis(voice: Voice, codec: Graph) -> str | None:
    """Return the name of the axis of frames of a codec that was checked; None for one that takes a frame a call."""
    codes = next(tensor for tensor in codec.inputs if tensor.name == voice.codes)
    return next(iter(_named(codec, codes)), None)


def _named(graph: Graph, tensor: Tensor) -> list[str]:
    """Return the axes of a tensor other than that of rows."""
    return [size for size in tensor.shape if isinstance(size, str) and size != graph.batch_axis]


def _input(where: str, graph: Graph, name: str) -> Tensor:
    fed = [tensor for tensor in graph.inputs if tensor.role == "data"]
    return _of(where, "an input that callers feed", fed, name)


def _output(where: str, graph: Graph, name: str) -> Tensor:
    outputs = [tensor for tensor in graph.outputs if tensor.role == "data"]
    return _of(where, "an output that callers get", outputs, name)


def _of(where: str, what: str, known: Iterable[Tensor], name: str) -> Tensor:
    tensors = {tensor.name: tensor for tensor in known}
    if name not in tensors:
        refuse(where, f"{what} ({', '.join(tensors)})", show(name))
    return tensors[name]


def _check_tokens(where: str, voice: Voice, step: Graph) -> None:
    tokens, scores = _input(f"{where}.tokens", step, voice.tokens), _output(f"{where}.scores", step, voice.scores)
    if tokens.dtype not in ("int32", "int64") or len(tokens.shape) != 2:
        _refuse_tensor(f"{where}.tokens", "an integer input of shape [rows, count]", tokens)
    if not scores.dtype.startswith("float") or not scores.shape or not isinstance(scores.shape[-1], int):
        _refuse_tensor(f"{where}.scores", "an output of floats whose last size is the number of tokens", scores)
    if tokens.shape[1] in step.axes and not _takes_one(step, str(tokens.shape[1])):
        sizes = step.axes[str(tokens.shape[1])].buckets
        refuse(f"{where}.tokens", f"an input that takes one token along {tokens.shape[1]!r}", f"sizes {show(sizes)}")


def _takes_one(graph: Graph, axis: str) -> bool:
    """Return whether a call may have the size 1 along an axis."""
    record = graph.axes[axis]
    return record.buckets[0] == 1 if record.length_input is None else record.minimum <= 1


def _check_codec(where: str, voice: Voice, codec: Graph) -> None:
    codes, sound = _input(f"{where}.codes", codec, voice.codes), _output(f"{where}.sound", codec, voice.sound)
    along = _named(codec, codes)
    others = [size for size in codes.shape if isinstance(size, int) and size != 1]
    if codes.dtype not in ("int32", "int64") or len(along) > 1 or others:
        _refuse_tensor(f"{where}.codes", "an integer input with an axis of frames and no other size but 1", codes)
    frames = along[0] if along else None
    if frames is not None and not _takes_one(codec, frames):
        refuse(f"{where}.codes", f"chunks from 1 frame on along {frames!r}", show(codec.axes[frames].buckets))
    if not sound.dtype.startswith("float"):
        _refuse_tensor(f"{where}.sound", "an output of floats", sound)
    for artifact in codec.artifacts:
        sizes = {**artifact.sizes, **({} if codec.batch_axis is None else {codec.batch_axis: 1})}
        count = 1 if frames is None else sizes[frames]
        expected = voice.samples_per_frame * count
        if math.prod(static_shape(sound.shape, sizes)) != expected:
            got = f"{list(static_shape(sound.shape, sizes))} of {voice.sound!r}"
            refuse(f"{where}.samples_per_frame", f"{expected} samples of {count} frames", got)
    if voice.noise is not None:
        noise = _input(f"{where}.noise", codec, voice.noise)
        if noise.dtype != "float32" or _named(codec, noise) != along:
            _refuse_tensor(f"{where}.noise", f"an input of float32 along {frames!r}", noise)
    for tensor in codec.inputs:
        if tensor.role == "data" and set(along) & set(tensor.shape) and tensor.name not in (voice.codes, voice.noise):
            refuse(f"{where}.codec", f"no input along {frames!r} but codes and noise", show(tensor.name))


def _check_vocabulary(where: str, voice: Voice, step: Graph, codec: Graph) -> None:
    """Check that the start can be fed, that stop tokens can be drawn, and that all others can be fed to both graphs."""
    size = _output(where, step, voice.scores).shape[-1]
    assert isinstance(size, int)
    if missing := sorted(token for token in voice.sampling.stop if token >= size):
        refuse(f"{where}.sampling.stop", f"tokens below {size}, the number of scores", str(missing[0]))
    fed = _input(where, step, voice.tokens)
    if voice.start is not None and not _is_in(fed, voice.start):
        refuse(f"{where}.start", f"a token that {voice.tokens!r} takes, {show(fed.range)}", str(voice.start))
    for tensor in (fed, _input(where, codec, voice.codes)):
        low, high = (0, size) if tensor.range is None else (math.ceil(tensor.range[0]), math.floor(tensor.range[1]) + 1)
        outside = itertools.chain(range(min(max(low, 0), size)), range(max(high, 0), size))
        wrong = next((token for token in outside if token not in voice.sampling.stop), None)
        if wrong is not None:
            expected = f"every token below {size} that {tensor.name!r} does not take, {show(tensor.range)}"
            refuse(f"{where}.sampling.stop", expected, f"no {wrong}")


def _is_in(tensor: Tensor, token: int) -> bool:
    return tensor.range is None or tensor.range[0] <= token <= tensor.range[1]


def _check_frame_limit(where: str, voice: Voice, name: str, step: Graph) -> None:
    text = _input(f"{where}.input", step, name)
    if name == voice.tokens or len(_named(step, text)) != 1:
        _refuse_tensor(f"{where}.input", "an input of the text, with one axis beside that of rows", text)


def _refuse_tensor(where: str, expected: str, got: Tensor) -> NoReturn:
    refuse(where, expected, f"{got.name!r}, {got.dtype} of shape {show(list(got.shape))}")
