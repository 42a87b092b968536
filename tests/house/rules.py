"""The rules of the house: each looks at a source tree and lists its violations as `path: what is wrong; what to do`."""

import ast
import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import onnx

SOURCE_FOLDERS = ("compiler", "runtime_lite", "examples", "benchmarks", "tests")

# Files


def python_files(root: Path, *folders: str) -> list[Path]:
    """Source files below some folders (all of ours by default) and `build.py`, relative to the root."""
    found = [file for folder in folders or SOURCE_FOLDERS for file in (root / folder).rglob("*.py")]
    front_door = [] if folders else [root / "build.py"]
    return sorted(file.relative_to(root) for file in [*found, *front_door] if file.is_file())


def module_name(path: Path) -> str:
    """`compiler/passes/pad_axes.py` -> `compiler.passes.pad_axes`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FORBIDDEN_STEMS = frozenset({"utils", "util", "common", "misc", "helpers", "helper", "v2", "new", "old", "stuff"})


def forbidden_file_names(root: Path) -> list[str]:
    """A file is named after what it holds."""
    parts = ((path, set(re.split(r"[_.]", path.stem))) for path in python_files(root))
    return [f"{path}: is named after nothing; say what it holds" for path, words in parts if words & FORBIDDEN_STEMS]


def missing_twins(root: Path) -> list[str]:
    """A source file that does something has its test: `compiler/passes/x.py` -> `tests/compiler/passes/test_x.py`."""
    sources = [path for path in python_files(root, "compiler", "runtime_lite") if _has_logic(root / path)]
    twins = {path: twin_of(path) for path in sources}
    return [f"{path}: has no test; write {twin}" for path, twin in twins.items() if not (root / twin).is_file()]


def twin_of(path: Path) -> Path:
    """Where the test of a source file is: `compiler/passes/x.py` -> `tests/compiler/passes/test_x.py`."""
    stem = {"__main__": "command_line", "__init__": path.parent.name}.get(path.stem, path.stem)
    return Path("tests") / path.parent / f"test_{stem}.py"


def _has_logic(file: Path) -> bool:
    """Whether any function does something; records and protocols alone need no test."""
    functions = (
        node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    )
    return any(not _is_empty(statement) for function in functions for statement in function.body)


def _is_empty(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


# Imports


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module and where; `late` if the import is inside a function."""

    path: Path
    line: int
    module: str
    late: bool


def imports(root: Path, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    """All imports of a file; `from package import name` is the submodule where there is one."""
    for line, package, names, late in _import_statements((root / path).read_text(encoding="utf-8")):
        if package is None:
            yield from (Import(path, line, name, late) for name in names)
        else:
            modules = (name if (name := f"{package}.{each}") in known else package for each in names)
            yield from (Import(path, line, module, late) for module in dict.fromkeys(modules))


@functools.cache
def _import_statements(text: str) -> tuple[tuple[int, str | None, tuple[str, ...], bool], ...]:
    """Line, package and names of each import of a module, and whether it is inside a function; several rules ask."""
    return tuple(
        (node.lineno, None if isinstance(node, ast.Import) else node.module, tuple(a.name for a in node.names), late)
        for node, late in _statements(ast.parse(text), late=False)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module)
    )


def _statements(node: ast.AST, *, late: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """All statements below a node, and whether each is inside a function; expressions hold none."""
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, block, ()):
            if isinstance(inner, ast.stmt):
                yield inner, late
            yield from _statements(inner, late=late)


def _all_imports(root: Path, *folders: str) -> list[Import]:
    known = {module_name(path): path for path in python_files(root)}
    return [found for path in python_files(root, *folders) for found in imports(root, path, known)]


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


OWN = ("build", "compiler", "runtime_lite", "examples", "benchmarks", "tests")


