"""Operators that broadcast, matrix products among them."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.batching.form import INSERTED, in_place
from compiler.batching.lifter import Site


def common_distance(site: Site, operands: Sequence[int], smallest: int = 1) -> int | None:
    """How far from the end the batch can take the place of a 1 in all operands that have rows; None where it cannot.

    Args:
        site: the node.
        operands: inputs that broadcast against each other.
        smallest: least distance; 3 where the last two axes are those of a matrix.
    """
    found = [(operand, site.place(operand)) for operand in operands if operand in site.rows]
    for distance in dict.fromkeys(site.rank(operand) - place for operand, place in found if place is not None):
        sizes = [_size(site, operand, distance) for operand in operands]
        reached = all(site.rank(operand) >= distance for operand, _ in found)
        if distance >= smallest and reached and all(size == 1 for size in sizes):
            return distance
    return None


def _size(site: Site, operand: int, distance: int) -> object:
    dims = site.dims(operand)
    return dims[-distance] if len(dims) >= distance else 1


def pointwise(site: Site) -> None:
    """Every entry of the output follows from the entries that broadcast to its place."""
    operands = site.present
    rank = max(site.rank(operand) for operand in operands)
    distance = common_distance(site, operands)
    for operand in site.rows:
        if distance is not None:
            site.read(operand, in_place(site.rank(operand) - distance))
        else:
            site.node.replace_input_with(operand, site.aligned(operand, rank))
    site.keep(in_place(rank - distance) if distance is not None else INSERTED)


def first_pointwise(site: Site) -> None:
    """As `pointwise` in the first input; the others are settings that all rows share."""
    site.require_shared(*site.present[1:], what="its settings")
    place = site.place()
    form = INSERTED if place is None else in_place(place)
    site.read(0, form)
    site.keep(form)


def quantization(site: Site) -> None:
    """One scale for the tensor, or one per entry of an axis."""
    site.require_shared(1, 2, what="its scale")
    place = site.place()
    if not site.dims(1) or site.dims(1) == (1,):
        first_pointwise(site)
        return
    axis = site.axis(1)
    if place is not None and place != axis:
        site.read(0, in_place(place))
        site.keep(in_place(place))
        return
    site.read(0, INSERTED)
    site.set("axis", axis + 1)
    site.keep(INSERTED)


def product(site: Site) -> None:
    """MatMul: leading axes broadcast; rows of the left matrix are free as well."""
    site.require_shared(*site.present[2:], what="its zero points")
    left, right = site.rank(0), site.rank(1)
    rank = max(left, right)
    distance = common_distance(site, (0, 1), smallest=3)
    if distance is not None:
        for operand in site.rows:
            site.read(operand, in_place(site.rank(operand) - distance))
        dropped = (left == 1) + (right == 1)
        site.keep(in_place(rank - distance if not dropped else len(site.out_dims()) + dropped - distance))
        return
    if site.rows == [0] and left >= 2 and site.place(0) == left - 2 and right <= 2:
        site.read(0, in_place(left - 2))
        site.keep(in_place(left - 2))
        return
    _lifted_product(site, max(left, right, 2))


def _lifted_product(site: Site, rank: int) -> None:
    """Both operands as matrices below the batch; vectors become matrices of one row or column first."""
    tensors: list[ir.Value] = []
    gone: list[int] = []
    for operand, end in ((0, -2), (1, -1)):
        tensor = site.value(operand)
        own = site.rank(operand)
        if operand not in site.rows:
            if own == 1:
                axis = site.insert.int64s(0 if operand == 0 else 1)
                tensor = site.insert.op("Unsqueeze", [tensor, axis], name=f"{tensor.name}_matrix")
                gone.append(end)
            tensors.append(tensor)
            continue
        tensor = site.tensor(operand, INSERTED)
        if own == 1:
            axis = site.insert.int64s(1 if operand == 0 else 2)
            tensor = site.insert.op("Unsqueeze", [tensor, axis], name=f"{tensor.name}_matrix")
            gone.append(end)
        missing = rank - max(own, 2)
        if missing:
            axes = site.insert.int64s(*range(1, missing + 1))
            tensor = site.insert.op("Unsqueeze", [tensor, axes], name=f"{tensor.name}_aligned")
        tensors.append(tensor)
    for operand, tensor in enumerate(tensors):
        site.node.replace_input_with(operand, tensor)
    site.keep(INSERTED)
    if gone:
        (output,) = site.node.outputs
        after = house.Inserter(site.lifter.model, site.lifter.stamp, after=site.node)
        vector = after.op("Squeeze", [output, after.int64s(*sorted(gone))], name=f"{output.name}_vector")
        site.become(vector, INSERTED)


def gemm(site: Site) -> None:
    """Rows of the left matrix are free; all else is written as a product and a sum."""
    node = site.node
    turned = [house.int_attribute(node, name, 0) for name in ("transA", "transB")]
    shared_sum = not site.has(2) or 2 in site.rows or site.rank(2) < 2 or site.dims(2)[0] == 1
    sum_in_place = 2 not in site.rows or (site.rank(2) == 2 and site.place(2) == 0)
    if 1 not in site.rows and 0 in site.rows and site.place(0) == 0 and not turned[0] and shared_sum and sum_in_place:
        for operand in site.rows:
            site.read(operand, in_place(0))
        site.keep(in_place(0))
        return
    tensors = []
    for operand in (0, 1):
        has_rows = operand in site.rows
        tensor = site.tensor(operand, INSERTED) if has_rows else site.value(operand)
        if turned[operand]:
            order = [0, 2, 1] if has_rows else [1, 0]
            tensor = site.insert.op("Transpose", [tensor], {"perm": order}, name=f"{tensor.name}_turned")
        tensors.append(tensor)
    result = site.insert.op("MatMul", tensors, name=f"{node.outputs[0].name}_product")
    result = _scaled(site, result, "alpha")
    if site.has(2):
        summand = site.aligned(2, 2) if 2 in site.rows else site.value(2)
        result = site.insert.op("Add", [result, _scaled(site, summand, "beta")], name=f"{node.outputs[0].name}_sum")
    site.become(result, INSERTED)


def _scaled(site: Site, value: ir.Value, name: str) -> ir.Value:
    factor = house.attribute(site.node, name, 1.0)
    assert isinstance(factor, float)
    if factor == 1.0:
        return value
    original = site.value(0)
    assert original.dtype is not None
    constant = site.insert.constant(original.dtype.numpy().type(factor).reshape(()), name)
    return site.insert.op("Mul", [value, constant], name=f"{value.name}_{name}")


def einsum(site: Site) -> None:
    """A letter more, for the batch, in every operand that has rows and in the result."""
    text = house.attribute(site.node, "equation")
    assert isinstance(text, str)
    text = text.replace(" ", "")
    terms, arrow, result = text.partition("->")
    if not arrow:
        raise refuse("Einsum without a result in its equation", "write the result behind ->")
    letter = next(each for each in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if each not in text)
    lifted = []
    for operand, term in enumerate(terms.split(",")):
        if operand in site.rows:
            site.read(operand, INSERTED)
            term = letter + term
        lifted.append(term)
    site.node.attributes["equation"] = ir.AttrString("equation", f"{','.join(lifted)}->{letter}{result}")
    site.keep(INSERTED)
