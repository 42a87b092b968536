"""Implements the commands of `python -m runtime_lite` and their exit codes.

`inspect|verify|run|bench|load|open-inference BUNDLE`, `plan BUNDLE...`, `triton|ray BUNDLE FOLDER`, `top ADDRESS`.

Exit codes: 0 success, 2 the input or the bundle is wrong, 4 `verify` measured an error above the tolerance, 5 the
engine is not built or this machine lacks its device, 130 interrupted, 1 a bug of runtime_lite, whose traceback is
printed.
"""

import argparse
import contextlib
import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runtime_lite import __version__, plan
from runtime_lite.bench import Timing, bench_model
from runtime_lite.bench_served import bench_served
from runtime_lite.ending import exit_code_of
from runtime_lite.errors import BadInput, GateFailed
from runtime_lite.executors.executor import ExecutorFactory, make_executor, make_trusted_executor
from runtime_lite.format.arrays import Array, arrays_from_file, npz_from_arrays
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.costs import Cost, json_from_costs
from runtime_lite.format.describe import describe_bundle, format_table, json_of_bundle
from runtime_lite.format.manifest import COSTS_FILE
from runtime_lite.format.reader import read_bundle
from runtime_lite.hosting.open_inference import serve
from runtime_lite.hosting.ray_application import write_application
from runtime_lite.hosting.ray_replica import RayOptions
from runtime_lite.hosting.triton_repository import write_repository
from runtime_lite.load_test import command as load
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime
from runtime_lite.serving.top import CLEAR, watch
from runtime_lite.verify import verify_model


def main(arguments: Sequence[str] | None = None, executors: ExecutorFactory = make_executor) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: those of the process by default.
        executors: makes the executor of each graph that `verify` runs; by default the one the bundle was built for.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # else it is closed, which `exit_code_of` says
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name may not fit the terminal's encoding
    options = _parser().parse_args(arguments, argparse.Namespace(executors=executors))

    def command() -> None:
        options.command(options)

    return exit_code_of(command, "interrupted, nothing was written")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime_lite", description="inspect, verify, run or time a bundle")
    parser.add_argument("--version", action="version", version=f"slipway-runtime {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    inspect = commands.add_parser("inspect", help="print what a bundle is, after checking all of it")
    inspect.add_argument("--json", action="store_true", help="print it as JSON, with a schema_version")
    inspect.set_defaults(command=_inspect)

    verify = commands.add_parser("verify", help="run the recorded feeds here and compare; exit code 4 when they differ")
    verify.set_defaults(command=_verify)

    run = commands.add_parser("run", help="run feeds from an .npz file")
    run.add_argument("--feeds", type=Path, required=True, metavar="FILE.npz", help="arrays [rows, ...] by input name")
    run.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="where to write the outputs")
    run.add_argument("--graph", help="graph to run; without it the only one, or those that are wired")
    run.add_argument("--stream", action="store_true", help="feeds are [chunks, rows, ...], pushed one after the other")
    run.set_defaults(command=_run)

    bench = commands.add_parser("bench", help="time every bucket")
    bench.add_argument("--runs", type=_positive, default=100, help="timed runs per bucket (default 100)")
    bench.add_argument("--warm-up", type=_positive, default=10, help="untimed runs before them (default 10)")
    bench.add_argument("--workers", type=_positive, metavar="N", help="as a full server with N runs at once has them")
    bench.add_argument("--update-costs", action="store_true", help=f"write the times to {COSTS_FILE} of the bundle")
    bench.set_defaults(command=_bench)

    load_command = commands.add_parser(
        "load", help="requests that come when they come: latency, late share, throughput"
    )
    load.add_arguments(load_command, _positive, _amount)
    load_command.set_defaults(command=load.load)

    plan_command = commands.add_parser("plan", help="how many streams this machine carries, from measured costs")
    plan.add_arguments(plan_command, _positive, _amount)
    plan_command.set_defaults(command=plan.plan)

    triton = commands.add_parser("triton", help="write a Triton model repository: the runtime as its Python backend")
    triton.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory or .tar file")
    triton.add_argument("repository", type=Path, metavar="MODEL_FOLDER", help="folder of the models, made if need be")
    triton.add_argument("--name", help="name of the model (default: the bundle's)")
    triton.add_argument("--recordings", action="store_true", help="models of whole recordings, too, decoupled")
    triton.add_argument("--threads", type=_positive, default=1, help="threads of one run (default 1)")
    triton.add_argument("--workers", type=_positive, default=1, help="runs at once (default 1)")
    triton.add_argument("--max-streams", type=_positive, default=1024, help="streams open at once (default 1024)")
    triton.add_argument("--idle-s", type=_amount, default=60.0, help="a stream idle for so long ends (default 60)")
    triton.set_defaults(command=_triton)

    ray = commands.add_parser("ray", help="write an application of Ray Serve: streams pinned to replicas")
    ray.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory or .tar file")
    ray.add_argument("folder", type=Path, metavar="DIR", help="folder of the application, which must not exist")
    ray.add_argument("--graph", help="graph with states; without it the only one, or those that are wired")
    for option, read, text in (
        ("threads", _positive, "threads of one run"),
        ("workers", _positive, "runs of a replica at once"),
        ("max-streams", _positive, "streams of a replica"),
        ("idle-s", _amount, "a stream idle for so long ends"),
        ("snapshot-every", int, "chunks between two snapshots, from which streams of a lost replica go on; 0 for none"),
        ("answer-s", _amount, "a replica that does not answer for so long is lost"),
        ("min-replicas", _positive, "least number of replicas"),
        ("max-replicas", _positive, "largest number of replicas"),
        ("leave-after-s", _amount, "a replica leaves after so long with too few streams"),
        ("cpus", _amount, "CPUs that Ray reserves for a replica"),
    ):
        default = getattr(RayOptions, option.replace("-", "_"))
        ray.add_argument(f"--{option}", type=read, default=default, help=f"{text} (default {default:g})")
    ray.set_defaults(command=_ray)

    inference = commands.add_parser(
        "open-inference", help="serve whole utterances over HTTP by the Open Inference Protocol, until Ctrl-C"
    )
    inference.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    inference.add_argument("--port", type=_positive, default=8000, help="port to listen on (default %(default)s)")
    inference.add_argument("--workers", type=_positive, default=1, help="runs at once (default 1)")
    inference.set_defaults(command=_open_inference)

    top = commands.add_parser("top", help="watch a server by its metrics, until Ctrl-C")
    top.add_argument("address", nargs="?", default="http://127.0.0.1:9464/metrics", help="default: %(default)s")
    top.add_argument("--every", type=_amount, default=1.0, metavar="S", help="seconds between two views (default 1)")
    top.add_argument("--views", type=_positive, help="end after so many views")
    top.set_defaults(command=_top)

    for command in (inspect, verify, run, bench, inference):
        command.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory or .tar file")
    for command in (verify, run, bench, inference):
        command.add_argument("--threads", type=_positive, default=1, help="threads of one run (default 1)")
        command.add_argument(
            "--allow-host-code", action="store_true", help="run code that engines carry; only if you trust their maker"
        )
    return parser


