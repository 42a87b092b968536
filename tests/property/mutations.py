"""Small changes of source code: each makes one rule, guard, mask or fill weaker, or at least another one.

Sites are found in the syntax tree of a module, in the bodies of its functions. A mutation is put in place by giving
the living functions the code of the changed module, so nothing is written to disk and nothing is imported again.
"""

import ast
import copy
import dataclasses
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.property.weaker import caution, is_margin, is_only_stricter

ROOT = Path(__file__).parents[2]

Change = Callable[[ast.AST], ast.AST]

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
TEXTS = {
    "Less": "LessOrEqual", "GreaterOrEqual": "Greater", "Min": "Max", "Max": "Min", "Add": "Sub", "Sub": "Add",
    "And": "Or", "Or": "And", "ReduceSum": "ReduceMean", "Mul": "Add", "Div": "Mul",
}  # fmt: skip
"""Operators of inserted nodes and their replacement."""

NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "LEFT": "RIGHT", "RIGHT": "LEFT"}
STATED = ("fill", "clamp")
SILENT = ("name", "strict", "cure", "reason", "fmt")
"""Keyword arguments that change nothing that runs."""

TOLD = ("chain_to", "_Propagation._axis")
"""Functions that make texts for readers."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of one module.

    Attributes:
        module: path such as compiler/proof/rules/pooling.py.
        function: qualified name of the function.
        kind: which sort of change.
        line: first line of the changed code.
        last: last line that has to be executed for the change to be reached.
        before: the code, shortened.
        after: what it becomes.
        at: which node of the syntax tree, and which of its changes.
        within: the line of code around it, and which of the equal changes there it is.
    """

    module: str
    function: str
    kind: str
    line: int
    last: int
    before: str
    after: str
    at: tuple[int, int]
    within: str = ""

    @property
    def key(self) -> str:
        """Stable while the function stays as it is."""
        where = f"{self.module.removeprefix('compiler/').removesuffix('.py')}:{self.function}"
        return f"{where}: {self.before} -> {self.after}{self.within}"


class Stillborn(Exception):
    """The change gives no code that can take the place of the old."""


def mutations_of(module: str) -> list[Mutation]:
    """Every change of a module, in order of its lines."""
    found: list[Mutation] = []
    code = (ROOT / module).read_text().splitlines()
    known: dict[str, int] = {}
    tree = _tree(module)
    cautious = caution(tree)
    for at, node, function, lines in _sites(tree):
        for which, (kind, change) in enumerate(_changes(node)):
            if is_only_stricter(node, kind, cautious) or is_margin(node, kind):
                continue
            try:
                changed = change(copy.deepcopy(node))
            except ValueError:
                continue
            if ast.unparse(changed) == ast.unparse(node):
                continue
            before, after = _text(node), _text(changed)
            around = code[getattr(node, "lineno", lines[0]) - 1].strip()
            mutation = Mutation(module, function, kind, *lines, before, after, (at, which))
            if len(before) < 40:
                mutation = dataclasses.replace(mutation, within=f" in `{_short(around)}`")
            known[mutation.key] = known.get(mutation.key, 0) + 1
            if known[mutation.key] > 1:
                mutation = dataclasses.replace(mutation, within=f"{mutation.within} ({known[mutation.key]})")
            found.append(mutation)
    return sorted(found, key=lambda each: (each.line, each.at))


def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text())


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        inside = _raised(node.body[-1])
        return f"if {_short(ast.unparse(node.test))}: {inside}"
    return _short(ast.unparse(node))


def _raised(node: ast.stmt) -> str:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return ast.unparse(node.exc.func)
    return "..."


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def _sites(tree: ast.Module) -> Iterator[tuple[int, ast.AST, str, tuple[int, int]]]:
    """Nodes inside functions that something may be done to: number, node, function, lines."""
    number = {id(node): at for at, node in enumerate(ast.walk(tree))}

    def visit(
        node: ast.AST, function: str, lines: tuple[int, int]
    ) -> Iterator[tuple[int, ast.AST, str, tuple[int, int]]]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = f"{function}.{node.name}".strip(".")
            if name in TOLD or node.name == "__str__":
                return
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            for each in body:
                yield from visit(each, name, lines)
            return
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return
        if isinstance(node, ast.keyword) and node.arg in SILENT:
            return
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            if isinstance(node, ast.If | ast.While):
                last = node.test.end_lineno or last
            elif isinstance(node, ast.For | ast.With | ast.Try):
                last = node.lineno
            lines = (node.lineno, last)
        if (function and not function[0].isupper()) or "." in function:
            yield number[id(node)], node, function, lines
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(
                node, ast.Call | ast.Lambda
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context | ast.arguments):
                    yield from visit(child, function, lines)

    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from visit(statement, "", (0, 0))