@dataclasses.dataclass(frozen=True)
class Wing:
    """A folder of the compiler with one purpose.

    Attributes:
        name: of the folder.
        below: the wings that it may import.
        runtime: what it may import of the runtime.
        rooms: its folders and modules from the ground up, each of which may import those in front of it; empty where
            any may import any.
    """

    name: str
    below: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()


PUBLIC = {"errors": "base", "api": "front", "front_door": "front"}
"""Modules that programs and installed commands name: they stand outside of the folder of their wing, which follows."""

RUNTIME = ("runtime_lite",)
STATES = ("runtime_lite.states", "runtime_lite.format.cache_axis", "runtime_lite.format.initial_value")

WINGS = (
    Wing("base", (), RUNTIME,
         ("interruption", "did_you_mean", "garbage_collection", "records", "errors", "pieces", "cache")),
    Wing("graph", ("base",), (*STATES, "runtime_lite.executors.heap"),
         ("operators", "sizes", "stages", "model", "axis_map", "operator_costs", "runners", "spec", "lengths",
          "torch_graphs")),
    Wing("proof", ("base", "graph"), STATES,
         ("facts", "rules", "coverage", "propagation", "padding", "batching", "derivation")),
    Wing("states", ("base", "graph", "proof"), STATES,
         ("kept_frames", "same_every_call", "free_slots", "appending", "streaming", "state_rewriting")),
    Wing("checker"),
    Wing("calib", ("base", "graph")),
    Wing("numerics", ("base", "graph", "calib"), (), ("precision", "quantization")),
    Wing("rewriting", ("base", "graph", "proof", "calib"), (),
         ("rounds", "simplification", "least_squares", "attention", "pruning")),
    Wing("passes", ("base", "graph", "proof", "states", "calib", "numerics", "rewriting"), STATES),
    Wing("recipe", ("base", "graph"), RUNTIME,
         ("tree", "field_types", "written_numbers", "graph_parts", "gates", "graph", "wiring", "voice", "latencies",
          "options", "record", "load", "not_lowered", "pass_order", "stage_inputs", "user_code")),
    Wing("targets", ("base", "graph", "proof", "calib", "numerics", "passes"), RUNTIME),
    Wing("compression", ("base", "graph", "rewriting", "passes", "recipe")),
    Wing("build", ("base", "graph", "proof", "states", "checker", "calib", "numerics", "rewriting", "passes", "recipe",
                   "targets", "compression"), RUNTIME,
         ("report", "verify", "bundle", "culprits", "capture", "search", "lowering", "distilled_recipe",
          "measure_page_figures", "shipped_graphs", "assembly", "pipeline")),
    Wing("front", ("base", "graph", "proof", "states", "passes", "recipe", "targets", "build"), RUNTIME,
         ("commands", "doctor", "explain", "api", "front_door")),
)  # fmt: skip
"""The compiler from the ground up."""


