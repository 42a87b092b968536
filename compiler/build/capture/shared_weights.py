"""Makes the large weights of a module share memory with equal constants of captured graphs."""

import hashlib
from collections.abc import Iterable

import onnx_ir as ir
import torch

from compiler.base.pieces import flat
from compiler.graph.runners.structure import digest_of

LEAST_BYTES = 2**20
"""Smaller parameters stay the module's own."""


def share_weights(module: torch.nn.Module, models: Iterable[ir.Model]) -> int:
    """Make large parameters share memory with equal graph constants; return how many. Buffers stay apart."""
    tensors = [value.const_value for model in models for value in model.graph.initializers.values()]
    large = [tensor for tensor in tensors if tensor is not None and tensor.nbytes >= LEAST_BYTES]
    held = {digest_of(tensor): tensor.numpy() for tensor in large if tensor.dtype == ir.DataType.FLOAT}
    count = 0
    for parameter in module.parameters():
        tensor = parameter.data
        if tensor.nbytes < LEAST_BYTES or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            continue
        constant = held.get(hashlib.sha256(flat(tensor.numpy())).hexdigest())
        if constant is not None and constant.flags.writeable and constant.shape == tuple(tensor.shape):
            parameter.data = torch.from_numpy(constant)
            count += 1
    return count
