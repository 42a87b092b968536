"""One table of everything a user can get wrong: one message with the cure, the documented exit code, nothing left over.

Each row starts from a project that builds (and has built into `bundle`), spoils one thing, and runs one command.
"""

import contextlib
import dataclasses
import shutil
import socket
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import safetensors.numpy

import runtime_lite
from runtime_lite.errors import RuntimeLiteError
from tests.kit.models.project import Ended, Project, digest_of
from tests.kit.models.shared import shared_project
from tests.kit.models.tiny_graph import outside_weight, stream_model, write_stream
from tests.runtime_lite.bundles import edit_manifest, replace_hashed

WRONG, REFUSED, GATE = 2, 3, 4

Deed = Callable[[Project], Ended]


@dataclasses.dataclass(frozen=True)
class Row:
    """What is done, the exit code, and words that the one message must hold, the cure among them; some take long."""

    name: str
    do: Deed
    code: int
    words: tuple[str, ...]
    repeats: bool = True
    slow: bool = False


# What is done


def recipe(old: str, new: str, *options: str) -> Deed:
    """Change one place of the recipe, and build."""

    def do(project: Project) -> Ended:
        project.replace("tiny.yaml", old, new)
        return project.build(*options)

    return do


def file(name: str, content: str | bytes | None, *options: str) -> Deed:
    """Write a whole file (None removes it), and build."""

    def do(project: Project) -> Ended:
        path = project.folder / name
        if content is None:
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return project.build(*options)

    return do


def model(old: str, new: str, without: str = "") -> Deed:
    """Change one place of the model's code, and build, perhaps without a line of the recipe."""

    def do(project: Project) -> Ended:
        if without:
            project.replace("tiny.yaml", without, "")
        project.replace("tiny_asr.py", old, new)
        return project.build()

    return do


def data(body: str, old: str = "    seed = 0\n", new: str | None = None) -> Deed:
    """Put lines in front of a generator's own, or change one place, and build."""

    def do(project: Project) -> Ended:
        project.replace("tiny_data.py", old, body + (old if new is None else new))
        return project.build()

    return do


def one_feed(array: str, name: str = "features") -> Deed:
    """Yield one stream whose second feed is another."""
    return data(f'    yield [*one_stream(0), {{"{name}": {array}}}]\n')


def task(old: str, new: str) -> Deed:
    """Change one place of the recordings, the decoder or the metric, and build."""

    def do(project: Project) -> Ended:
        project.replace("tiny_task.py", old, new)
        return project.build()

    return do


def weights(edit: Callable[[dict[str, np.ndarray]], object]) -> Deed:
    """Change the tensors of the checkpoint, and build."""

    def do(project: Project) -> Ended:
        path = project.folder / "tiny.safetensors"
        tensors = safetensors.numpy.load_file(path)
        edit(tensors)
        safetensors.numpy.save_file(tensors, path)
        return project.build()

    return do


def command(*arguments: str) -> Deed:
    """Run a command in the project's folder."""
    return lambda project: project.run(*arguments)


def build_to(out: str, *options: str) -> Deed:
    """Build the right recipe to another place."""
    return lambda project: project.build(*options, out=out)


def stream(extra: str = "", old: str = "", new: str = "", **texts: str) -> Deed:
    """Build an ONNX file with another line in it, or from another recipe."""

    def do(project: Project) -> Ended:
        write_stream(project.folder, stream_model(extra, **texts))
        if old:
            project.replace("stream.yaml", old, new)
        return project.build(recipe="stream.yaml")

    return do


def onnx_file(spoil: Callable[[Path], object]) -> Deed:
    """Build from an ONNX file that was spoilt."""

    def do(project: Project) -> Ended:
        write_stream(project.folder)
        spoil(project.folder / "stream.onnx")
        return project.build(recipe="stream.yaml")

    return do