def _positive(text: str) -> int:
    """Read a command-line argument that must be a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def _amount(text: str) -> float:
    """Read a command-line argument that must be a positive number below 1e6."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value


def _top(options: argparse.Namespace) -> None:
    """Run the command `top`: print views of a server's metrics until Ctrl-C."""
    clear = CLEAR if sys.stdout.isatty() else ""
    with contextlib.suppress(KeyboardInterrupt):  # the usual end of a view
        for text in watch(options.address, options.every, options.views):
            print(f"{clear}{text}", flush=True)


def _triton(options: argparse.Namespace) -> None:
    """Run the command `triton`: write a model repository and print the folders written."""
    written = write_repository(
        options.bundle,
        options.repository,
        name=options.name,
        threads=options.threads,
        workers=options.workers,
        max_streams=options.max_streams,
        idle_s=options.idle_s,
        recordings=options.recordings,
    )
    for folder in written:
        print(folder)


def _ray(options: argparse.Namespace) -> None:
    """Run the command `ray`: write the folder of an application and print its name."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(RayOptions)}
    print(write_application(options.bundle, options.folder, RayOptions(**given)))


def _open_inference(options: argparse.Namespace) -> None:
    """Run the command `open-inference`: serve a bundle over HTTP."""
    with Runtime(threads=options.threads, workers=options.workers) as runtime:
        model = runtime.load(options.bundle, allow_host_code=options.allow_host_code, warm_up=True)
        serve(runtime, model, options.host, options.port)


def _inspect(options: argparse.Namespace) -> None:
    """Run the command `inspect`: print the description of a bundle."""
    with read_bundle(options.bundle) as bundle:
        print(json_of_bundle(bundle).decode() if options.json else describe_bundle(bundle))


def _verify(options: argparse.Namespace) -> None:
    """Run the command `verify`: print one row per comparison, and raise GateFailed if one exceeds its limit."""
    with Runtime(threads=options.threads) as runtime:
        model = runtime.load(options.bundle, options.executors, options.allow_host_code)
        print(f"{len(model.bundle.manifest.files)} files: size and sha256 as listed")
        _tell_simulated(model)
        comparisons = list(verify_model(model))
    rows = [
        (
            c.graph,
            c.bucket,
            c.output,
            c.steps,
            f"{c.max_abs_error:.3g}",
            f"{c.limit:.3g}",
            "ok" if c.holds else "DIFFERS",
        )
        for c in comparisons
    ]
    print(format_table(("graph", "bucket", "output", "steps", "max abs error", "limit", ""), rows))
    broken = [c for c in comparisons if not c.holds]
    if broken:
        worst = max(broken, key=lambda c: c.max_abs_error / max(c.limit, 1e-30))
        raise GateFailed(
            f"{options.bundle}: expected {worst.output!r} of graph {worst.graph!r} ({worst.bucket}) within "
            f"{worst.limit:.3g}, got {worst.max_abs_error:.3g}; do not use the bundle on this machine, rebuild it here"
        )


def _tell_simulated(model: Model) -> None:
    """Print which graphs no device executes."""
    if model.simulated:
        names = ", ".join(model.simulated)
        print(f"{names}: executed in the vendor's simulator, on no device; times are the simulator's")


def _run(options: argparse.Namespace) -> None:
    """Run the command `run`: run feeds from an `.npz` file, write the outputs, and print their dtypes and shapes."""
    feeds = arrays_from_file(options.feeds)
    with Runtime(threads=options.threads) as runtime, replace_file(options.out) as file:
        model = runtime.load(options.bundle, allow_host_code=options.allow_host_code)
        outputs = _push_chunks(model, feeds, options.graph) if options.stream else model.run(feeds, options.graph)
        file.write(npz_from_arrays(outputs))
    for name, array in outputs.items():
        print(f"{name}  {array.dtype} {list(array.shape)}")


def _push_chunks(model: Model, feeds: dict[str, Array], graph: str | None) -> dict[str, Array]:
    """Push arrays `[chunks, rows, ...]` through a new stream; return outputs stacked along a new first axis."""
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in feeds.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise BadInput(
            f"run --stream: expected arrays [chunks, rows, ...] with one number of chunks, got {counts}; "
            "stack the chunks along a new first axis"
        )
    rows = 1
    for name, rows_at in reversed(model.asked(graph).fed.items()):
        if name in feeds and rows_at is not None:
            rows = feeds[name].shape[1 + rows_at] if feeds[name].ndim > 1 + rows_at else 1
    with model.open_stream(graph, rows=rows) as stream:
        pushed = [
            stream.push({name: array[i] for name, array in feeds.items()}) for i in range(next(iter(counts.values())))
        ]
    return {name: np.stack([outputs[name] for outputs in pushed]) for name in pushed[0]}


def _bench(options: argparse.Namespace) -> None:
    """Run the command `bench`: print the times of every bucket, and write them into the bundle if asked to."""
    if options.update_costs and options.bundle.is_file():
        raise BadInput(f"{options.bundle}: expected a bundle directory for --update-costs, got a file; unpack it first")
    if options.workers is None:
        with Runtime(threads=options.threads) as runtime:
            model = runtime.load(options.bundle, allow_host_code=options.allow_host_code)
            _tell_simulated(model)
            timings = list(bench_model(model, options.runs, options.warm_up))
        print(f"{options.threads} threads, {options.runs} runs after {options.warm_up}; times in ms")
    else:
        executors = make_trusted_executor if options.allow_host_code else make_executor
        timings = bench_served(options.bundle, options.threads, options.workers, options.runs, executors)
        print(f"{options.threads} threads, {options.workers} workers, {options.runs} runs of each; times in ms")
    print(_table_of_times(timings))
    if options.update_costs:
        costs: dict[str, dict[str, Cost]] = {}
        for t in timings:
            cost = Cost(options.threads, *(round(ms, 6) for ms in (t.p50_ms, t.p95_ms, t.p99_ms)))
            costs.setdefault(t.graph, {})[t.bucket] = cost
        with replace_file(options.bundle / COSTS_FILE) as file:
            file.write(json_from_costs(costs))


def _table_of_times(timings: Sequence[Timing]) -> str:
    """Times in ms; what crosses per run where some run on a device."""
    rows = [(t.graph, t.bucket, *(f"{ms:.3f}" for ms in (t.p50_ms, t.p95_ms, t.p99_ms, t.first_ms))) for t in timings]
    heads = ("graph", "bucket", "p50", "p95", "p99", "first")
    if not any(t.crossed for t in timings):
        return format_table(heads, rows)
    crossed = [map(str, t.crossed or ("", "")) for t in timings]
    joined = [(*row, *each) for row, each in zip(rows, crossed, strict=True)]
    return format_table((*heads, "bytes to device", "bytes to host"), joined)


if __name__ == "__main__":
    sys.exit(main())
