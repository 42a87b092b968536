"""Decodes what slides over the spatial axes of a convolution or a pool, with attributes left out and pads by name.

Conv(x, w), Conv<strides = [1], pads = [0, 0], auto_pad = "VALID">(x, w) of three axes:  stride 1, no pads
MaxPool<kernel_shape = [3], pads = [2, 0]>(x):                                           two entries in front
"""

import dataclasses

import onnx_ir as ir

WINDOWED = frozenset({"AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"})
"""A list of its own: operators whose spatial axes, from the third on, a window slides over."""


@dataclasses.dataclass(frozen=True)
class Window:
    """What slides over spatial axes; every tuple has one entry per axis.

    Attributes:
        kernel: entries of the window; None for an axis of which the size of the weights is not known.
        strides: how far it moves from one entry of the result to the next; for ConvTranspose from one of the operand.
        dilations: distance of the entries that it covers.
        pads: entries that are added in front and behind, removed by ConvTranspose; None where they follow from sizes.
        groups: into how many groups the channels of a convolution fall.
        rounds_up: whether a last window that is not covered entirely gives an entry.
    """

    kernel: tuple[int | None, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] | None
    groups: int
    rounds_up: bool

    @property
    def is_pointwise(self) -> bool:
        """Whether every entry of the result is computed of the entries at its own place."""
        return bool(self.kernel) and set(self.kernel) | set(self.strides) == {1} and not self.has_pads

    @property
    def has_pads(self) -> bool:
        """Whether an entry is added anywhere, or may be."""
        return self.pads is None or any(front or behind for front, behind in self.pads)


def window_of(node: ir.Node | None, rank: int) -> Window | None:
    """Return the view of a convolution or pool; None for other nodes.

    Args:
        node: any node.
        rank: rank of the data.
    """
    if node is None or node.op_type not in WINDOWED or node.domain not in ("", "ai.onnx"):
        return None
    spatial = rank - 2
    kernel = _integers(node, "kernel_shape") or _of_weights(node, spatial)
    strides, dilations = (_integers(node, name) or (1,) * spatial for name in ("strides", "dilations"))
    is_one = set(kernel) | set(strides) == {1}
    return Window(
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads=_pads(node, spatial, is_one=is_one),
        groups=_integer(node, "group", 1),
        rounds_up=bool(_integer(node, "ceil_mode", 0)),
    )


def _of_weights(node: ir.Node, spatial: int) -> tuple[int | None, ...]:
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    shape = None if weights is None else weights.shape
    sizes = (None,) * spatial if shape is None else tuple(shape)[2:]
    return tuple(size if isinstance(size, int) else None for size in sizes)


def _pads(node: ir.Node, spatial: int, *, is_one: bool) -> tuple[tuple[int, int], ...] | None:
    """Return the pads; of a window of one entry that moves by one, none are needed to keep sizes."""
    stated = node.attributes.get("auto_pad")
    automatic = "NOTSET" if stated is None else stated.as_string()
    if automatic not in ("NOTSET", "VALID") and not is_one:
        return None
    amounts = _integers(node, "pads") if automatic == "NOTSET" else ()
    amounts = amounts or (0,) * 2 * spatial
    return tuple(zip(amounts[:spatial], amounts[spatial:], strict=True))


def _integers(node: ir.Node, name: str) -> tuple[int, ...]:
    stated = node.attributes.get(name)
    return () if stated is None else tuple(stated.as_ints())


def _integer(node: ir.Node, name: str, default: int) -> int:
    stated = node.attributes.get(name)
    return default if stated is None else stated.as_int()
