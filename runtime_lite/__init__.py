"""Runs verified bundles; needs numpy and one backend, and nothing of the compiler.

with runtime_lite.Runtime() as runtime:
    asr = runtime.load("dist/recogniser-cpu")
    with asr.open_stream() as stream:
        for chunk in chunks:
            outputs = stream.push({"features": chunk})

A model without states is run: `outputs = asr.run({"features": x})`, rows of several lengths with
`asr.run({"features": x}, lengths={"time": [900, 512]})` or `asr.run_many([{"features": x}, {"features": y}])`.
"""

from runtime_lite.decoding.generation import Generation
from runtime_lite.decoding.playback import Taken, VoiceReport
from runtime_lite.decoding.voice import Voice
from runtime_lite.errors import (
    BadInput,
    BundleRefused,
    Cancelled,
    Dropped,
    EngineAbsent,
    ExecutorFailed,
    GateFailed,
    InternalError,
    Overloaded,
    RuntimeLiteError,
    StreamLost,
)
from runtime_lite.executors.child import in_child
from runtime_lite.format.manifest import Manifest
from runtime_lite.format.manifest_json import json_from_manifest, manifest_from_json
from runtime_lite.format.reader import Bundle, read_bundle, write_tar
from runtime_lite.format.sampling import Sampling
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, STEP, UTTERANCE, ServiceClass
from runtime_lite.serving.ticket import Responses, Ticket
from runtime_lite.stream import Snapshot, Stream

__version__ = "0.1.0"
"""Of the runtime and of the toolchain, which go together."""

__all__ = [
    "BULK",
    "CHUNK",
    "INTERACTIVE",
    "STEP",
    "UTTERANCE",
    "BadInput",
    "Bundle",
    "BundleRefused",
    "Cancelled",
    "Dropped",
    "EngineAbsent",
    "ExecutorFailed",
    "GateFailed",
    "Generation",
    "InternalError",
    "Manifest",
    "Model",
    "Overloaded",
    "Responses",
    "Runtime",
    "RuntimeLiteError",
    "Sampling",
    "ServiceClass",
    "Snapshot",
    "Stream",
    "StreamLost",
    "Taken",
    "Ticket",
    "Voice",
    "VoiceReport",
    "in_child",
    "json_from_manifest",
    "manifest_from_json",
    "read_bundle",
    "write_tar",
]
