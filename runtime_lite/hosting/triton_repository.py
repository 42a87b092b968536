"""Writes the graphs of a bundle as models of a Triton model repository.

A model needs numpy and a backend beside Triton.

    REPOSITORY/asr/config.pbtxt
    REPOSITORY/asr/1/model.py           imports what lies beside it
    REPOSITORY/asr/1/runtime_lite/      this very runtime
    REPOSITORY/asr/1/bundle/            the bundle, checked when the model is loaded

A voice is a model of its own, `NAME_voice`, as are graphs with states whose whole recordings come as one request,
`NAME_recording`: these are decoupled, with many responses to a request.

A newer bundle is written as a model of another name and loaded beside the older one: streams continue with the model
that they started with, and a failed load changes nothing. (A further version of the same model would make Triton load
all of its versions again, and every stream would end; observed with release 24.10.)
"""

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from runtime_lite.errors import BadInput, show
from runtime_lite.format.checked_json import name_fault
from runtime_lite.format.manifest import Graph, Manifest, Tensor, Voice
from runtime_lite.format.reader import Bundle, read_bundle
from runtime_lite.hosting.triton_backend import BUNDLE, HostedModel
from runtime_lite.runtime import Runtime

RUNTIME = Path(__file__).parents[1]

MODEL = '''"""The runtime beside this file serves the bundle beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runtime_lite.hosting.{module} import TritonPythonModel  # noqa: E402

__all__ = ["TritonPythonModel"]
'''

DECOUPLED = "model_transaction_policy { decoupled: true }"

TYPES = {
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "bool": "TYPE_BOOL",
}
"""Names of the model configuration (`model_config.proto`) by those of the manifest."""


def write_repository(
    path: str | os.PathLike[str],
    repository: Path,
    *,
    name: str | None = None,
    threads: int = 1,
    workers: int = 1,
    max_streams: int = 1024,
    idle_s: float = 60.0,
    recordings: bool = False,
) -> list[Path]:
    """Write one model for every graph of a bundle, and one for its voice.

    Args:
        path: bundle directory or `.tar` file.
        repository: folder of the models; created if it does not exist.
        name: name of the model; by default that of the bundle. If there are several graphs, the name of the graph is
            appended.
        threads: threads of one run.
        workers: runs in flight at once.
        max_streams: streams that may be open at once, per graph.
        idle_s: seconds without a chunk after which a stream ends.
        recordings: write another model for every graph with states, which takes all chunks of a stream at once.

    Returns:
        The folders of the models.

    Raises:
        BadInput: a model of this name exists, or an option is wrong.
        BundleRefused: the bundle cannot be trusted or read.
    """
    Runtime(threads, workers=workers, max_streams=max_streams).close()  # refuses what is out of range
    of_runtime = threads, workers, max_streams, idle_s
    if name is not None and name_fault(name) is not None:
        raise BadInput(
            f"write_repository: expected a name of letters, digits, _, . and -, got {show(name)}; correct it"
        )
    with read_bundle(path) as bundle:
        first = name or bundle.manifest.name
        several = len(bundle.manifest.graphs) > 1
        manifest, models = bundle.manifest, dict[str, str]()
        for graph, record in manifest.graphs.items():
            model, options = f"{first}_{graph}" if several else first, HostedModel(graph, *of_runtime)
            models[model] = config_of(model, _each(record), options)
            if recordings and record.states:
                model = f"{model}_recording"
                models[model] = config_of(model, _stacked(record), options._replace(parts="recording"))
        if (voice := manifest.voice) is not None:
            options = HostedModel(voice.step, *of_runtime, parts="voice")
            models[f"{first}_voice"] = config_of(f"{first}_voice", _of_voice(manifest, voice), options)
        for model in models:
            if (repository / model).exists():
                raise BadInput(
                    f"{repository / model}: expected no model of this name, got one; name the new one by --name"
                )
        repository.mkdir(parents=True, exist_ok=True)
        return [_write(bundle, repository / model, config) for model, config in models.items()]