def weight_outside(location: str) -> Deed:
    """Build from an ONNX file whose weight lies elsewhere."""

    def do(project: Project) -> Ended:
        (project.folder.parent / "secret.bin").write_bytes(bytes(32))
        write_stream(project.folder)
        outside = outside_weight(stream_model(), location)
        (project.folder / "stream.onnx").write_bytes(ir.to_proto(outside).SerializeToString())
        return project.build(recipe="stream.yaml")

    return do


def bundle(verb: str, spoil: Callable[[Path], object]) -> Deed:
    """Copy the bundle, spoil the copy, and inspect or verify it."""

    def do(project: Project) -> Ended:
        shutil.copytree(project.folder / "bundle", project.folder / "copy")
        spoil(project.folder / "copy")
        return project.run(verb, "copy")

    return do


def feed(change: Callable[[np.ndarray], dict[str, object]]) -> Deed:
    """Push one feed made from a right one into a stream of the bundle."""

    def do(project: Project) -> Ended:
        with runtime_lite.Runtime() as runtime:
            asr = runtime.load(project.folder / "bundle")
            with asr.open_stream("net") as opened:
                try:
                    opened.push(change(np.zeros((1, 4, 8), np.float32)))  # type: ignore[arg-type]
                except RuntimeLiteError as error:
                    return Ended(error.exit_code, "", f"error: {error}")
        return Ended(0, "", "")

    return do


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def graph_of(folder: Path) -> Path:
    return folder / "graphs" / "net.batch.onnx"


