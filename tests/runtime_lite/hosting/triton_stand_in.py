"""What stands for `triton_python_backend_utils` and for the server around it, as far as our model sees them."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from runtime_lite.format.arrays import Array

START, END, FINAL = 1, 2, 1


class Tensor:
    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int) -> None:
        self.message, self.code = message, code


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


def module() -> ModuleType:
    """The module that a model imports in the server's process."""
    found = ModuleType("triton_python_backend_utils")
    found.__dict__.update(
        Tensor=Tensor,
        TritonError=TritonError,
        InferenceResponse=InferenceResponse,
        TRITONSERVER_REQUEST_FLAG_SEQUENCE_START=START,
        TRITONSERVER_REQUEST_FLAG_SEQUENCE_END=END,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=FINAL,
    )
    return found


class Request:
    """One request and its sender."""

    def __init__(
        self,
        feeds: Mapping[str, Array],
        stream: int | str = 0,
        flags: int = 0,
        timeout_us: int = 0,
        parameters: Mapping[str, object] | None = None,
        outputs: Sequence[str] = (),
    ) -> None:
        self._feeds, self._stream, self._flags, self._timeout_us = feeds, stream, flags, timeout_us
        self._parameters, self._outputs = parameters or {}, outputs
        self.responses: list[InferenceResponse] = []
        self.answered = threading.Event()
        self.cancelled = threading.Event()

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, array) for name, array in self._feeds.items()]

    def requested_output_names(self) -> Sequence[str]:
        return self._outputs

    def correlation_id(self) -> int | str:
        return self._stream

    def flags(self) -> int:
        return self._flags

    def timeout(self) -> int:
        return self._timeout_us

    def parameters(self) -> str:
        return json.dumps(self._parameters) if self._parameters else ""

    def get_response_sender(self) -> "Request":
        return self

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        assert not self.answered.is_set() and (response is not None or flags == FINAL)
        if response is not None:
            self.responses.append(response)
        if flags == FINAL:
            self.answered.set()


def arguments_of(model: Path) -> dict[str, str]:
    """What the server tells a model of a repository when it loads it."""
    text = (model / "config.pbtxt").read_text()
    pairs = re.findall(r'parameters \{ key: (".*?") value: \{ string_value: (".*?") \} \}', text)
    parameters = {json.loads(key): {"string_value": json.loads(value)} for key, value in pairs}
    return {
        "model_config": json.dumps({"parameters": parameters}),
        "model_repository": str(model),
        "model_version": "1",
    }
