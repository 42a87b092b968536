"""Implements the command line, `python build.py` or `slipway-build`: runs one command and returns its exit code.

0    all gates hold
1    a bug of Slipway
2    the recipe, the checkpoint, the data or an argument is wrong; the disk is full
3    refused: something cannot be proved, or is not supported
4    a gate failed
5    a toolchain is absent: under --strict, for finish, or to run an engine
6    diff: the bundles differ
130  interrupted, by Ctrl-C or SIGTERM
"""

import argparse
import contextlib
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from compiler.base.garbage_collection import seldom
from compiler.base.interruption import signals_interrupt
from compiler.build.report.files import is_json_report, is_page, require_place
from compiler.errors import GateFailed, Refused, blamed
from compiler.front.commands.arguments import ALLOW, make_parser
from runtime_lite.ending import STDOUT_CLOSED, leave_stdout
from runtime_lite.errors import FRONT_DOOR
from runtime_lite.executors.executor import ExecutorFactory
from runtime_lite.executors.heap import return_large_blocks

DIFFERENT = 6
INTERRUPTED = 130
PIPE_CLOSED = 141
"""128 + SIGPIPE, as the shell reports a program whose reader went away."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a failure prints one message with its cure."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return_large_blocks()
    options = _parse(words)
    if sys.stdout is None:
        return _fail(STDOUT_CLOSED, 2, words)
    try:
        with signals_interrupt(), seldom():
            code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half-written", INTERRUPTED, words)
    except SystemExit as error:
        message = f"expected code named in the recipe to return, got sys.exit({error.code!r}); let it raise or return"
        return _fail(message, 2, words)
    except BrokenPipeError:
        leave_stdout()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  (the edge: whatever else is raised is a bug and is shown as one)
        if options.verbose:
            traceback.print_exc()
        ended = blamed(error)
        return _fail(str(ended), ended.exit_code, words)
    return code


def _fail(message: str, code: int, given: Sequence[str]) -> int:
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:  # its reader left, or its disk is full
            leave_stdout()
    one_line = " ".join(line.strip() for line in message.splitlines() if line.strip())
    print(f"error: {one_line}\n{_repeat_with(given)}", file=sys.stderr)
    return code


def _repeat_with(given: Sequence[str]) -> str:
    return f"repeat with: {FRONT_DOOR} {shlex.join(given)}"


def _parse(given: Sequence[str]) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(given)
    options.overrides += getattr(options, "overrides_behind", [])
    if options.command != "explain" and (options.command is None) == (options.recipe is None):
        parser.error("expected --recipe or one command; for example --recipe cpu.yaml")
    return options


def _run(options: argparse.Namespace) -> int:
    commands = {
        "inspect": _runtime,
        "verify": _verify,
        "finish": _finish,
        "diff": _diff,
        "check": _check,
        "doctor": _doctor,
        "explain": _explain_padding,
        "bench": _bench,
        "init": _init,
        "run": _run_pair,
        "simplify": _simplify,
    }
    return commands.get(options.command, _build)(options)


def _build(options: argparse.Namespace) -> int:
    from compiler.base.cache.store import open_cache
    from compiler.build.report.progress import Progress
    from compiler.recipe.load import load_recipe

    if options.report is not None:
        require_place("--report", options.report, is_json_report)
    if options.report_html is not None:
        require_place("--report-html", options.report_html, is_page)
    try:
        loaded = load_recipe(options.recipe, options.overrides, options.checkpoint, _tell)
        from compiler.build import pipeline  # a wrong recipe is answered before anything large is imported
    except (Exception, KeyboardInterrupt) as error:
        _report_early(options, error)
        raise
    out = options.out or Path("dist") / _bundle_name(loaded.recipe.name, loaded.path.stem)
    cache = None if options.no_cache else open_cache(options.cache, _tell)
    progress = Progress()
    how = pipeline.BuildOptions(
        out=out, strict=options.strict, cache=cache, report=options.report, page=options.report_html
    )
    report = pipeline.build(loaded, how, progress)
    progress.show(report)
    if options.report_html is not None:
        progress.say(f"page: {options.report_html}")
    return 0


def _tell(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr)


def _report_early(options: argparse.Namespace, error: BaseException) -> None:
    """Write the report of a build that failed before it began, so that no report of an earlier build remains."""
    from compiler.build.report.build_record import BuildRecord, write_reports
    from compiler.build.report.progress import Progress

    record = BuildRecord(options.recipe, (), str(options.out or ""), Progress())
    with contextlib.suppress(OSError):  # what has ended the build is what is to be said
        write_reports(record.report(error), {}, options.report, options.report_html)


def _bundle_name(name: str, recipe: str) -> str:
    """Return the bundle's name: `streaming_asr-cpu` for recipe `cpu.yaml` of `streaming_asr`, one word if equal."""
    return name if name == recipe else f"{name}-{recipe}"