# --- what may be done to a node ---------------------------------------------------------------------------------------


def _changes(node: ast.AST) -> list[tuple[str, Change]]:
    match node:
        case ast.Compare():
            return _of_comparison(node)
        case ast.If():
            return _of_condition(node)
        case ast.IfExp():
            return [] if _is_flipped_elsewhere(node.test) else [("condition", _negated)]
        case ast.comprehension():
            return [("condition", _dropped(at)) for at in range(len(node.ifs))]
        case ast.BoolOp():
            return [("boolean", _without_value(at)) for at in range(len(node.values))]
        case ast.UnaryOp(op=ast.Not()):
            return [("boolean", _operand)]
        case ast.UnaryOp(op=ast.USub()):
            return [("sign", _operand)]
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            one = isinstance(node.right, ast.Constant) and node.right.value == 1
            return [("off by one", _left)] if one else [("sign", _other_sign)]
        case ast.Constant():
            return _of_constant(node)
        case ast.Attribute(value=ast.Name(id="math"), attr="inf"):
            return [("constant", lambda new: ast.copy_location(ast.Constant(0.0), new))]
        case ast.Attribute(attr="LEFT" | "RIGHT"):
            return [("side", _renamed)]
        case ast.Name(id="ANYTHING"):
            return [("claim", _as_zero)]
        case ast.Call():
            return _of_call(node)
        case ast.Expr(value=ast.Call()):
            return [("guard", lambda new: ast.copy_location(ast.Pass(), new))]
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr=attr))) if attr in STATED:
            return [("need", _fact_only)]
    return []


def _of_comparison(node: ast.Compare) -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = []
    for at, op in enumerate(node.ops):
        if type(op) in FLIPPED:
            found.append(("comparison", _flipped(at)))
    if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(node.comparators[0], ast.Tuple):
        for at in range(len(node.comparators[0].elts)):
            found.append(("element", _without_member(at)))
    return found


def _of_condition(node: ast.If) -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = [] if _is_flipped_elsewhere(node.test) else [("condition", _negated)]
    if isinstance(node.body[-1], ast.Raise) and not node.orelse:
        found.append(("guard", lambda new: ast.copy_location(ast.Pass(), new)))
    return found


