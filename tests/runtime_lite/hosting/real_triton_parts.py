"""Voices and recordings on a real Triton server, through one gRPC stream; runs in the environment of its client.

python -m tests.runtime_lite.hosting.real_triton_parts PORT VOICE RECORDINGS
"""

import queue
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import Runtime
from runtime_lite.format.arrays import Array
from tests.kit.patience import PATIENCE_S

KINDS = {"float32": "FP32", "int64": "INT64"}
VOICES = 20
TEXT = np.array([[1, 2, 3, 1]])


class Parts:
    """Requests on one stream of the client, and their responses by number."""

    def __init__(self, port: str) -> None:
        import tritonclient.grpc as grpc  # in the environment of the server alone

        self._grpc: Any = grpc
        self._client = grpc.InferenceServerClient(f"127.0.0.1:{port}")
        self._answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._client.start_stream(lambda result, error: self._answers.put((result, error)))

    def ask(self, number: int, model: str, feeds: Mapping[str, Array], **parameters: object) -> None:
        """Send a request."""
        inputs = []
        for name, array in feeds.items():
            inputs.append(self._grpc.InferInput(name, list(array.shape), KINDS[str(array.dtype)]))
            inputs[-1].set_data_from_numpy(np.ascontiguousarray(array))
        self._client.async_stream_infer(
            model, inputs, request_id=str(number), parameters=parameters, enable_empty_final_response=True
        )

    def answers(self, count: int, output: str) -> dict[int, list[Array]]:
        """Wait until so many requests have ended; return what each was answered."""
        found: dict[int, list[Array]] = {}
        while count:
            result, error = self._answers.get(timeout=PATIENCE_S)
            assert error is None, error
            response = result.get_response()
            arrays = found.setdefault(int(response.id), [])
            array = result.as_numpy(output)
            if array is not None:
                arrays.append(array)
            count -= response.parameters["triton_final_response"].bool_param
        return found

    def refusal(self) -> str:
        """Wait for an error and return its message."""
        _, error = self._answers.get(timeout=PATIENCE_S)
        return str(error)


def main(port: str, voice: str, recordings: str) -> None:
    """Ask for many voices at once, and for many recordings, and compare each with itself alone."""
    parts = Parts(port)
    with Runtime() as runtime:
        model = runtime.load(Path(voice))
        alone = [np.concatenate(model.say({"text": TEXT}, seed=seed).result()) for seed in range(VOICES)]
    for seed in range(VOICES):
        parts.ask(seed, "tiny_voice", {"text": TEXT}, seed=seed)
    packets = parts.answers(VOICES, "sound")
    for seed, right in enumerate(alone):
        np.testing.assert_allclose(np.concatenate(packets[seed]), right, rtol=1e-5, atol=1e-5)
    print(f"row voices: passed, {VOICES} of {VOICES} in {sum(map(len, packets.values()))} packets", flush=True)
    with np.load(recordings) as known:
        chunks, right = known["chunks"], known["right"]  # [recordings, chunks, ...]
    for number, recording in enumerate(chunks):
        parts.ask(number, "tiny_recording", {"x": recording})
    answers = parts.answers(len(chunks), "y")
    for number, expected in enumerate(right):
        np.testing.assert_allclose(np.stack(answers[number]), expected, rtol=1e-6, atol=1e-6)
    count = sum(map(len, answers.values()))
    print(f"row recordings: passed, {len(answers)} of {len(chunks)} in {count} answers", flush=True)
    parts.ask(0, "tiny_voice", {"text": TEXT}, temperature="hot")
    assert "expected temperature as a number, got 'hot'" in (message := parts.refusal()), message
    print("row refused: passed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