def as_tar(folder: Path) -> None:
    """The same bundle as a file, cut in the middle."""
    with tarfile.open(folder.with_suffix(".tar"), "w") as tar:
        tar.add(folder, ".")
    shutil.rmtree(folder)
    content = folder.with_suffix(".tar").read_bytes()
    folder.write_bytes(content[: len(content) // 2])
    folder.with_suffix(".tar").unlink()


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def graph_is_socket(folder: Path) -> None:
    """Neither a file nor a folder."""
    graph_of(folder).unlink()
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(folder):  # the kernel's limit of a path is short
        made.bind(str(graph_of(folder).relative_to(folder)))


def build_over_foreign_folder(project: Project) -> Ended:
    (project.folder / "mine").mkdir()
    project.write("mine/a", "")
    return project.build(out="mine")


NAN_STREAM = "np.full((1, 4, 8), np.nan, np.float32)"

RECIPES = [
    Row("misspelt key", recipe("checkpoint: t", "chekpoint: t"), WRONG, ("tiny.yaml:", "chekpoint", "checkpoint")),
    Row("unknown key at the top", recipe("front_end:", "frontend:"), WRONG, ("frontend", "front_end")),
    Row("text for a number", recipe("count: 3", "count: three"), WRONG, ("count", "'three'")),
    Row(
        "negative tolerance",
        recipe("max_abs: 1.0e-5", "max_abs: -1.0"),
        WRONG,
        ("gates.parity.net.max_abs", "a number above 0", "change the value"),
    ),
    Row("YAML that does not parse", recipe("targets:\n", "targets: ]\n"), WRONG, ("tiny.yaml:", "YAML")),
    Row("empty recipe", file("tiny.yaml", ""), WRONG, ("tiny.yaml", "expected")),
    Row("recipe is a folder", command("--recipe", "bundle"), WRONG, ("bundle", "expected")),
    Row("no such recipe", command("--recipe", "tinny"), WRONG, ("--recipe", "'tinny'")),
    Row(
        "--set of an unknown path",
        recipe("name: tiny", "name: tiny", "--set", "gates.partiy=1"),
        WRONG,
        ("--set", "partiy", "parity"),
    ),
    Row("--set without a value", recipe("name: tiny", "name: tiny", "--set", "gates"), WRONG, ("--set", "=")),
    Row(
        "undeclared axis",
        recipe("features:       {shape: [batch", "features: {shape: [rows"),
        WRONG,
        ("'rows'", "declare"),
    ),
    Row(
        "state that is no output",
        recipe('next_context_{0..1}"}', 'next_{0..1}"}'),
        WRONG,
        ("next_0", "expected the name of an output"),
    ),
    Row("gate of another graph", recipe("    net: {max", "    nett: {max"), WRONG, ("nett", "'net'")),
    Row("unknown pass", recipe("- pad_axes", "- pad_axis"), WRONG, ("'pad_axis'", "did you mean 'pad_axes'")),
    Row(
        "2999 buckets",
        recipe("buckets: [1, 2]", f"buckets: {list(range(1, 3000))}"),
        WRONG,
        ("axes.batch.buckets", "at most 256 combinations", "2999 of batch", "choose fewer"),
    ),
    Row("misspelt standard", recipe("- pad_axes", "- standart"), WRONG, ("passes.standart", "did you mean 'standard'")),
    Row("unknown option of a pass", recipe("- pad_axes", "- pad_axes: {wide: 1}"), WRONG, ("pad_axes", "'wide'")),
    Row(
        "option of another type",
        recipe("- pack_states\n      - simplify", "- simplify: {rounds: many}"),
        WRONG,
        ("simplify", "rounds", "'many'"),
    ),
    Row(
        "number of another type",
        recipe("- select_states", "- select_states: {memory_mb: all}"),
        WRONG,
        ("select_states: memory_mb: expected float | None, got 'all'", "change the value"),
    ),
    Row(
        "flag for a number",
        recipe("- select_states", "- select_states: {bytes_per_s: true}"),
        WRONG,
        ("select_states: bytes_per_s: expected float, got True", "change the value"),
    ),
    Row(
        "number out of range",
        recipe("- select_states", "- select_states: {memory_mb: 0}"),
        WRONG,
        ("select_states: memory_mb: expected a number above 0, got 0", "change the value"),
    ),
    Row(
        "states that do not fit the memory",
        recipe("- select_states", "- select_states: {memory_mb: 1.0e-4}"),
        REFUSED,
        ("stage select_states", "at most 0.0001 MB", "allow memory_mb"),
        slow=True,
    ),
    Row("unknown target", recipe("kind: onnx_static", "kind: onnx_dynamic"), WRONG, ("'onnx_dynamic'", "onnx_static")),
    Row(
        "one target twice",
        recipe("- kind: onnx_static", "- kind: onnx_static\n  - kind: onnx_static"),
        WRONG,
        ("targets.1: expected each target once, got onnx_static as in targets.0", "take one out"),
    ),
    Row(
        "window_states before pad_axes",
        recipe("- pad_axes\n      - window_states", "- window_states\n      - pad_axes"),
        WRONG,
        ("graphs.net.passes.window_states: expected pad_axes before window_states, got it behind", "list pad_axes"),
    ),
    Row(
        "pack_states before pad_axes",
        recipe("- pad_axes\n", "- pack_states\n      - pad_axes\n"),
        WRONG,
        ("graphs.net.passes.pack_states: expected pad_axes before pack_states, got it behind", "list pad_axes"),
    ),
    Row(
        "select_states after pad_axes",
        recipe("- pad_axes\n", "- pad_axes\n      - select_states\n"),
        WRONG,
        ("graphs.net.passes.pad_axes: expected select_states before pad_axes, got it behind", "list select_states"),
    ),
    Row(
        "no pad_axes at all",
        recipe("      - pad_axes\n      - window_states\n      - project_positions\n      - pack_states\n", ""),
        REFUSED,
        ("stage onnx_static", "put pad_axes into the recipe's passes"),
        slow=True,
    ),
]

SOURCES = [
    Row(
        "absent module",
        recipe('"tiny_asr:build",', '"tiny_asrr:build",'),
        WRONG,
        ("tiny.yaml:5", "'tiny_asrr'", "check the name"),
    ),
    Row(
        "absent factory",
        recipe('"tiny_asr:build",', '"tiny_asr:biuld",'),
        WRONG,
        ("nothing called 'biuld'", "did you mean 'build'"),
    ),
    Row(
        "factory is a number",
        recipe('"tiny_asr:build",', '"tiny_asr:WIDTH",'),
        WRONG,
        ("expected a callable", "int 'WIDTH'"),
    ),
    Row(
        "factory raises",
        model("return _seeded(TinyRecogniser())", "raise OSError('no\\nlicence')"),
        WRONG,
        ("tiny_asr:build", "OSError: no licence", "tiny_asr.py:"),
    ),
    Row(
        "factory exits",
        model("return _seeded(TinyRecogniser())", "raise SystemExit(7)"),
        WRONG,
        ("SystemExit: 7", "tiny_asr.py:"),
    ),
    Row(
        "factory returns a dictionary",
        model("return _seeded(TinyRecogniser())", "return {}  # type: ignore"),
        WRONG,
        ("torch.nn.Module", "got dict", "return the module itself"),
    ),
    Row("model does not parse", model("import math\n", "import math, (\n"), WRONG, ("'tiny_asr'", "SyntaxError")),
    Row(
        "model imports what is absent",
        model("import math\n", "import math\nimport no_such_package\n"),
        WRONG,
        ("no_such_package", "tiny.yaml:5"),
    ),
    Row(
        "an output too few",
        model("return self.output(x), *grown", "return (self.output(x), *grown[:1])  # "),
        WRONG,
        ("expected 5 outputs", "got 2", "list every result of forward"),
    ),
    Row(
        "inputs in another order",
        recipe(
            '      cache_{0..1}:   {shape: [batch, cache, 8], dtype: float32, state: "next_cache_{0..1}"}\n'
            '      context_{0..1}: {shape: [batch, 8, 2], dtype: float32, state: "next_context_{0..1}"}\n',
            '      context_{0..1}: {shape: [batch, 8, 2], dtype: float32, state: "next_context_{0..1}"}\n'
            '      cache_{0..1}:   {shape: [batch, cache, 8], dtype: float32, state: "next_cache_{0..1}"}\n',
        ),
        WRONG,
        ("expected the model to accept", "context_0 [3, 8, 2]", "check order, shapes and dtypes"),
    ),
    Row(
        "outputs that are no tensors",
        model("return self.output(x), *grown", "return 4, *grown"),
        WRONG,
        ("expected tensors", "got int", "return what the recipe lists"),
    ),
    Row(
        "model fixes a declared axis",
        model("        x = self.embed(features)\n", "        x = self.embed(features.reshape(2, 4, 8))\n"),
        WRONG,
        ("stage capture", "expected the model to accept features [3, 4, 8]", "shape '[2, 4, 8]' is invalid"),
    ),
    Row(
        "op without a rule on the padded axis",
        model(
            "            grown.append(joined)\n",
            "            x = x + torch.fft.fft(joined, dim=1).real[:, -CHUNK:]\n            grown.append(joined)\n",
            "      - select_states\n",
        ),
        REFUSED,
        (
            "op DFT",
            "source tiny_asr.py:",
            "in forward",
            "DFT with computed lengths",
            "give lengths",
        ),
        slow=True,
    ),
    Row(
        "first call of another kind",
        recipe('first_call: {factory: "tiny_asr:build_first"}', "first_call: {onnx: x.onnx}"),
        WRONG,
        ("first_call", "factory"),
    ),
    Row(
        "first call that is another function",
        model("return self.step(features, (), ())", "return self.step(2 * features, (), ())"),
        REFUSED,
        ("stage merge_first_call", "tiny_asr.py:", "make the first call that call"),
        slow=True,
    ),
]

CHECKPOINTS = [
    Row(
        "checkpoint missing", file("tiny.safetensors", None), WRONG, ("tiny.safetensors", "got nothing", "--checkpoint")
    ),
    Row(
        "--checkpoint missing",
        recipe("name: tiny", "name: tiny", "--checkpoint", "other.safetensors"),
        WRONG,
        ("other.safetensors", "got nothing"),
    ),
    Row(
        "checkpoint is a folder",
        recipe("checkpoint: tiny.safetensors", "checkpoint: bundle"),
        WRONG,
        ("bundle", "got a folder"),
    ),
    Row("checkpoint is text", file("tiny.safetensors", "weights"), WRONG, ("tiny.safetensors", "save_file")),
    Row("checkpoint is empty", file("tiny.safetensors", b""), WRONG, ("tiny.safetensors", "save_file")),
    Row(
        "checkpoint with a huge header",
        file("tiny.safetensors", struct.pack("<Q", 1 << 60) + b"{}"),
        WRONG,
        ("tiny.safetensors", "save_file"),
    ),
    Row("tensor missing", weights(lambda t: t.pop("embed.bias")), WRONG, ("missing embed.bias", "this model")),
    Row("tensor too many", weights(lambda t: t.update(extra=np.zeros(1, np.float32))), WRONG, ("unexpected extra",)),
    Row(
        "tensor misshapen",
        weights(lambda t: t.update({"embed.bias": np.zeros(9, np.float32)})),
        WRONG,
        ("misshapen embed.bias [9] instead of [8]",),
    ),
    Row("NaN in a tensor", weights(lambda t: t["embed.bias"].fill(np.nan)), WRONG, ("NaN", "embed.bias", "repair")),
]

DATA = [
    Row(
        "generator absent",
        recipe("tiny_data:verification", "tiny_data:verifycation"),
        WRONG,
        ("data.verification.feeds", "'verifycation'", "did you mean 'verification'"),
    ),
    Row(
        "generator raises",
        data("    raise KeyError('corpus')\n"),
        WRONG,
        ("tiny_data:verification", "KeyError: 'corpus'", "tiny_data.py:"),
    ),
    Row(
        "generator yields nothing", data("    return\n"), WRONG, ("tiny_data:verification", "got none", "yield streams")
    ),
    Row(
        "generator returns None",
        recipe("tiny_data:verification", "tiny_data:silence"),
        WRONG,
        ("tiny_data:silence", "NoneType", "yield streams"),
    ),
    Row("stream is a number", data("    yield 5\n"), WRONG, ("tiny_data:verification", "stream 0", "int")),
    Row("stream is empty", data("    yield []\n"), WRONG, ("stream 0", "empty stream", "at least one feed")),
    Row(
        "streams too short for the gate",
        data("", "CHUNKS = 8", "CHUNKS = 7"),
        WRONG,
        ("at least 8 chunks", "got 7", "lower chained_steps"),
    ),
    Row("feed is an array", data("    yield [np.zeros(3)]\n"), WRONG, ("feed 0", "got ndarray", "yield dictionaries")),
    Row(
        "feed of another name",
        one_feed("np.zeros((1, 4, 8), np.float32)", "featrues"),
        WRONG,
        ("feed 8", "['features']", "featrues"),
    ),
    Row(
        "feed of another rank",
        one_feed("np.zeros((4, 8), np.float32)"),
        WRONG,
        ("features", "[4, 8]", "one row in front"),
    ),
    Row("feed of another dtype", one_feed("np.zeros((1, 4, 8))"), WRONG, ("float64", ".astype('float32')")),
    Row("feed of another size", one_feed("np.zeros((1, 5, 8), np.float32)"), WRONG, ("[1, 5, 8]", "whole chunks")),
    Row("feed without frames", one_feed("np.zeros((0, 4, 8), np.float32)"), WRONG, ("[0, 4, 8]",)),
    Row("feed of two rows", one_feed("np.zeros((2, 4, 8), np.float32)"), WRONG, ("[2, 4, 8]", "one row")),
    Row("feed with NaN", one_feed(NAN_STREAM), WRONG, ("stream 0", "feed 8", "NaN", "repair")),
    Row("feed is a list", one_feed("[0.0]"), WRONG, ("numpy array", "got list")),
    Row(
        "data file missing", file("level.txt", None), WRONG, ("data.verification.files", "level.txt", "check the path")
    ),
]

TASKS = [
    Row("decoder absent", recipe("tiny_task:decode", "tiny_task:decoder"), WRONG, ("gates.task.decode", "'decode'")),
    Row(
        "decoder raises",
        task('return "".join(chr', 'return "".join(1 + chr'),
        WRONG,
        ("tiny_task:decode", "TypeError", "tiny_task.py:"),
    ),
    Row(
        "decoder returns a number",
        task('return "".join(chr(ord("A") + label) for label in best)', "return 1"),
        WRONG,
        ("tiny_task:decode", "got int", "text"),
    ),
    Row(
        "metric returns text",
        task("return sum(a != b for a, b in pairs) / len(pairs)", "return 'good'"),
        WRONG,
        ("tiny_task:error_rate", "number", "'good'"),
    ),
    Row(
        "metric is NaN",
        task("return sum(a != b for a, b in pairs) / len(pairs)", "return float('nan')"),
        WRONG,
        ("tiny_task:error_rate", "number", "nan"),
    ),
    Row(
        "no recordings",
        task("for seed in range(2)]", "for seed in range(0)]"),
        WRONG,
        ("tiny_task:recordings", "got none", "yield recordings"),
    ),
    Row(
        "recordings raise",
        task("def recordings() -> list[Recording]:\n", "def recordings() -> list[Recording]:\n    1 / 0\n"),
        WRONG,
        ("tiny_task:recordings", "ZeroDivisionError", "tiny_task.py:"),
    ),
    Row(
        "recording without reference",
        task("    reference: str\n", "    text: str\n"),
        WRONG,
        ("tiny_task:recordings", "reference", "chunks"),
    ),
    Row(
        "recording with other chunks",
        task("one_recording(100 + seed)", "[{'features': np.zeros((1, 3, 8), np.float32)}]"),
        WRONG,
        ("r0", "[1, 3, 8]", "whole chunks"),
    ),
    Row("recording without chunks", task("one_recording(100 + seed)", "[]"), WRONG, ("r0", "at least one")),
]

PLACES = [
    Row("--out is a file", build_to("level.txt"), WRONG, ("level.txt", "got a file", "another --out")),
    Row("--out is a foreign folder", build_over_foreign_folder, WRONG, ("mine", "another folder", "another --out")),
    Row("--out below a file", build_to("level.txt/b"), WRONG, ("level.txt", "check")),
    Row("--out where nobody may write", build_to("/proc/bundle"), WRONG, ("/proc", "check the path")),
    Row("--report is a folder", build_to("b", "--report", "bundle"), WRONG, ("the folder bundle", "name a file in it")),
    Row("--report below a file", build_to("b", "--report", "level.txt/r.json"), WRONG, ("level.txt", "check the path")),
    Row("--cache is a file", build_to("b", "--cache", "level.txt"), WRONG, ("level.txt", "check")),
]

GATES = [
    Row(
        "parity too tight",
        recipe("max_abs: 1.0e-5", "max_abs: 1.0e-12"),
        GATE,
        ("stage capture", "within", "chained step", "before any pass", "looser max_abs"),
    ),
    Row("bundle too large", recipe("size_mb: 1,", "size_mb: 0.01,"), GATE, ("stage budget", "0.01 MB", "size_mb")),
    Row("call too slow", recipe("p95_ms: 1000", "p95_ms: 0.000001"), GATE, ("stage budget", "p95", "quiet machine")),
]

GRAPHS = [
    Row("ONNX file missing", onnx_file(Path.unlink), WRONG, ("stream.onnx", "got nothing", "check source.onnx")),
    Row(
        "ONNX file is text",
        onnx_file(lambda p: p.write_text("hello")),
        WRONG,
        ("stream.onnx", "export the model again"),
    ),
    Row("ONNX file truncated", onnx_file(truncated), WRONG, ("stream.onnx", "export the model again")),
    Row("ONNX file empty", onnx_file(lambda p: p.write_bytes(b"")), WRONG, ("stream.onnx", "export the model again")),
    Row(
        "ONNX input of another name",
        stream(old="      keys: ", new="      keyes:"),
        WRONG,
        ("keyes", "stream.onnx", "write the file's inputs"),
    ),
    Row(
        "ONNX output of another name",
        stream(old="outputs: [logits", new="outputs: [scores"),
        WRONG,
        ("'scores'", "write the file's outputs"),
    ),
    Row(
        "ONNX input of another rank",
        stream(old="shape: [batch, 4, 8]", new="shape: [batch, 4, 8, 1]"),
        WRONG,
        ("features", "[batch, 4, 8, 1]", "got [1, 4, 8]"),
    ),
    Row(
        "ONNX input of another size",
        stream(old="shape: [batch, 4, 8]", new="shape: [batch, 4, 9]"),
        WRONG,
        ("features", "[batch, 4, 9]", "got [1, 4, 8]"),
    ),
    Row(
        "ONNX input of another dtype",
        stream(old="[batch, 4, 8], dtype: float32", new="[batch, 4, 8], dtype: int64"),
        WRONG,
        ("features", "int64", "float32"),
    ),
    Row(
        "axis fixed by the ONNX file",
        stream(old="features: {shape: [batch, 4, 8]", new="features: {shape: [batch, cache, 8]"),
        REFUSED,
        ("features", "'cache'", "to 4", "declare the axis as fixed"),
    ),
    Row("nodes of an ONNX file out of order", stream("late = Relu(mixed)"), WRONG, ("stream.onnx", "mixed")),
    Row(
        "op without a rule in an ONNX file",
        stream(
            "last = Constant<value = int64[1] {-1}>()\n    pair = Unsqueeze(next_keys, last)\n"
            "    one = Constant<value = int64 {1}>()\n    turned = DFT(pair, , one)\n"
            "    summed = ReduceSum<keepdims = 0>(turned, last)",
            attended="summed",
        ),
        REFUSED,
        ("op DFT", "axis batch, cache", "stream.onnx", "every frequency depends"),
    ),
    Row(
        "op of an unknown domain",
        stream("odd = acme.Odd(scores)", domains=', "acme" : 1'),
        REFUSED,
        ("acme", "Odd", "standard operators"),
    ),
    Row(
        "state that does not grow",
        stream(old="state: next_keys", new="state: logits"),
        REFUSED,
        ("tensor logits", "axis cache", "feed the whole back"),
    ),
    Row(
        "growing state on a fixed axis",
        stream(old="cache: {window: 8}", new="cache: {fixed: 8}"),
        REFUSED,
        ("'keys'", "[batch, 8, 8]", "'next_keys'", "declare the growing axis with a window"),
    ),
    Row("weight outside the folder", weight_outside("../secret.bin"), WRONG, ("stream.onnx", "secret.bin")),
    Row("weight at an absolute path", weight_outside("/etc/passwd"), WRONG, ("stream.onnx", "passwd")),
    Row("weight file missing", weight_outside("weights.bin"), WRONG, ("stream.onnx", "weights.bin")),
]

BUNDLES = [
    *(
        Row(f"{verb}: {name}", bundle(verb, spoil), WRONG, words)
        for verb in ("inspect", "verify")
        for name, spoil, words in (
            ("no bundle", shutil.rmtree, ("copy", "check the path")),
            ("empty folder", emptied, ("manifest.json",)),
            ("file missing", lambda p: graph_of(p).unlink(), ("graphs/net.batch.onnx",)),
            ("file truncated", lambda p: truncated(graph_of(p)), ("graphs/net.batch.onnx", "bytes")),
            ("file altered", lambda p: graph_of(p).write_bytes(b"x" * graph_of(p).stat().st_size), ("SHA-256",)),
            ("manifest truncated", lambda p: truncated(p / "manifest.json"), ("manifest.json",)),
            (
                "manifest of another schema",
                lambda p: edit_manifest(p, lambda m: m.update(schema_version=99)),
                ("schema_version", "99"),
            ),
            (
                "path out of the bundle",
                lambda p: edit_manifest(p, lambda m: m["files"].update({"../level.txt": m["files"]["recipe.yaml"]})),
                ("../level.txt",),
            ),
            ("oversized manifest", lambda p: (p / "manifest.json").write_bytes(b" " * (1 << 26)), ("manifest.json",)),
            ("graph is a socket", graph_is_socket, ("net.batch.onnx",)),
            ("truncated tar", as_tar, ("copy",)),
        )
    ),
    Row(
        "verify: graph replaced and hashed anew",
        bundle("verify", lambda p: replace_hashed(p, "graphs/net.batch.onnx", b"\x00" * 64)),
        WRONG,
        ("net.batch.onnx",),
    ),
    Row(
        "verify: golden file replaced and hashed anew",
        bundle("verify", lambda p: replace_hashed(p, "golden/net.npz", b"PK\x03\x04")),
        WRONG,
        ("golden/net.npz",),
    ),
]

FEEDS = [
    Row("feed: another name", feed(lambda x: {"featurez": x}), WRONG, ("featurez", "features"), False),
    Row("feed: a name missing", feed(lambda x: {}), WRONG, ("features",), False),
    Row("feed: a name too many", feed(lambda x: {"features": x, "mask": x}), WRONG, ("mask",), False),
    Row("feed: another rank", feed(lambda x: {"features": x[0]}), WRONG, ("features", "[4, 8]"), False),
    Row(
        "feed: another dtype", feed(lambda x: {"features": x.astype(np.float64)}), WRONG, ("float64", "float32"), False
    ),
    Row("feed: another size", feed(lambda x: {"features": x[:, :3]}), WRONG, ("features", "3"), False),
    Row("feed: over-length", feed(lambda x: {"features": np.tile(x, (1, 2, 1))}), WRONG, ("features", "8"), False),
    Row("feed: no rows", feed(lambda x: {"features": x[:0]}), WRONG, ("features", "0"), False),
    Row("feed: NaN", feed(lambda x: {"features": x + np.nan}), WRONG, ("features", "nan", "clean the input"), False),
    Row(
        "feed: infinity", feed(lambda x: {"features": x + np.inf}), WRONG, ("features", "inf", "clean the input"), False
    ),
    Row("feed: a list", feed(lambda x: {"features": x.tolist()}), WRONG, ("features", "list"), False),
    Row(
        "feed: more rows than any bucket",
        feed(lambda x: {"features": np.tile(x, (9, 1, 1))}),
        WRONG,
        ("expected 1 rows", "got 9", "open a stream with rows=9"),
        False,
    ),
]

TABLE = [*RECIPES, *SOURCES, *CHECKPOINTS, *DATA, *TASKS, *PLACES, *GATES, *GRAPHS, *BUNDLES, *FEEDS]


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy of the built project, with its bundle."""
    shared = shared_project(tmp_path_factory)
    copy = shared.copy_to(tmp_path / "project")
    shutil.copytree(shared.folder / "bundle", copy.folder / "bundle")
    yield copy
    copy.forget_modules()


def left_in(folder: Path) -> set[str]:
    """Files and folders of a project that only an unfinished write leaves."""
    return {path.name for path in folder.rglob("*") if ".partial-" in path.name or ".previous-" in path.name}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * row.slow) for row in TABLE])
def test_mistake_is_answered_by_one_message_with_its_cure(row: Row, project: Project) -> None:
    before = digest_of(project.folder / "bundle")
    ended = row.do(project)
    assert ended.code == row.code, ended.err
    lines = ended.err.splitlines()
    assert len(lines) == (2 if row.repeats else 1), ended.err
    assert lines[0].startswith("error: ")
    assert not row.repeats or lines[1].startswith("repeat with: python build.py ")
    assert "Traceback" not in ended.out + ended.err
    for word in row.words:
        assert word in lines[0]
    assert left_in(project.folder) == set()
    assert not (project.folder / "b").exists()
    assert digest_of(project.folder / "bundle") == before


def test_table_is_long_enough_and_names_each_row_once() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names) >= 100
