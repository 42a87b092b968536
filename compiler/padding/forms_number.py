"""The form "number": an axis length that serves as data is computed per row from the true lengths.

Before:
    y = Div(total, Cast(Shape(x)[1]))            # counts slots
After:
    y = Div(total, Cast(real_length[:, None]))   # counts what is valid in each row
"""

import onnx_ir as ir
import sympy

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.analysis.growth import never_negative
from compiler.analysis.known_sizes import numbers_of
from compiler.analysis.length_data import uniform_source
from compiler.ir import Dim
from compiler.padding.rows import spread_rows
from compiler.padding.site import Form, Site


def number(site: Site) -> None:
    """Replace one operand, given by index in `details`, by its value per row."""
    (operand,) = site.details
    value = site.node.inputs[operand]
    rows_axis = next((fact.rows_axis for fact in site.out_facts if fact.rows_axis is not None), None)
    output = site.node.outputs[0]
    assert value is not None and rows_axis is not None and output.shape is not None
    site.node.replace_input_with(operand, _per_row(site, value, len(output.shape), rows_axis))


def _per_row(site: Site, value: ir.Value, rank: int, rows_axis: int) -> ir.Value:
    """The value for every row, [1, .., batch, .., 1]: known sizes by expression, what is computed of them again."""
    if house.array_of(value) is not None:
        return value
    whole = value.dtype is not None and value.dtype.is_integer()
    known = numbers_of(value) if whole else house.integers_of(value)
    node, dims = value.producer(), house.dims_of(value)
    if (
        known is not None
        and len(known) == 1
        and value.dtype is not None
        and (not _computes(node) or _is_size(known[0]))
    ):
        return _true_size(site, known[0], rank, rows_axis, value.dtype)
    if house.is_op(node, "Expand") and node is not None and node.inputs[0] is not None:
        return _per_row(site, node.inputs[0], rank, rows_axis)
    alike = uniform_source(value) is not None
    if node is None or dims is None or (not alike and any(dim != 1 for dim in dims)):
        raise refuse(
            f"{site.node.op_type} uses {value.name!r}, computed from axis lengths, as data",
            "use a scalar of the length",
        )
    if house.is_op(node, "Squeeze", "Unsqueeze", "Reshape"):  # one entry before and after
        assert node.inputs[0] is not None
        return _per_row(site, node.inputs[0], rank, rows_axis)
    operands = [None if each is None else _per_row(site, each, rank, rows_axis) for each in node.inputs]
    attributes = {name: each.value for name, each in node.attributes.items()}
    return site.insert.op(node.op_type, operands, attributes, name=f"{value.name}_per_row", dtype=value.dtype)


def _computes(node: ir.Node | None) -> bool:
    """Whether a number comes of others by arithmetic."""
    return house.is_op(node, "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Max", "Min", "Abs", "Cast")


def _is_size(number: Dim) -> bool:
    """Whether a number, and whatever it divides, is 0 or more at every length, as sizes are; others are no sizes."""
    parts = [] if isinstance(number, int) else [each.args[0] for each in number.atoms(sympy.floor, sympy.Mod)]
    tops = (sympy.fraction(sympy.together(each))[0] for each in parts)
    return all(never_negative(each) for each in (number, *tops))


def _true_size(site: Site, size: Dim, rank: int, rows_axis: int, dtype: ir.DataType) -> ir.Value:
    """The size of every row, repeated where the axis of rows was merged with others."""
    layout = next(fact.axis(rows_axis) for fact in site.out_facts if fact.rows_axis is not None) or ()
    if len(layout) <= 1 or isinstance(size, int):
        return site.places.count(size, rank, rows_axis, dtype)
    spread = spread_rows(site, site.places.count(size, dtype=dtype), 1, layout)
    shape = [-1 if at == rows_axis else 1 for at in range(rank)]
    return site.insert.op("Reshape", [spread, site.insert.int64s(*shape)], name="true_size_per_row", dtype=dtype)


FORMS: dict[str, Form] = {"number": number}
