"""Decodes the kernel window of a convolution or pool: its size, strides, dilations and pads, with defaults filled in.

Conv(x, w), Conv<strides = [1], pads = [0, 0], auto_pad = "VALID">(x, w) of three axes:  stride 1, no pads
MaxPool<kernel_shape = [3], pads = [2, 0]>(x):                                           two entries in front
"""

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "FusedConv": 1, "QLinearConv": 3}
"""Convolutions, and the operand that holds their weights."""

WINDOWED = frozenset({"AveragePool", "LpPool", "MaxPool", *WEIGHTS})
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
        automatic: name of the rule by which pads follow from sizes, as `SAME_UPPER`; empty where they are numbers.
        output_padding: entries that a ConvTranspose adds behind its result.
    """

    kernel: tuple[int | None, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] | None
    groups: int
    rounds_up: bool
    automatic: str = ""
    output_padding: tuple[int, ...] = ()

    @property
    def is_pointwise(self) -> bool:
        """Whether every entry of the result is computed of the entries at its own place."""
        return bool(self.kernel) and set(self.kernel) | set(self.strides) == {1} and not self.has_pads

    def keeps(self, axis: int) -> bool:
        """Whether, along a spatial axis, every entry of the result is computed of the entry at its own place."""
        pads = (0, 0) if self.pads is None else self.pads[axis]  # pads by name add nothing to windows of one entry
        return (self.kernel[axis], self.strides[axis], pads) == (1, 1, (0, 0))

    @property
    def has_pads(self) -> bool:
        """Whether an entry is added anywhere, or may be."""
        return self.pads is None or any(front or behind for front, behind in self.pads)


def window_of(node: ir.Node | None, rank: int) -> Window | None:
    """Return the view of a convolution or pool; None for other nodes, and where attributes are not of this rank.

    Args:
        node: any node.
        rank: rank of the data.
    """
    domains = ("com.microsoft",) if node is not None and node.op_type == "FusedConv" else ("", "ai.onnx")
    if node is None or node.op_type not in WINDOWED or node.domain not in domains:
        return None
    spatial = rank - 2
    kernel = _integers(node, "kernel_shape") or _of_weights(node, spatial)
    strides, dilations = (_integers(node, name) or (1,) * spatial for name in ("strides", "dilations"))
    stated = node.attributes.get("auto_pad")
    named = "NOTSET" if stated is None else stated.as_string()
    automatic = "" if named in ("NOTSET", "VALID") else named
    is_known = not automatic or set(kernel) | set(strides) == {1}  # one entry that moves by one needs no pads
    amounts = (_integers(node, "pads") if named == "NOTSET" else ()) or (0,) * 2 * spatial
    output_padding = _integers(node, "output_padding") or (0,) * spatial
    if not spatial == len(kernel) == len(strides) == len(dilations) == len(output_padding) == len(amounts) / 2:
        return None
    return Window(
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads=tuple(zip(amounts[:spatial], amounts[spatial:], strict=True)) if is_known else None,
        groups=_integer(node, "group", 1),
        rounds_up=bool(_integer(node, "ceil_mode", 0)),
        automatic=automatic,
        output_padding=output_padding,
    )


def with_pads(node: ir.Node, pads: Sequence[tuple[int, int]]) -> list[ir.Attr]:
    """Return the attributes of a convolution or pool, with other pads.

    Args:
        node: the convolution or pool.
        pads: entries that are added in front of and behind each spatial axis.
    """
    others = [attribute for name, attribute in node.attributes.items() if name not in ("auto_pad", "pads")]
    return [*others, ir.AttrInt64s("pads", [*(front for front, _ in pads), *(behind for _, behind in pads)])]


def _of_weights(node: ir.Node, spatial: int) -> tuple[int | None, ...]:
    operand = WEIGHTS.get(node.op_type, 0)
    weights = node.inputs[operand] if 0 < operand < len(node.inputs) else None
    shape = None if weights is None else weights.shape
    sizes = (None,) * spatial if shape is None else tuple(shape)[2:]
    return tuple(size if isinstance(size, int) else None for size in sizes)


def _integers(node: ir.Node, name: str) -> tuple[int, ...]:
    stated = node.attributes.get(name)
    return () if stated is None else tuple(stated.as_ints())


def _integer(node: ir.Node, name: str, default: int) -> int:
    stated = node.attributes.get(name)
    return default if stated is None else stated.as_int()