def _runtime(options: argparse.Namespace, *executors: ExecutorFactory) -> int:
    from runtime_lite.__main__ import main as run_command

    given = [options.command, str(options.bundle)]
    given += [option for option in (ALLOW, "--json") if getattr(options, option[2:].replace("-", "_"), False)]
    code = run_command(given, *executors)
    if code:
        print(_repeat_with(given), file=sys.stderr)
    return code


def _verify(options: argparse.Namespace) -> int:
    from compiler.build.bundle.replay_proofs import verify_proofs
    from compiler.build.bundle.target_of import executors_here
    from runtime_lite.format.reader import read_bundle

    code = _runtime(options, executors_here(allow_host_code=options.allow_host_code))
    if code == 0:
        with read_bundle(options.bundle) as bundle:
            for line in verify_proofs(bundle):
                print(line)
    return code


def _finish(options: argparse.Namespace) -> int:
    from compiler.base.cache.store import default_folder
    from compiler.build.bundle.finish import finish_bundle, unfinished
    from runtime_lite.format.reader import read_bundle

    with read_bundle(options.bundle) as bundle:
        targets = sorted({graph.target for graph in bundle.manifest.graphs.values()})
        has_engines = any(graph.engine is not None for graph in bundle.manifest.graphs.values())
        waiting = unfinished(bundle.manifest)
    if not waiting:
        done = "its engines are built" if has_engines else f"{', '.join(targets)} needs no vendor compiler"
        print(f"{options.bundle}: nothing to finish; {done}")
        return 0
    finished = finish_bundle(options.bundle, (options.cache or default_folder()) / "timing")
    for finding in finished.layers:
        if finding.holds is None:
            print(f"{finding.graph} {finding.subject}: {finding.detail}")
    for choice in finished.choices:
        print(choice)
    for row in finished.speed:
        print(f"{row.graph} {row.sizes}: p50 {row.p50_ms:.3f} ms, p95 {row.p95_ms:.3f} ms")
    done = "built, verified and timed" if finished.speed else "built and verified"
    done = f"{done} in the vendor's simulator" if finished.simulated else done
    done = done if finished.not_run is None else f"built, not run: {finished.not_run}"
    print(f"{options.bundle}: engines of {', '.join(waiting)} {done}")
    return 0


def _diff(options: argparse.Namespace) -> int:
    from compiler.build.bundle.compare import compare_bundles, difference_table, is_measured
    from compiler.build.report.progress import standard_console

    differences = compare_bundles(*options.bundles)
    if all(map(is_measured, differences)):
        standard_console().print("the same but for measured times" if differences else "no difference")
        return 0
    standard_console().print(difference_table(differences, *options.bundles))
    return DIFFERENT


def _check(options: argparse.Namespace) -> int:
    from compiler.recipe.load import load_recipe
    from compiler.recipe.user_code.named_places import require_named_places

    loaded = load_recipe(options.checked, options.overrides, options.checkpoint, _tell)
    files, modules = require_named_places(loaded)
    from compiler.build import pipeline  # a wrong recipe is answered before anything large is imported

    listed = pipeline.check(loaded)
    targets = ", ".join(target.label for target in listed)
    graphs = "; ".join(f"graph {name}, {_count(len(g.passes), 'pass')}" for name, g in loaded.recipe.graphs.items())
    print(f"{loaded.path}: no mistake found: {graphs}; {'targets' if ', ' in targets else 'target'} {targets}")
    print(
        f"found: {_count(files, 'file')}, {_count(modules, 'function')} by their modules; nothing was captured or run"
    )
    for target in listed:
        if outlook := target.target.engine_outlook():
            print(f"engines of {target.label}: {outlook}")
    return 0


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}{'es' if thing.endswith('s') else 's'}"


def _doctor(options: argparse.Namespace) -> int:
    from compiler.build.report.progress import standard_console
    from compiler.front.doctor import diagnose, diagnosis_tables, install_toolchain

    if options.install is not None:
        install_toolchain(options.install, lambda line: print(line, flush=True))
        return 0
    for table in diagnosis_tables(diagnose()):
        standard_console().print(table)
    return 0


