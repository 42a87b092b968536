"""Defines the command line's parser: all commands with their arguments, descriptions and examples."""

import argparse
import difflib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import runtime_lite
from runtime_lite.errors import FRONT_DOOR

DTYPES = ("bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint8")
"""Element types that both NumPy and torch have."""

ALLOW = "--allow-host-code"

CHECKPOINT = "use this checkpoint instead of the recipe's"


class _Parser(argparse.ArgumentParser):
    """Answers a wrong option or command with the nearest right one."""

    given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = [*(args or ())]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        options, commands = self._options(), self._commands()
        written = [each.partition("=")[0] for each in self.given if re.match(r"--?[a-zA-Z]", each)]
        unknown = next((each for each in written if each not in options), None)
        choice = re.search(r"invalid choice: '([^']*)'", message)
        if unknown is not None:
            message = f"expected a known option, got {unknown}{_nearest(unknown, options)}"
        elif choice and commands:
            message += _nearest(choice[1], commands)
        super().error(message)

    def _commands(self) -> dict[str, "_Parser"]:
        found = [each.choices for each in self._actions if isinstance(each, argparse._SubParsersAction)]
        return dict(found[0]) if found else {}

    def _options(self) -> list[str]:
        """Return the options of a parser and of its commands."""
        return [*self._option_string_actions, *(name for each in self._commands().values() for name in each._options())]


def _nearest(wrong: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all options and commands."""
    parser = _Parser(
        FRONT_DOOR.split()[-1],
        description="Recipe in, verified bundle out.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_example("--recipe cpu.yaml --out dist/trial"),
    )
    parser.add_argument("--recipe", metavar="NAME_OR_PATH", help="a file, or a name found in recipes/")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the bundle, or of several targets the folder of theirs; dist/<name>-<recipe file> by default",
    )
    _add_changes(parser, "overrides")
    parser.add_argument("--checkpoint", metavar="FILE", help=CHECKPOINT)
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="write what the build found as JSON")
    parser.add_argument("--report-html", type=Path, metavar="FILE.html", help="write it as one page for people")
    parser.add_argument("--strict", action="store_true", help="fail if a target's toolchain is absent")
    parser.add_argument("--no-cache", action="store_true", help="run every stage, and keep no results")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where results of stages are kept")
    parser.add_argument("--version", action="version", version=f"slipway-compiler {runtime_lite.__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help="COMMAND --help says more of each")
    _add_inspect(_command(commands, "inspect", "say what a bundle holds", "dist/streaming_asr-cpu --json"))
    _add_verify(
        _command(
            commands,
            "verify",
            "run the recorded parity on this machine, and replay the certificates",
            "dist/streaming_asr-cpu",
        )
    )
    _add_bundle(_command(commands, "finish", "run the vendor compiler on the machine that has it", "dist/mine-t4"))
    _add_diff(_command(commands, "diff", "say in what two bundles differ", "dist/mine-monday dist/mine-tuesday"))
    _add_check(_command(commands, "check", "check a recipe, without capturing anything", "mine.yaml"))
    _add_doctor(_command(commands, "doctor", "say which targets work on this machine", ""))
    _add_explain(
        _command(
            commands, "explain", "say why padding a graph is proved or refused", "model.onnx --axis time --batch batch"
        )
    )
    _add_init(
        _command(
            commands,
            "init",
            "write a recipe to start from, every guess in it marked",
            "my_model:build --input features=batch,8,40 --input cache=batch,cached,64",
        )
    )
    _add_run(
        _command(
            commands,
            "run",
            "run two models, bundles or backends on the same feeds, and compare them tensor by tensor",
            "model.onnx dist/mine:net --set-size time=200",
        )
    )
    _add_simplify(
        _command(
            commands,
            "simplify",
            "clean an ONNX file up, exactly, without a recipe",
            "model.onnx simple.onnx --set-size batch=1 --set-size time=200",
        )
    )
    _add_bench(
        _command(
            commands,
            "bench",
            "time one call of an ONNX file or of a bundle, alone or in turns with another",
            "model.onnx --against simple.onnx --set-size batch=1 --set-size time=200",
        )
    )
    return parser


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, summary: str, arguments: str
) -> argparse.ArgumentParser:
    """Add a command with its summary and one example."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_example(f"{name} {arguments}".strip()),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _example(arguments: str) -> str:
    return f"example:\n  {FRONT_DOOR} {arguments}"


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder, or .tar file of one")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    _add_bundle(parser)
    parser.add_argument("--json", action="store_true", help="say it as JSON, with a schema_version, for programs")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_bundle(parser)
    parser.add_argument(ALLOW, action="store_true", help="run code that engines carry; only if you trust their maker")


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundles", type=Path, nargs=2, metavar="BUNDLE", help="bundle folder, or .tar file of one")


def _add_changes(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--set",
        dest=name,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one value of the recipe, e.g. gates.budget.size_mb=30; repeatable",
    )


def _add_changes_behind(parser: argparse.ArgumentParser) -> None:
    """Add options that change a recipe after the command; those before it stay, and come first."""
    _add_changes(parser, "overrides_behind")
    parser.add_argument("--checkpoint", default=argparse.SUPPRESS, metavar="FILE", help=CHECKPOINT)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checked", metavar="NAME_OR_PATH", help="a file, or a name found in recipes/")
    _add_changes_behind(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--install",
        metavar="NAME",
        help="install a vendor's toolchain in an environment of its own; its licence and size are named first",
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help="an ONNX file, or with --recipe the name of a graph")
    same = argparse.SUPPRESS  # what is given in front of the command stays
    parser.add_argument("--recipe", default=same, metavar="NAME_OR_PATH", help="a graph of this recipe, as in a build")
    parser.add_argument("--cache", type=Path, default=same, metavar="DIR", help="where results of stages are kept")
    parser.add_argument("--no-cache", action="store_true", default=same, help="capture the recipe's graph anew")
    _add_changes_behind(parser)
    for option, metavar, summary in (
        ("--axis", "NAME", "an axis padded behind its valid entries, with one length per row"),
        ("--window", "AXIS=FRAMES", "a cache axis, whose valid frames lie last"),
        ("--state", "INPUT=OUTPUT", "a cache and the output that feeds it"),
        ("--mask", "INPUT=AXIS", "an input of the model that is 1 at valid places"),
        ("--pad-mask", "INPUT=AXIS", "an input of the model that is 0 at valid places"),
        ("--length", "INPUT=AXIS", "an input of the model that holds true lengths"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{summary}; repeatable")
    parser.add_argument("--batch", metavar="NAME", help="the axis of rows; `batch` where the graph has it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a picture of the graph")
    parser.add_argument("--verbose", dest="every_node", action="store_true", help="every node with its facts")


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="MODEL", help="MODEL.onnx, or module:factory of a torch module")
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME=SIZES[:DTYPE]",
        help="an input of a factory's module: numbers and axis names, e.g. features=batch,8,40 or ids=1,n:int64; "
        "repeatable",
    )
    same = argparse.SUPPRESS  # what is given in front of the command stays
    parser.add_argument(
        "--out", type=Path, default=same, metavar="RECIPE.yaml", help="the recipe, a new file; <model>.yaml by default"
    )
    parser.add_argument("--checkpoint", default=same, metavar="FILE", help="the checkpoint of a factory's module")


def _add_run(parser: argparse.ArgumentParser) -> None:
    what = (
        "FILE.onnx, FILE.onnx@plain, @optimized or @reference, BUNDLE, BUNDLE:GRAPH, RECIPE.yaml or RECIPE.yaml:GRAPH"
    )
    parser.add_argument("first", metavar="A", help=what)
    parser.add_argument("second", metavar="B", help="the same of what is compared with it")
    parser.add_argument(
        "--feeds",
        type=Path,
        metavar="FILE.npz",
        help="arrays by input name, with the calls along a first axis of their own where there are several; "
        "random numbers by default",
    )
    parser.add_argument("--seed", type=_count, default=0, metavar="N", help="of the random numbers (default 0)")
    parser.add_argument(
        "--calls", type=_calls, metavar="N", help="calls in a row, states chained (default 4, or all of the file)"
    )
    parser.add_argument(
        "--name",
        dest="names",
        action="append",
        default=[],
        type=_pair,
        metavar="FIRST=SECOND",
        help="an input or output of A, and what B calls it; repeatable",
    )
    _add_sizes(parser)
    _add_tolerance(parser)
    _add_changes_behind(parser)


def _add_simplify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="IN.onnx", help="the file to read")
    parser.add_argument("target", type=Path, metavar="OUT.onnx", help="the file to write; an ONNX file is replaced")
    _add_sizes(parser)
    _add_tolerance(parser)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    what = "FILE.onnx, BUNDLE or BUNDLE:GRAPH"
    parser.add_argument("what", metavar="MODEL", help=what)
    parser.add_argument("--against", metavar="OTHER", help=f"{what}; timed in turns with it, for the ratio")
    parser.add_argument("--threads", type=_calls, default=1, metavar="N", help="threads of one call (default 1)")
    parser.add_argument(
        "--calls", type=_bench_calls, default=200, metavar="N", help="calls that are timed (default 200)"
    )
    _add_sizes(parser)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set-size",
        dest="sizes",
        action="append",
        default=[],
        type=_size,
        metavar="AXIS=SIZE",
        help="size of a dynamic axis in the feeds, e.g. time=200; repeatable",
    )