def wing_rows(wings: Sequence[Wing]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For every room of every wing the modules that it may import."""
    for wing in wings:
        below = [module for name in wing.below for module in _modules_of(name)]
        rooms = [f"compiler.{room}" if room in PUBLIC else f"compiler.{wing.name}.{room}" for room in wing.rooms]
        for at, room in enumerate(rooms):
            yield room, (*rooms[: at + 1], *below, *wing.runtime)
        if not rooms:
            yield f"compiler.{wing.name}", (f"compiler.{wing.name}", *below, *wing.runtime)


def _modules_of(wing: str) -> Iterator[str]:
    yield f"compiler.{wing}"
    yield from (f"compiler.{module}" for module, its_wing in PUBLIC.items() if its_wing == wing)


def upward_wings(wings: Sequence[Wing] = WINGS) -> list[str]:
    """No wing may import one that stands behind it in the list: then no two wings lead to each other."""
    names = [wing.name for wing in wings]
    return [
        f"{wing.name}: may import {below}, which stands above it; move what both need further down"
        for at, wing in enumerate(wings)
        for below in wing.below
        if below not in names[:at]
    ]


MAY_IMPORT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("runtime_lite.states", ("runtime_lite.states",)),
    *wing_rows(WINGS),
    ("runtime_lite.errors", ("runtime_lite.errors",)),
    ("runtime_lite.format", ("runtime_lite.errors", "runtime_lite.states", "runtime_lite.format")),
    ("runtime_lite.executors", ("runtime_lite.errors", "runtime_lite.format", "runtime_lite.executors")),
    ("runtime_lite.scheduling", ("runtime_lite.errors", "runtime_lite.format", "runtime_lite.scheduling")),
    (
        "runtime_lite.calls",
        (
            "runtime_lite.errors",
            "runtime_lite.states",
            "runtime_lite.format",
            "runtime_lite.executors",
            "runtime_lite.calls",
        ),
    ),
    (
        "runtime_lite.serving",
        (
            "runtime_lite.errors",
            "runtime_lite.format",
            "runtime_lite.executors",
            "runtime_lite.scheduling",
            "runtime_lite.calls",
            "runtime_lite.serving",
        ),
    ),
    (
        "runtime_lite.decoding",
        (
            "runtime_lite.errors",
            "runtime_lite.format",
            "runtime_lite.scheduling",
            "runtime_lite.calls",
            "runtime_lite.serving",
            "runtime_lite.decoding",
        ),
    ),
    (
        "runtime_lite.stream",
        (
            "runtime_lite.errors",
            "runtime_lite.format",
            "runtime_lite.calls",
            "runtime_lite.serving",
            "runtime_lite.stream",
        ),
    ),
    (
        "runtime_lite.model",
        (
            "runtime_lite.errors",
            "runtime_lite.format",
            "runtime_lite.executors",
            "runtime_lite.scheduling",
            "runtime_lite.calls",
            "runtime_lite.serving",
            "runtime_lite.decoding",
            "runtime_lite.stream",
            "runtime_lite.model",
        ),
    ),
    ("runtime_lite", ("runtime_lite",)),
    ("build", ("compiler", "runtime_lite")),
    ("examples", ("examples", "runtime_lite")),
    ("benchmarks", ("benchmarks", "build", "compiler", "examples", "runtime_lite", "tests")),
    ("tests", OWN),
)
"""What of ours a folder or root module may import: the first row that it stands in counts."""


def wrong_directions(root: Path) -> list[str]:
    """`build -> compiler -> runtime_lite`, and inside the compiler from wing to wing, from room to room below it."""
    wrong = []
    for found in _all_imports(root):
        importer = module_name(found.path)
        allowed = next((packages for package, packages in MAY_IMPORT if _is_in(importer, package)), None)
        if allowed is None:
            wrong.append(
                f"{found.path}: stands in no row of MAY_IMPORT; move it into a room, or name it among those of its wing"
            )
            continue
        is_own = any(_is_in(found.module, package) for package in OWN) and found.module != importer.split(".")[0]
        if is_own and not any(_is_in(found.module, package) for package in allowed):
            wrong.append(f"{found.path}:{found.line}: imports {found.module}; allowed: {', '.join(allowed)}")
    return wrong


def import_cycles(root: Path) -> list[str]:
    """No module leads back to itself."""
    known = {module_name(path): path for path in python_files(root)}
    edges = {
        name: {found.module for found in imports(root, path, known)} & known.keys() for name, path in known.items()
    }
    cycles: list[str] = []
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            cycles.append(f"{known[name]}: leads back to itself: {' -> '.join([*trail[trail.index(name) :], name])}")
        elif name not in finished:
            for target in sorted(edges[name] - {name}):
                visit(target, (*trail, name))
            finished.add(name)

    for name in sorted(known):
        visit(name, ())
    return cycles


VENDOR = frozenset(
    {
        "cuda",
        "ethosu",
        "executorch",
        "onnxruntime_qnn",
        "openvino",
        "prometheus_client",
        "pycuda",
        "ray",
        "starlette",
        "tensorrt",
        "tensorrt_rtx",
        "torchao",
        "tosa_reference_model",
        "triton_python_backend_utils",
        "tritonclient",
        "uvicorn",
    }
)
"""Libraries that only some machines have; they are imported late, where they are used."""

NOT_IN_CHECKER = frozenset({"onnx_ir", "onnxscript", "onnx_shape_inference", "pydantic", "sympy", "torch", "yaml"})

NOT_IN_RUNTIME = frozenset({"compiler", "onnx", "onnx_ir", "onnxscript", "pydantic", "rich", "sympy", "torch", "yaml"})

FRAMEWORK = "torch"
FRAMEWORK_FILES = (
    "compiler/build/capture/exported_graph.py",
    "compiler/build/capture/fixed_arguments.py",
    "compiler/build/capture/module_call.py",
    "compiler/build/capture/module_contents.py",
    "compiler/build/capture/original_fault.py",
    "compiler/build/capture/shared_weights.py",
    "compiler/build/capture/torch_module.py",
    "compiler/build/capture/traced_recurrences.py",
    "compiler/build/capture/unsteady_original.py",
    "compiler/compression/training.py",
    "compiler/rewriting/pruning/distillation.py",
    "compiler/targets/ethos_u/worker.py",
    "compiler/graph/torch_graphs/distance.py",
    "compiler/graph/torch_graphs/module.py",
    "compiler/graph/torch_graphs/operators.py",
)
"""After capture nothing knows torch."""


def unwanted_libraries(root: Path) -> list[str]:
    """Each library stays where it belongs."""
    wrong = []
    for found in _all_imports(root, "compiler", "runtime_lite"):
        library = found.module.split(".")[0]
        place = f"{found.path}:{found.line}"
        if library in VENDOR and not found.late:
            wrong.append(f"{place}: imports {library} early; import it in the function that needs it")
        if found.path.parts[0] == "runtime_lite" and library in NOT_IN_RUNTIME:
            wrong.append(f"{place}: imports {library}; the runtime needs numpy and one backend")
        if found.path.parts[:2] == ("compiler", "checker") and library in NOT_IN_CHECKER:
            wrong.append(f"{place}: imports {library}; the checker shares no library with the prover but onnx")
        if found.path.parts[0] == "compiler" and library == FRAMEWORK and str(found.path) not in FRAMEWORK_FILES:
            wrong.append(f"{place}: imports {library}; only {', '.join(FRAMEWORK_FILES)} may")
    return wrong


def named_vendors(root: Path) -> list[str]:
    """A vendor is known in its own folder, in the one list of targets, and to what runs its engines."""
    vendors = {path.parent.name for path in (root / "compiler" / "targets").glob("*/target.py")}
    shared = (Path("compiler/targets/__init__.py"), Path("runtime_lite/executors"))
    wrong = []
    for path in python_files(root):
        if path.parts[0] not in ("compiler", "runtime_lite", "build.py") or any(map(path.is_relative_to, shared)):
            continue
        others = vendors - {path.parts[2] if path.parts[:2] == ("compiler", "targets") else ""}
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            wrong += [
                f"{path}:{number}: names {vendor}; ask the target, or move it to compiler/targets/{vendor}"
                for vendor in sorted(others)
                if vendor in line.lower()
            ]
    return wrong


FRONT_DOOR = Path("compiler/front_door.py")
"""Each of its commands loads what it needs: a wrong recipe is answered before anything large is imported."""


def late_imports(root: Path) -> list[str]:
    """Modules of ours are imported at the top, but for the front door, and for the one that loads the framework."""
    heavy = {module_name(Path(file)) for file in FRAMEWORK_FILES}
    return [
        f"{found.path}:{found.line}: imports {found.module} late; import it at the top"
        for found in _all_imports(root, "compiler", "runtime_lite")
        if found.late
        and found.path != FRONT_DOOR
        and found.module not in heavy
        and any(_is_in(found.module, package) for package in OWN)
    ]


# Passes

PASS_VERBS = frozenset(
    {
        "add",
        "append",
        "canonicalize",
        "carry",
        "compress",
        "eliminate",
        "flatten",
        "fold",
        "freeze",
        "fuse",
        "hoist",
        "legalize",
        "lower",
        "merge",
        "overwrite",
        "pack",
        "pad",
        "project",
        "quantize",
        "remove",
        "rescale",
        "select",
        "simplify",
        "sink",
        "smooth",
        "specialize",
        "split",
        "unstack",
        "widen",
        "window",
    }
)

PASS_LABELS = ("Before", "After", "Requires", "Ensures", "Keeps", "Numerics", "Source")


def wrong_passes(root: Path) -> list[str]:
    """A pass file is named verb first, documents its contract, holds one class of its name, and is registered."""
    wrong = []
    registry = root / "compiler" / "passes" / "__init__.py"
    registered = registry.read_text(encoding="utf-8") if registry.is_file() else ""
    for path in python_files(root, "compiler/passes"):
        if path.stem == "__init__":
            continue
        if path.stem.split("_")[0] not in PASS_VERBS:
            wrong.append(f"{path}: does not begin with a verb; known: {', '.join(sorted(PASS_VERBS))}")
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        docstring = ast.get_docstring(tree) or ""
        missing = [label for label in PASS_LABELS if not re.search(rf"^\s*{label}\b.*:", docstring, re.MULTILINE)]
        if missing:
            wrong.append(f"{path}: its docstring lacks {', '.join(missing)}; write them")
        name = "".join(word.capitalize() for word in path.stem.split("_"))
        public = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        if name not in public:
            wrong.append(f"{path}: holds {', '.join(public) or 'no class'}; name the pass {name}")
        elif f'name: ClassVar[str] = "{path.stem}"' not in (root / path).read_text(encoding="utf-8"):
            wrong.append(f'{path}: {name}.name is not "{path.stem}"; name it as the file')
        if not re.search(rf"^    {name},$", registered, re.MULTILINE) and not _imported_by_target(root, path):
            wrong.append(f"{path}: is in no registry and no target; add it to compiler/passes/__init__.py")
    return wrong


def _imported_by_target(root: Path, path: Path) -> bool:
    return any(found.module == module_name(path) for found in _all_imports(root, "compiler/targets"))


# Words


def example_classes(root: Path) -> tuple[set[str], set[str]]:
    """Names of the classes that the examples define: models, and all others."""
    trees = (ast.parse((root / path).read_text(encoding="utf-8")) for path in python_files(root, "examples"))
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    models = {node.name for node in classes if any(ast.unparse(base).split(".")[-1] == "Module" for base in node.bases)}
    return models, {node.name for node in classes} - models


OPERATORS = frozenset({"Attention"})
"""Class names of examples that are ONNX operators as well, which passes do name."""


def mentioned_examples(root: Path) -> list[str]:
    """The compiler and the runtime work from graphs and recipes; they know no example's class.

    A model's class may not even be mentioned in a comment; other classes may share a name with a word, not with a use.
    """
    models, others = example_classes(root)
    forbidden = models - OPERATORS
    wrong = []
    for path in python_files(root, "compiler", "runtime_lite"):
        text = (root / path).read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        names = {(node.lineno, node.id) for node in nodes if isinstance(node, ast.Name)}
        own = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | set(_top_names(tree))
        lines = enumerate(text.splitlines(), 1)
        found = {(number, word) for number, line in lines for word in re.findall(r"\w+", line) if word in forbidden}
        found |= {(number, name) for number, name in names if name in others - own}
        wrong += [
            f"{path}:{number}: mentions {name}, a class of an example; work from the graph"
            for number, name in sorted(found)
        ]
    return wrong


UNWANTED_TEXT = {
    r"(?<![\w.])/(home|root|work|Users)/\w": "a path of one machine",
    r"\b(pypi|pythonhosted|download\.pytorch)\.org\b": "the host of a package registry",
    r"\b(huggingface\.co|hf\.co)\b": "the host of a registry of models",
    r"\bissue #?\d+\b": "a number of our tracker",
    r"\b(this|our|my|previous) (coding )?session\b|\b(assistants?|sub-?agents?)\b": "how it was written",
    r"\b(claude|anthropic|chatgpt|copilot)\b": "how it was written",
}

TEXT_SUFFIXES = frozenset({".py", ".md", ".yaml", ".yml", ".toml", ".lock", ".sh", ".txt", ""})

RULE_FILES = frozenset({"tests/house/rules.py", "tests/house/test_rules.py"})
"""These files write down what others may not say."""


def unwanted_text(root: Path, files: list[Path]) -> list[str]:
    """The repository speaks of the product only.

    Args:
        root: the repository.
        files: tracked files, relative to it.
    """
    wrong = []
    for path in files:
        if path.suffix not in TEXT_SUFFIXES or path.as_posix() in RULE_FILES or not (root / path).is_file():
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            wrong += [
                f"{path}:{number}: holds {what}: {found.group()!r}; take it out"
                for pattern, what in UNWANTED_TEXT.items()
                if (found := re.search(pattern, line, re.IGNORECASE))
            ]
    return wrong


# States

KIND_WORDS = frozenset({"side", "update"})
"""The two words of a manifest that say of which kind the states along a cache are."""

KIND_READERS = ("runtime_lite/states", "compiler/recipe/graph_parts.py")
"""Where these words are read: the kinds themselves, and the recipe, whose `update` says what a model gives."""


def kinds_by_words(root: Path) -> list[str]:
    """What depends on the kind of a state is asked of the kind; nobody else compares the words that name it."""
    return [
        f"{path}:{node.lineno}: compares the words that name a kind of state; ask the kind (runtime_lite/states)"
        for path in python_files(root, "compiler", "runtime_lite")
        if not any(path.is_relative_to(reader) for reader in KIND_READERS)
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare | ast.Match) and _compares_words(node)
    ]


def _compares_words(node: ast.Compare | ast.Match) -> bool:
    """Whether the side or update of something is held against a text."""
    parts = list(ast.walk(node))
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return bool(attributes & KIND_WORDS) and any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts
    )


# Libraries

NAMED_TUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public names of tuples with named fields, whatever they begin with."""

STILL_PRIVATE: Mapping[tuple[str, str], str] = {
    (
        "compiler/build/capture/traced_recurrences.py",
        "_patches",
    ): "kernels of recurrences that no public name registers",
    (
        "compiler/build/capture/traced_recurrences.py",
        "_dispatch_cache",
    ): "an operator keeps the kernel that it ran last",
    ("compiler/build/capture/unsteady_original.py", "_python_dispatch"): "operators are seen by no other mode",
    ("compiler/build/capture/written_states.py", "_version"): "nothing else counts the writes to a tensor",
    ("runtime_lite/executors/onnx.py", "_sess"): "the public session cannot write into arrays and raise typed errors",
}
"""Private names of libraries that are still read, by file, each with what the library lacks; the list gets shorter."""


def private_names(root: Path) -> list[str]:
    """A library's private names change without notice; what is to be changed in it goes through its public names."""
    read = {
        (str(path), name): line
        for path in python_files(root, "compiler", "runtime_lite")
        for name, line in _private_names(ast.parse((root / path).read_text(encoding="utf-8")))
    }
    wrong = [
        f"{path}:{line}: reads {name}, a private name of a library; use its public names"
        for (path, name), line in read.items()
        if (path, name) not in STILL_PRIVATE
    ]
    gone = [
        f"{path}: reads {name} no more; take it out of STILL_PRIVATE"
        for path, name in STILL_PRIVATE
        if (root / path).is_file() and (path, name) not in read
    ]
    return wrong + gone


def _private_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Private names that are imported, and those of objects of which the file itself defines no such attribute."""
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    python = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    python &= sys.stdlib_module_names
    for node in nodes:
        for name in _names_of_others(node, python | {"self", "cls"}):
            if name.startswith("_") and not name.startswith("__") and name not in own | NAMED_TUPLE:
                yield name, node.lineno  # type: ignore[attr-defined]


def _names_of_others(node: ast.AST, owners: Set[str]) -> Iterator[str]:
    """The parts of an imported name of a library, and the attribute that is read of an object other than `owners`."""
    match node:
        case ast.Import(names=names):
            yield from (part for name in names for part in _parts_of_library(name.name))
        case ast.ImportFrom(module=str(module), names=names):
            yield from (part for name in names for part in _parts_of_library(f"{module}.{name.name}"))
        case ast.Attribute(value=ast.Name(id=owner)) if owner in owners:
            return
        case ast.Attribute(attr=name, ctx=ast.Load()):
            yield name
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name


def _parts_of_library(module: str) -> list[str]:
    library, *parts = module.split(".")
    return [] if library in sys.stdlib_module_names or library in OWN else parts


# Operators

TRAITS = Path("compiler/graph/operators/traits.py")
"""The one place for what operators are like."""

TABLES = ("compiler/proof/rules", "compiler/graph/axis_map.py", "compiler/targets", "compiler/checker")
"""Rules of the prover, what vendors support, and the checker, which shares nothing with the prover."""

OWN_LIST = "A list of its own:"
"""Begins the docstring of a list of operators that is no trait, but means something in its module alone."""

MOST_OPERATORS = 2
"""So many operators may be named together anywhere."""


def operator_lists(root: Path) -> list[str]:
    """Lists of operators are traits, rules, or say what they mean."""
    operators = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return [
        f"{path}:{node.lineno}: lists {len(found)} operators; ask {TRAITS}, or say below it: {OWN_LIST} what it means"
        for path in python_files(root, "compiler")
        if path != TRAITS and not any(path.is_relative_to(table) for table in TABLES)
        for node in _literals(ast.parse((root / path).read_text(encoding="utf-8")))
        if len(found := [text for text in _texts(node) if text in operators]) > MOST_OPERATORS
        and len(found) == len(node.elts)
    ]


VIEWS = "compiler/graph/operators"
"""The one place for what a node says, whatever its spelling."""

VIEWED = frozenset(
    {"allowzero", "axes", "axis", "keepdims", "noop_with_empty_axes", "num_outputs", "pads", "perm", "split"}
)
"""Attributes that only views read: they may be left out, count from the back, or be operands in newer operator sets."""

ATTRIBUTE_READERS = frozenset({"attribute", "int_attribute", "ints_attribute"})
NUMBER_READERS = frozenset({"array_of", "constant_of", "integers_of", "symbolic_values_of"})

VIEWED_OPERANDS = frozenset({"CumSum", "Expand", "Pad", "Split", "Squeeze", "Tile", "Unsqueeze"})
"""Operators of which an operand names axes, or sizes of some axes; what else a view holds is read of it as well."""

STILL_READING = frozenset(
    {
        "compiler/proof/batching/rules/along_axes.py",
        "compiler/build/capture/onnx_source/opset_conversion.py",
    }
)
"""Files that still read such attributes themselves; no file is added, and one that need not be here is taken out."""


def spelled_by_hand(root: Path) -> list[str]:
    """Attributes and operands that name axes are read by the views, so that every legal spelling means the same."""
    wrong, reading = [], set()
    for path in python_files(root, "compiler"):
        if path.is_relative_to(VIEWS) or path.is_relative_to("compiler/checker"):
            continue
        lines = sorted({node.lineno for node in _read_by_hand(ast.parse((root / path).read_text(encoding="utf-8")))})
        reading |= {path.as_posix()} if lines else set()
        if path.as_posix() not in STILL_READING:
            wrong += [f"{path}:{line}: reads the axes of a node itself; ask {VIEWS}" for line in lines]
    unneeded = sorted(file for file in STILL_READING - reading if (root / file).is_file())
    return wrong + [f"{file}: reads no axes itself any more; take it out of STILL_READING" for file in unneeded]


def _read_by_hand(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in (*ATTRIBUTE_READERS, "get"):
            is_get = _called(node) == "get"
            if (not is_get or _is_attributes(node.func)) and any(_names_a_viewed(each) for each in node.args):
                yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _names_a_viewed(node.slice):
            if ast.unparse(node.value).endswith(".attributes"):
                yield node
        elif isinstance(node, ast.Compare) and _names_a_viewed(node.left):
            if ast.unparse(node.comparators[0]).endswith(".attributes"):
                yield node
        elif isinstance(node, ast.If | ast.IfExp | ast.BoolOp):
            yield from _operands_read(node)


def _operands_read(where: ast.If | ast.IfExp | ast.BoolOp) -> Iterator[ast.expr]:
    """Numbers that are read of an operand behind the first one, where it is known which operator it is."""
    test = where if isinstance(where, ast.BoolOp) else where.test
    asked = [each for each in ast.walk(test) if isinstance(each, ast.Call) and _called(each) == "is_op"]
    nodes = {ast.unparse(each.args[0]) for each in asked if {*_constants(each)} & VIEWED_OPERANDS}
    for each in ast.walk(where):
        if isinstance(each, ast.Call) and _called(each) in NUMBER_READERS and each.args:
            operand = re.fullmatch(r"(.*)\.inputs\[[1-9]\]", ast.unparse(each.args[0]))
            if operand is not None and operand[1] in nodes:
                yield each


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_attributes(function: ast.expr) -> bool:
    return ast.unparse(function).endswith(".attributes.get")


def _names_a_viewed(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in VIEWED


def _constants(call: ast.Call) -> list[object]:
    return [each.value for each in call.args if isinstance(each, ast.Constant)]


def _literals(tree: ast.Module) -> Iterator[ast.Set | ast.Tuple | ast.List]:
    """Sets, tuples and lists, but those of constants that say that they are lists of their own."""
    for statement, behind in itertools.zip_longest(tree.body, tree.body[1:]):
        text = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else ""
        if not (isinstance(statement, ast.Assign) and str(text).startswith(OWN_LIST)):
            yield from (each for each in ast.walk(statement) if isinstance(each, ast.Set | ast.Tuple | ast.List))


def _texts(node: ast.Set | ast.Tuple | ast.List) -> list[str]:
    return [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]


# Names that nobody uses


def unused_names(root: Path) -> list[str]:
    """Each function, class, method and constant of a product file is mentioned a second time, outside of tests."""
    texts = {path: (root / path).read_text(encoding="utf-8") for path in python_files(root) if path.parts[0] != "tests"}
    mentions: dict[str, int] = {}
    for text in texts.values():
        for word in re.findall(r"\w+", text):
            mentions[word] = mentions.get(word, 0) + 1
    return [
        f"{path}: nobody uses {name}; delete it"
        for path, text in texts.items()
        if path.parts[0] in ("compiler", "runtime_lite", "build.py")
        for tree in (ast.parse(text),)
        for name in (*_top_names(tree), *(_methods(tree) if path.parts[0] == "compiler" else ()))
        if mentions[name] < 2
    ]


def _top_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name) and target.id != "__all__")


def _methods(tree: ast.Module) -> Iterator[str]:
    """Methods that no base class and no decorator of a library asks for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.bases:
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef) and not each.decorator_list)
            yield from (each.name for each in methods if not each.name.startswith("__"))