def _explain_padding(options: argparse.Namespace) -> int:
    from compiler.base.cache.store import open_cache
    from compiler.build.report.progress import Progress, standard_console
    from compiler.front.explain.explanation import explain
    from compiler.front.explain.picture import write_picture
    from compiler.front.explain.request import Request, from_file, from_recipe
    from compiler.front.explain.text import print_explanation
    from compiler.recipe.load import load_recipe

    if options.html is not None:
        require_place("--html", options.html, is_page)
    request = Request(
        options.axis,
        options.window,
        options.batch,
        masks=options.mask,
        pad_masks=options.pad_mask,
        lengths=options.length,
        states=options.state,
    )
    if options.recipe is None:
        lowered, passes = from_file(Path(options.graph), request)
    else:
        loaded = load_recipe(options.recipe, options.overrides, options.checkpoint, _tell)
        cache = None if options.no_cache else open_cache(options.cache, _tell)
        lowered, passes = from_recipe(loaded, options.graph, request, cache, Progress())
        if loaded.recipe.graphs[options.graph].share_heads is not None:
            print("share_heads: left out here, as nothing is trained; heads are those of the checkpoint")
    explanation = explain(lowered, passes)
    print_explanation(explanation, standard_console(), every_node=options.every_node)
    if options.html is not None:
        write_picture(explanation, options.html)
        print(f"picture: {options.html}")
    if explanation.rejected:
        raise GateFailed(explanation.rejected, cure="report it: nothing unproved is shipped")
    if explanation.refusals:
        first = explanation.refusals[0]
        raise Refused(first.reason, cure=first.cure, place=first.place)
    return 0


def _init(options: argparse.Namespace) -> int:
    from compiler.front.commands.init.factory_signature import Wanted
    from compiler.front.commands.init.init_recipe import init_recipe

    inputs = {name: Wanted(dims, dtype) for name, dims, dtype in options.inputs}
    written = init_recipe(options.what, options.out, inputs, options.checkpoint)
    todo = f"{_count(written.todo, 'place')} to fill in" if written.todo else "nothing to fill in"
    print(f"{written.recipe}: written, {written.guessed} guesses marked, {todo}")
    if written.feeds is not None:
        print(f"{written.feeds}: written, random feeds to begin with")
    elif not options.inputs:
        print("or describe the inputs, and more can be guessed: --input NAME=SIZES, e.g. --input features=batch,8,40")
    print(f"next: {FRONT_DOOR} check {written.recipe}")
    return 0


def _run_pair(options: argparse.Namespace) -> int:
    from compiler.base.cache.store import open_cache
    from compiler.build.report.progress import standard_console
    from compiler.front.commands.run_pair import Request, compare_pair, comparison_table, require_same
    from compiler.recipe.gates import Tolerance

    request = Request(
        options.first,
        options.second,
        options.feeds,
        options.seed,
        options.calls,
        dict(options.sizes),
        dict(options.names),
        options.overrides,
        options.checkpoint,
        None if options.no_cache else open_cache(options.cache, _tell),
        _tell,
    )
    limits = Tolerance(max_abs=options.tolerance)
    comparison = compare_pair(request, limits)
    standard_console().print(comparison_table(comparison))
    for note in comparison.notes:
        print(note)
    require_same(comparison, request, limits)
    return 0


def _bench(options: argparse.Namespace) -> int:
    from compiler.build.report.progress import standard_console
    from compiler.front.commands.bench import WARM_UP, bench, bench_table

    found = bench(options.what, options.against, dict(options.sizes), options.threads, options.calls)
    threads = "1 thread" if options.threads == 1 else f"{options.threads} threads"
    print(f"{threads}, {options.calls} calls after {WARM_UP}; times in ms")
    standard_console().print(bench_table(found))
    if found.ratio is not None:
        print(f"{options.what} takes {str(found.ratio).strip()} of the time of {options.against}")
    return 0


def _simplify(options: argparse.Namespace) -> int:
    from compiler.build.report.progress import standard_console
    from compiler.front.commands.simplify_file import simplified_table, simplify_file

    found = simplify_file(options.source, options.target, dict(options.sizes), options.tolerance)
    standard_console().print(simplified_table(found))
    print(found.compared)
    print(f"{options.target}: written{found.conversion}")
    return 0