def _is_flipped_elsewhere(test: ast.expr) -> bool:
    """Whether a condition is the opposite of itself after a change of its own."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return True
    ordering = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], ordering)


def _of_constant(node: ast.Constant) -> list[tuple[str, Change]]:
    value = node.value
    if isinstance(value, bool):
        return [("constant", _becomes(not value))]
    if isinstance(value, int):
        return [("constant", _becomes(1 if value == 0 else value - 1 if value <= 2 else value + 1))]
    if isinstance(value, float):
        return [("constant", _becomes(1.0 if value == 0 else 0.0))]
    if isinstance(value, str) and value in TEXTS:
        return [("operator", _becomes(TEXTS[value]))]
    return []


def _of_call(node: ast.Call) -> list[tuple[str, Change]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    found: list[tuple[str, Change]] = []
    if name == "verdict":
        for keyword in node.keywords:
            if keyword.arg == "at_least_one":
                found.append(("claim", _without_keyword("at_least_one")))
        if not any(keyword.arg == "pointwise" for keyword in node.keywords):
            found.append(("claim", _pointwise))
    if name == "hull" and len(node.args) > 1:
        found += [("claim", _without_argument(at)) for at in range(len(node.args))]
    if isinstance(node.func, ast.Name) and name in NAMES:
        found.append(("extreme", _renamed))
    return found


def _flipped(at: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.Compare)
        new.ops[at] = FLIPPED[type(new.ops[at])]()
        return new

    return change


def _without_member(at: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.Compare) and isinstance(new.comparators[0], ast.Tuple)
        del new.comparators[0].elts[at]
        return new

    return change


def _negated(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.If | ast.IfExp)
    test = new.test
    plain = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    new.test = plain or ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
    return new


def _dropped(at: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.comprehension)
        del new.ifs[at]
        return new

    return change


def _without_value(at: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.BoolOp)
        del new.values[at]
        return new.values[0] if len(new.values) == 1 else new

    return change


def _operand(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.UnaryOp)
    return new.operand


def _left(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.BinOp)
    return new.left


def _other_sign(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.BinOp)
    if any(isinstance(each, ast.Constant | ast.JoinedStr) and not _is_number(each) for each in (new.left, new.right)):
        raise ValueError("texts have no sign")
    new.op = ast.Sub() if isinstance(new.op, ast.Add) else ast.Add()
    return new


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _becomes(value: object) -> Change:
    def change(new: ast.AST) -> ast.AST:
        return ast.copy_location(ast.Constant(value), new)  # type: ignore[arg-type]

    return change


def _renamed(new: ast.AST) -> ast.AST:
    if isinstance(new, ast.Call):
        assert isinstance(new.func, ast.Name)
        new.func.id = NAMES[new.func.id]
    else:
        assert isinstance(new, ast.Attribute)
        new.attr = NAMES[new.attr]
    return new


def _as_zero(new: ast.AST) -> ast.AST:
    """The interval of zero, whatever names the module knows."""
    made = ast.parse("type(ANYTHING)(0.0, 0.0)", mode="eval").body
    for each in ast.walk(made):
        ast.copy_location(each, new)
    return made


def _without_keyword(name: str) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.Call)
        new.keywords = [each for each in new.keywords if each.arg != name]
        return new

    return change


def _pointwise(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    new.keywords.append(ast.keyword("pointwise", ast.Constant(True)))
    return ast.fix_missing_locations(new)


def _without_argument(at: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.Call)
        del new.args[at]
        return new

    return change


def _fact_only(new: ast.AST) -> ast.AST:
    """`fact = case.fill(0, ...)` as `fact = case.fact(0)`."""
    assert isinstance(new, ast.Assign) and isinstance(new.value, ast.Call)
    call = new.value
    assert isinstance(call.func, ast.Attribute)
    call.func.attr, call.args, call.keywords = "fact", call.args[:1], []
    return new


# --- putting a mutation in place --------------------------------------------------------------------------------------


def plant(mutation: Mutation) -> None:
    """Give the living functions of a module the changed code; meant for a process that ends afterwards.

    Raises:
        Stillborn: the changed module does not compile, or no living function has the changed code.
    """
    tree = _tree(mutation.module)
    at, which = mutation.at
    target = next(node for number, node in enumerate(ast.walk(tree)) if number == at)
    change = _changes(target)[which][1]
    new = change(target)
    if new is not target:
        _Replace(target, new).visit(tree)
    path = str(ROOT / mutation.module)
    original = compile(_tree(mutation.module), path, "exec", dont_inherit=True)
    try:
        changed = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Stillborn(str(error)) from error
    if not replace_codes(original, changed, path):
        raise Stillborn("no living function has this code")
    if "/rules/" not in mutation.module and "/padding/" not in mutation.module:
        forget_results()


def replace_codes(original: types.CodeType, changed: types.CodeType, path: str) -> int:
    """Give every living function of a file the code of the changed module; how many differ."""
    pairs = {old: new for old, new in _pairs(original, changed) if old != new}
    living = [function for function in functions_of(path) if function.__code__ in pairs]
    for function in living:
        try:
            function.__code__ = pairs[function.__code__]
        except ValueError as error:
            raise Stillborn(str(error)) from error
    return len(living)


def _pairs(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    """The codes of functions, and what they become; those that a change removed have no partner."""
    inside = [each for each in new.co_consts if isinstance(each, types.CodeType)]
    for constant in old.co_consts:
        if not isinstance(constant, types.CodeType):
            continue
        place = (constant.co_name, constant.co_firstlineno)
        partner = next((each for each in inside if (each.co_name, each.co_firstlineno) == place), None)
        if partner is not None:
            inside.remove(partner)
            yield constant, partner
            yield from _pairs(constant, partner)


def functions_of(path: str) -> list[types.FunctionType]:
    """The living functions of a source file.

    By exact type: asked for their class, stand-ins for modules that are loaded late load them.
    """
    return [each for each in gc.get_objects() if type(each) is types.FunctionType and each.__code__.co_filename == path]


def forget_results() -> None:
    """Empty the caches of functions under compiler/, which may remember what another code said."""
    for each in gc.get_objects():
        if type(each) is functools._lru_cache_wrapper and each.__module__.startswith("compiler."):
            each.cache_clear()


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def modules() -> list[str]:
    """What is mutated: rules, forms and masks, and what carries them out."""
    folders = ("compiler/proof/rules", "compiler/proof/padding", "compiler/proof/padding/lowerings")
    found = [path for folder in folders for path in sorted((ROOT / folder).glob("*.py")) if "def " in path.read_text()]
    single = ("propagation/judge", "facts/case", "facts/facts", "facts/layout", "propagation/propagate",
              "facts/lengths", "facts/index_map", "facts/row_value_plans", "facts/same_places", "facts/length_data",
              "facts/meaning", "facts/shift_invariant_values")  # fmt: skip
    paths = [str(path.relative_to(ROOT)) for path in found]
    return [*paths, *(f"compiler/proof/{name}.py" for name in single), "compiler/passes/pad_axes.py"]


if __name__ == "__main__":
    for name in sys.argv[1:] or modules():
        for each in mutations_of(name):
            print(each.line, each.kind, each.key)