def _add_tolerance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        default=1e-5,
        metavar="NUMBER",
        help="largest difference, times the larger of 1 and the largest value of a tensor (default 1e-5)",
    )


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not (size.isascii() and size.isdecimal()) or not 0 < int(size) < 2**31:
        raise argparse.ArgumentTypeError(f"expected AXIS=SIZE with a size from 1, got {text!r}; write time=200")
    return name, int(size)


def _input(text: str) -> tuple[str, tuple[int | str, ...], str]:
    name, _, described = text.partition("=")
    sizes, _, dtype = described.partition(":")
    dims = tuple(int(size) if size.isascii() and size.isdecimal() else size for size in sizes.split(",") if sizes)
    fits = name and all(dim > 0 if isinstance(dim, int) else dim.isascii() and dim.isidentifier() for dim in dims)
    if not fits or (dtype or "float32") not in DTYPES:
        raise argparse.ArgumentTypeError(
            f"expected NAME=SIZES or NAME=SIZES:DTYPE, got {text!r}; write features=batch,8,40 or ids=1,n:int64"
        )
    return name, dims, dtype or "float32"


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a number above 0, got {text!r}; write 1e-5, or 1e-300 for equal numbers"
        )
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, got {text!r}")
    return int(text)


def _calls(text: str) -> int:
    if _count(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def _bench_calls(text: str) -> int:
    if _calls(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a whole number from 2, got {text!r}; a spread needs several")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.partition("=")
    if not first or not second:
        raise argparse.ArgumentTypeError(f"expected FIRST=SECOND, got {text!r}; write y=output_0")
    return first, second
