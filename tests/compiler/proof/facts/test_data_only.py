"""Rules of data: lengths alone stay lengths, next to data they are refused."""

import onnx_ir as ir

from tests.kit.judged import check_refused
from tests.kit.soundness import Node, Operand, check_node, number


def test_data_is_judged_by_the_rule() -> None:
    assert check_node(Node("Softmax", [Operand(("batch", 3))])).rule == "SM1"


def test_lengths_alone_are_a_number() -> None:
    verdict = check_node(Node("ReduceMean", [number("time", ir.DataType.FLOAT, (1,))]))
    assert verdict.outputs[0].is_number


def test_a_length_next_to_data_is_refused() -> None:
    node = Node("MatMul", [Operand(("batch", 1)), number("time", ir.DataType.FLOAT, (1, 1))])
    check_refused(node, "MatMul uses an axis length as its input 1")
