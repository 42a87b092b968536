"""Batches elementwise operators, quantization, MatMul, Gemm and Einsum."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.proof.batching.form import INSERTED, in_place
from compiler.proof.batching.lifter import LiftedNode
from compiler.proof.facts.facts import refuse


def common_distance(lifted: LiftedNode, operands: Sequence[int], smallest: int = 1) -> int | None:
    """Return the distance from the end at which the batch replaces a 1 in all operands with rows; else None.

    Args:
        lifted: the node.
        operands: inputs that broadcast against each other.
        smallest: least distance; 3 where the last two axes are those of a matrix.
    """
    places = [(operand, lifted.place(operand)) for operand in operands if operand in lifted.rows]
    for distance in dict.fromkeys(lifted.rank(operand) - place for operand, place in places if place is not None):
        sizes = [_size(lifted, operand, distance) for operand in operands]
        reached = all(lifted.rank(operand) >= distance for operand, _ in places)
        if distance >= smallest and reached and all(size == 1 for size in sizes):
            return distance
    return None


def _size(lifted: LiftedNode, operand: int, distance: int) -> object:
    dims = lifted.dims(operand)
    return dims[-distance] if len(dims) >= distance else 1


def pointwise(lifted: LiftedNode) -> None:
    """Lift an operator that computes every entry of its output from the entries broadcast to it."""
    operands = lifted.present
    rank = max(lifted.rank(operand) for operand in operands)
    distance = common_distance(lifted, operands)
    for operand in lifted.rows:
        if distance is not None:
            lifted.read(operand, in_place(lifted.rank(operand) - distance))
        else:
            lifted.node.replace_input_with(operand, lifted.aligned(operand, rank))
    lifted.keep(in_place(rank - distance) if distance is not None else INSERTED)


def first_pointwise(lifted: LiftedNode) -> None:
    """Lift a node that is pointwise in its first input; all rows share the other inputs."""
    lifted.require_shared(*lifted.present[1:], what="its settings")
    place = lifted.place()
    layout = INSERTED if place is None else in_place(place)
    lifted.read(0, layout)
    lifted.keep(layout)


def clip(lifted: LiftedNode) -> None:
    """Lift Clip; bounds that differ from row to row are applied by comparison and Where, with Clip's results."""
    if lifted.rows == [0]:
        first_pointwise(lifted)
        return
    rank, result = lifted.rank(), lifted.value(0)
    if 0 in lifted.rows:
        result = lifted.aligned(0, rank)
    for operand, beyond in ((1, "Less"), (2, "Greater")):
        if not lifted.has(operand):
            continue
        bound = lifted.aligned(operand, rank) if operand in lifted.rows else lifted.value(operand)
        is_beyond = lifted.insert.op(beyond, [result, bound], name=f"{result.name}_beyond", dtype=ir.DataType.BOOL)
        result = lifted.insert.op("Where", [is_beyond, bound, result], name=f"{result.name}_within", dtype=result.dtype)
    lifted.become(result, INSERTED)


def quantization(lifted: LiftedNode) -> None:
    """Lift quantization with one scale for the tensor, or one per entry of an axis."""
    lifted.require_shared(1, 2, what="its scale")
    place = lifted.place()
    if not lifted.dims(1) or lifted.dims(1) == (1,):
        first_pointwise(lifted)
        return
    axis = lifted.axis()
    if place is not None and place != axis:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place))
        return
    lifted.read(0, INSERTED)
    lifted.set("axis", axis + 1)
    lifted.keep(INSERTED)


def product(lifted: LiftedNode) -> None:
    """Lift MatMul: leading axes broadcast, and so do rows of the left matrix."""
    lifted.require_shared(*lifted.present[2:], what="its zero points")
    left, right = lifted.rank(0), lifted.rank(1)
    rank = max(left, right)
    distance = common_distance(lifted, (0, 1), smallest=3)
    if distance is not None:
        for operand in lifted.rows:
            lifted.read(operand, in_place(lifted.rank(operand) - distance))
        dropped = (left == 1) + (right == 1)
        lifted.keep(in_place(rank - distance if not dropped else len(lifted.out_dims()) + dropped - distance))
        return
    if lifted.rows == [0] and left >= 2 and lifted.place(0) == left - 2 and right <= 2:
        lifted.read(0, in_place(left - 2))
        lifted.keep(in_place(left - 2))
        return
    _lifted_product(lifted, max(left, right, 2))


