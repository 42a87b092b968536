"""Runs verified bundles: numpy and one backend, nothing of the compiler.

with runtime_lite.Runtime() as runtime:
    asr = runtime.load("dist/recogniser-cpu")
    with asr.open_stream() as stream:
        for chunk in chunks:
            outputs = stream.push({"features": chunk})

A model without states is run: `outputs = asr.run({"features": x})`, rows of several lengths with
`asr.run({"features": x}, lengths={"time": [900, 512]})` or `asr.run_many([{"features": x}, {"features": y}])`.
"""

from runtime_lite.errors import (
    BadInput,
    BundleRefused,
    EngineAbsent,
    ExecutorFailed,
    GateFailed,
    InternalError,
    RuntimeLiteError,
)
from runtime_lite.executors.child import in_child
from runtime_lite.format.manifest import Manifest
from runtime_lite.format.manifest_json import json_from_manifest, manifest_from_json
from runtime_lite.format.reader import Bundle, read_bundle, write_tar
from runtime_lite.model import Model, Stream
from runtime_lite.runtime import Runtime

__all__ = [
    "BadInput",
    "Bundle",
    "BundleRefused",
    "EngineAbsent",
    "ExecutorFailed",
    "GateFailed",
    "InternalError",
    "Manifest",
    "Model",
    "Runtime",
    "RuntimeLiteError",
    "Stream",
    "in_child",
    "json_from_manifest",
    "manifest_from_json",
    "read_bundle",
    "write_tar",
]
