"""Finds the MatMuls and convolutions that OpenVINO computes in integers, from its description of a compiled graph."""

from collections.abc import Iterator
from typing import Any

PRODUCTS = ("convolution", "fullyconnected", "groupconvolution", "matmul")
"""Kernels that multiply, as the names begin that OpenVINO has for them."""

SCALED = "/DequantizationMultiply"
"""What OpenVINO adds to the name of a product whose result it scales in the same kernel."""

INTEGERS = frozenset({"i8", "u8"})


def integer_products(runtime_model: Any) -> frozenset[str]:
    """Return the names of the nodes of the graph file whose products are computed in integers.

    Args:
        runtime_model: OpenVINO's description of a compiled graph.
    """
    return frozenset(name for node in runtime_model.get_ops() for name in _integer_names(node.get_rt_info()))


def _integer_names(told: Any) -> Iterator[str]:
    if _text(told, "layerType").lower().startswith(PRODUCTS) and _text(told, "runtimePrecision") in INTEGERS:
        yield from (name.removesuffix(SCALED) for name in _text(told, "originalLayersNames").split(","))


def _text(told: Any, key: str) -> str:
    return str(told[key].astype(str))
