"""Maps files of large weights into memory, so that weights that no stage reads occupy no RAM.

A build holds several graphs at once: as captured, before and after a pass, and what certificates speak of. Each content
is written once, whichever graphs share it, and read where it is mapped.
"""

import mmap
import tempfile
import weakref
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
import onnx_ir as ir

from compiler.base.pieces import flat
from compiler.graph.runners.structure import WEIGHTS, digest_of, remember_digest
from compiler.graph.stages import Array
from runtime_lite.executors.heap import trim_heap

LEAST_BYTES = 2**20
"""Smaller weights stay in memory."""

_MAPS: "weakref.WeakSet[mmap.mmap]" = weakref.WeakSet()
"""All that is mapped here and still read by some graph."""

_PLACES: dict[str, tuple["weakref.ref[mmap.mmap]", int]] = {}
"""Where a content is mapped, and its offset there, by its digest."""


def mapped(file: BinaryIO) -> mmap.mmap:
    """Map a file, which may then be closed and removed; writes to the mapping do not reach the file."""
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    _MAPS.add(mapping)
    return mapping


def map_weights(*models: ir.Model | None) -> int:
    """Move large weights into a mapped file; they stay in memory where no such file can be written.

    Args:
        models: models whose tensors are replaced by equal ones; None is skipped.

    Returns:
        The number of bytes written, for weights that were not mapped before.
    """
    values = [value for model in models if model is not None for value in model.graph.initializers.values()]
    large = {value: tensor for value in values if (tensor := value.const_value) is not None and _is_large(tensor)}
    mapped_by = {value: owner for value, tensor in large.items() if isinstance(owner := _owner(tensor), mmap.mmap)}
    _MAPS.update(mapped_by.values())  # files of others, as those of an ONNX model, are mapped where they are
    large = {value: tensor for value, tensor in large.items() if value not in mapped_by}
    digests = {value: digest_of(tensor) for value, tensor in large.items()}
    new = {digest: large[value] for value, digest in digests.items() if _place_of(digest) is None}
    mapping = None
    if new:
        try:
            mapping = _written(new)
        except OSError:
            return 0
    for value, digest in digests.items():
        value.const_value = _tensor_at(digest, large[value])
    return 0 if mapping is None else len(mapping)


def unload_weights() -> None:
    """Release the memory of mapped weights until they are read again, and free memory of the heap."""
    for mapping in list(_MAPS):
        mapping.madvise(mmap.MADV_DONTNEED)
    trim_heap()


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype in WEIGHTS and tensor.nbytes >= LEAST_BYTES


def _owner(tensor: ir.TensorProtocol) -> object:
    """Return the object that owns the memory of a tensor."""
    owner: object = tensor.numpy()
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner


def _written(tensors: Mapping[str, ir.TensorProtocol]) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        offsets = dict[str, int]()
        for digest, tensor in tensors.items():
            offsets[digest] = file.tell()
            file.write(flat(tensor.numpy()))
            file.write(bytes(-file.tell() % mmap.PAGESIZE))
        file.flush()
        mapping = mapped(file)
    _PLACES.update((digest, (weakref.ref(mapping), offset)) for digest, offset in offsets.items())
    return mapping


def _place_of(digest: str) -> tuple[mmap.mmap, int] | None:
    reference, offset = _PLACES.get(digest, (None, 0))
    mapping = None if reference is None else reference()
    return None if mapping is None else (mapping, offset)


def _tensor_at(digest: str, like: ir.TensorProtocol) -> ir.TensorProtocol:
    place = _place_of(digest)
    assert place is not None
    content: Array = np.frombuffer(place[0], np.uint8, like.nbytes, place[1])
    tensor = ir.tensor(content.view(like.dtype.numpy()).reshape(like.shape.numpy()), name=like.name)
    remember_digest(tensor, digest)
    return tensor