def _write(bundle: Bundle, model: Path, config: str) -> Path:
    """Write all files of a model into a scratch folder, and move it into place."""
    with tempfile.TemporaryDirectory(dir=model.parent, prefix=".") as scratch:
        folder = Path(scratch, model.name)
        version = folder / "1"
        version.mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
        module = "triton_parts" if DECOUPLED in config else "triton_backend"
        (version / "model.py").write_text(MODEL.format(module=module), encoding="utf-8")
        shutil.copytree(RUNTIME, version / "runtime_lite", ignore=shutil.ignore_patterns("__pycache__"))
        bundle.copy_to(version / BUNDLE)
        return folder.rename(model)


class Interface(NamedTuple):
    """The tensors of a model: lines of its configuration.

    Attributes:
        inputs: one for each input.
        outputs: one for each output.
    """

    inputs: list[str]
    outputs: list[str]


def _each(graph: Graph) -> Interface:
    """Return the inputs and outputs of role data."""
    found = (
        [_tensor(tensor) for tensor in tensors if tensor.role == "data"] for tensors in (graph.inputs, graph.outputs)
    )
    return Interface(*found)


def _stacked(graph: Graph) -> Interface:
    """Return the same, with an axis of chunks in front of the inputs."""
    fed = [replace(tensor, shape=("chunks", *tensor.shape)) for tensor in graph.inputs if tensor.role == "data"]
    return Interface([_tensor(tensor) for tensor in fed], _each(graph).outputs)


def _of_voice(manifest: Manifest, voice: Voice) -> Interface:
    """Return what `Model.say` takes, and its packets."""
    step, codec = manifest.graphs[voice.step], manifest.graphs[voice.codec]
    fed = {tensor.name: tensor for tensor in (*codec.inputs, *step.inputs) if tensor.role == "data"}
    for name in {voice.codes, voice.noise} - {voice.tokens}:
        fed.pop(str(name), None)
    optional = voice.tokens if voice.start is not None else None
    sound = next(tensor for tensor in codec.outputs if tensor.name == voice.sound)
    packet = f"{{ name: {json.dumps(voice.sound)} data_type: {TYPES[sound.dtype]} dims: [-1] }}"
    return Interface([_tensor(tensor, tensor.name == optional) for tensor in fed.values()], [packet])


def config_of(name: str, interface: Interface, options: HostedModel) -> str:
    """Return the text of `config.pbtxt` of a model.

    The runtime handles batches and sequences: `max_batch_size` is 0, so that the batch axis is an ordinary axis and
    requests of any lengths come one by one; and a single instance has all streams. (With `sequence_batching` the server
    counts an open stream as a request in flight: it does not shut down while there is one, and then without unloading
    the model; observed with release 24.10. It also does not notify a model when it ends an idle stream.)

    Args:
        name: name of the model.
        interface: its inputs and outputs.
        options: options of the runtime.
    """
    lines = [f"name: {json.dumps(name)}", 'backend: "python"', "max_batch_size: 0"]
    lines += [DECOUPLED] if options.parts else []
    lines += [f"input [{tensor}]" for tensor in interface.inputs]
    lines += [f"output [{tensor}]" for tensor in interface.outputs]
    lines.append("instance_group [{ kind: KIND_CPU count: 1 }]")
    lines += [_parameter(key, str(value)) for key, value in options._asdict().items()]
    return "\n".join([*lines, ""])


def _tensor(tensor: Tensor, optional: bool = False) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else "-1" for size in tensor.shape)
    shape = f"dims: [{sizes}]" if sizes else "dims: [1] reshape: { shape: [] }"
    shape += " optional: true" if optional else ""
    return f"{{ name: {json.dumps(tensor.name)} data_type: {TYPES[tensor.dtype]} {shape} }}"


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {json.dumps(key)} value: {{ string_value: {json.dumps(value)} }} }}"