def _lifted_product(lifted: LiftedNode, rank: int) -> None:
    """Lift a product with both operands as matrices behind the batch; vectors become matrices first."""
    tensors: list[ir.Value] = []
    gone: list[int] = []
    for operand, end in ((0, -2), (1, -1)):
        tensor = lifted.value(operand)
        own_rank = lifted.rank(operand)
        if operand not in lifted.rows:
            if own_rank == 1:
                axis = lifted.insert.int64s(0 if operand == 0 else 1)
                tensor = lifted.insert.op("Unsqueeze", [tensor, axis], name=f"{tensor.name}_matrix")
                gone.append(end)
            tensors.append(tensor)
            continue
        tensor = lifted.tensor(operand, INSERTED)
        if own_rank == 1:
            axis = lifted.insert.int64s(1 if operand == 0 else 2)
            tensor = lifted.insert.op("Unsqueeze", [tensor, axis], name=f"{tensor.name}_matrix")
            gone.append(end)
        missing = rank - max(own_rank, 2)
        if missing:
            axes = lifted.insert.int64s(*range(1, missing + 1))
            tensor = lifted.insert.op("Unsqueeze", [tensor, axes], name=f"{tensor.name}_aligned")
        tensors.append(tensor)
    for operand, tensor in enumerate(tensors):
        lifted.node.replace_input_with(operand, tensor)
    lifted.keep(INSERTED)
    if gone:
        (output,) = lifted.node.outputs
        after = graphs.Inserter(lifted.lifter.model, lifted.lifter.stamp, after=lifted.node)
        vector = after.op("Squeeze", [output, after.int64s(*sorted(gone))], name=f"{output.name}_vector")
        lifted.become(vector, INSERTED)


def gemm(lifted: LiftedNode) -> None:
    """Lift Gemm; where more than the rows of the left matrix vary, it is rewritten as a product and a sum."""
    node = lifted.node
    transposed = [graphs.int_attribute(node, name, 0) for name in ("transA", "transB")]
    shared_sum = not lifted.has(2) or 2 in lifted.rows or lifted.rank(2) < 2 or lifted.dims(2)[0] == 1
    sum_in_place = 2 not in lifted.rows or (lifted.rank(2) == 2 and lifted.place(2) == 0)
    if (
        1 not in lifted.rows
        and 0 in lifted.rows
        and lifted.place(0) == 0
        and not transposed[0]
        and shared_sum
        and sum_in_place
    ):
        for operand in lifted.rows:
            lifted.read(operand, in_place(0))
        lifted.keep(in_place(0))
        return
    tensors = []
    for operand in (0, 1):
        has_rows = operand in lifted.rows
        tensor = lifted.tensor(operand, INSERTED) if has_rows else lifted.value(operand)
        if transposed[operand]:
            order = [0, 2, 1] if has_rows else [1, 0]
            tensor = lifted.insert.op("Transpose", [tensor], {"perm": order}, name=f"{tensor.name}_turned")
        tensors.append(tensor)
    result = lifted.insert.op("MatMul", tensors, name=f"{node.outputs[0].name}_product")
    result = _scaled(lifted, result, "alpha")
    if lifted.has(2):
        summand = lifted.aligned(2, 2) if 2 in lifted.rows else lifted.value(2)
        result = lifted.insert.op("Add", [result, _scaled(lifted, summand, "beta")], name=f"{node.outputs[0].name}_sum")
    lifted.become(result, INSERTED)


def _scaled(lifted: LiftedNode, value: ir.Value, name: str) -> ir.Value:
    factor = graphs.attribute(lifted.node, name, 1.0)
    assert isinstance(factor, float)
    if factor == 1.0:
        return value
    original = lifted.value(0)
    assert original.dtype is not None
    constant = lifted.insert.constant(original.dtype.numpy().type(factor).reshape(()), name)
    return lifted.insert.op("Mul", [value, constant], name=f"{value.name}_{name}")


def einsum(lifted: LiftedNode) -> None:
    """Lift Einsum by one more letter, for the batch, in every operand with rows and in the result."""
    text = graphs.attribute(lifted.node, "equation")
    assert isinstance(text, str)
    text = text.replace(" ", "")
    terms, arrow, result = text.partition("->")
    if not arrow:
        raise refuse("Einsum without a result in its equation", "write the result behind ->")
    letter = next(
        candidate for candidate in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if candidate not in text
    )
    lettered = []
    for operand, term in enumerate(terms.split(",")):
        if operand in lifted.rows:
            lifted.read(operand, INSERTED)
            term = letter + term
        lettered.append(term)
    lifted.node.attributes["equation"] = ir.AttrString("equation", f"{','.join(lettered)}->{letter}{result}")
    lifted.keep(INSERTED)
