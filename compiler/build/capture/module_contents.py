"""Hashes the parameters, buffers and attributes of a module by name, so that two modules can be compared."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

TENSORS = ("_parameters", "_buffers")
"""Attributes of a module that hold tensors by name."""


def contents_of(module: torch.nn.Module) -> dict[str, str]:
    """Return digests of all parameters, buffers and plain attributes by name, and the class of every part."""
    found: dict[str, str] = {}
    for path, part in module.named_modules():
        front = f"{path}." if path else ""
        kind = f"{type(part).__module__}.{type(part).__qualname__} {part.training}"
        found[path or type(part).__qualname__] = hashlib.sha256(kind.encode()).hexdigest()
        for name, value in _attributes(part):
            digest = hashlib.sha256()
            _add_value(digest, value)
            found[front + name] = digest.hexdigest()
    return found


def _attributes(part: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for key, value in sorted(vars(part).items()):
        if key in TENSORS:
            yield from value.items()
        elif key not in ("_modules", "training") and not key.endswith("_hooks"):
            yield key, value


def digest_of_module(module: torch.nn.Module) -> str:
    """Return a hash of a module: structure, parameters, all buffers, and plain attributes."""
    return hashlib.sha256(repr(list(contents_of(module).items())).encode()).hexdigest()


def _add_value(digest: Any, value: Any) -> None:
    """Add a value to a digest: a tensor or plain value by content, a function by name, anything else by type."""
    if isinstance(value, torch.Tensor):
        array = value.detach().cpu().contiguous()
        digest.update(f"{array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().data if array.numel() else b"")
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict | list | tuple | set | frozenset):
        items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else list(value)
        digest.update(f"{type(value).__name__} {len(items)}".encode())
        for item in sorted(items, key=repr) if isinstance(value, set | frozenset) else items:
            _add_value(digest, item)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype):
        digest.update(repr(value).encode())
    else:
        named = value if hasattr(value, "__qualname__") else type(value)
        digest.update(f"{named.__module__}.{named.__qualname__}".encode())
