"""Which changes of a condition can only make a rule refuse more or claim less: they weaken nothing and are not drawn.

A condition is cautious when what it guards refuses or claims nothing: `if CONDITION: raise ...`, `return ANYTHING if
CONDITION else ...`. Whatever makes it true more often is stricter. Its negation is left out as well: the weakening in
it, the guard that is dropped, is a mutation of its own, and the rest of it refuses what was accepted.
"""

import ast
from collections.abc import Mapping

Cautious = Mapping[int, bool]
"""By id of a part of a cautious condition: whether its truth, rather than its falsehood, is the cautious side."""


def caution(tree: ast.Module) -> Cautious:
    """The parts of all cautious conditions of a module."""
    found: dict[int, bool] = {}
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test, body=[*_, last], orelse=orelse):
                if _claims_nothing(last) and len(node.body) == 1:
                    found[id(node)] = True
                    _note(test, True, found)
                elif len(orelse) == 1 and _claims_nothing(orelse[0]):
                    found[id(node)] = False
                    _note(test, False, found)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                if _is_anything(body) or _is_anything(otherwise):
                    found[id(node)] = _is_anything(body)
                    _note(test, _is_anything(body), found)
    return found


def _claims_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and _is_anything(node.value))


def _is_anything(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "ANYTHING"


def _note(node: ast.expr, truth: bool, found: dict[int, bool]) -> None:
    found[id(node)] = truth
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _note(operand, not truth, found)
        case ast.BoolOp(values=values):
            for each in values:
                _note(each, truth, found)
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp(elt=each, generators=loops)]):
            _note(each, truth, found)
            for loop in loops:
                found[id(loop)] = truth if name == "any" else not truth
        case ast.Compare(ops=[op], comparators=[ast.Constant(value=int()) as limit]):
            if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                found[id(limit)] = truth if isinstance(op, ast.Lt | ast.LtE) else not truth


def is_only_stricter(node: ast.AST, kind: str, cautious: Cautious) -> bool:
    """Whether a change of this sort of a part of a condition makes it true, or false, on the cautious side only.

    Args:
        node: what is changed.
        kind: which sort of change.
        cautious: the parts of cautious conditions.
    """
    if id(node) not in cautious:
        return False
    truth = cautious[id(node)]
    match node:
        case ast.If() | ast.IfExp() | ast.UnaryOp():
            return kind in ("condition", "boolean")
        case ast.Compare(ops=[op, *_]):
            if kind == "element":
                return truth is not isinstance(op, ast.In)
            wider = isinstance(op, ast.Lt | ast.Gt)
            return not isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) or wider is truth
        case ast.BoolOp(op=op):
            return isinstance(op, ast.And) is truth
        case ast.comprehension():
            return truth
        case ast.Call(func=ast.Name(id=name)):
            return kind == "extreme" and (name == "all") is truth
        case ast.Constant(value=int() as value):
            return (value == 0 or value > 2) is truth
    return False


def is_margin(node: ast.AST, kind: str) -> bool:
    """Whether a comparison with a limit of someone's choice, such as 1e-30, is moved by the limit itself."""
    if kind != "comparison" or not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    sides = (node.left, node.comparators[0])
    return any(isinstance(each, ast.Constant) and isinstance(each.value, float) and each.value != 0 for each in sides)
